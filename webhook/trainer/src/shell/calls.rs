//! Calls of other scripts and shells.

use super::run::Interpreter;
use super::state::{State, Value};
use super::tree::{Redirect, assignment};
use crate::Source;
use crate::lint::Lint;
use crate::marks::{Arg, has_mark};
use crate::program::{base_name, is_interpreter, lists};

/// Folders and files of CANN, conda and the distribution, which set paths only.
const ENVIRONMENT_SCRIPTS: &[&str] = &["/usr/local/Ascend/", "/etc/", "/opt/"];

const ENVIRONMENT_SCRIPT_NAMES: &str =
    "set_env.sh set_env.bash setenv.bash activate conda.sh .bashrc .bash_profile .profile";

pub(super) fn is_script_name(name: &str) -> bool {
    [".sh", ".bash", ".ksh"].iter().any(|ending| name.ends_with(ending))
}

impl Interpreter<'_> {
    /// `. FILE`: it can change every variable.
    pub(super) fn source(&mut self, args: &[Arg]) {
        let Some(path) = args.first().map(|arg| arg.text.clone()) else { return };
        if let Some((name, text)) = self.find(&path) {
            let outer = (args.len() > 1).then(|| self.state.arguments.replace(args[1..].to_vec()));
            self.with_return(|shell| shell.run_text(&name, &text));
            if let Some(arguments) = outer {
                self.state.arguments = arguments;
            }
            self.status = Some(true);
            return;
        }
        self.status = None;
        let shown = self.marks.display(&path);
        let is_known = !has_mark(base_name(&path));
        if is_known
            && (ENVIRONMENT_SCRIPTS.iter().any(|folder| path.starts_with(folder))
                || lists(ENVIRONMENT_SCRIPT_NAMES, base_name(&path)))
        {
            return;
        }
        self.miss(&shown);
        self.forget_variables(&shown);
    }

    /// Something that isn't known may have set any variable.
    pub(super) fn forget_variables(&mut self, cause: &str) {
        let names: Vec<String> = self.state.variables.keys().cloned().collect();
        for name in names {
            let value = self.unknown(&format!("${name} (which {cause} may set)"), false);
            self.state.set(&name, Some(Value::Text(value)));
        }
        self.state.has_unknown_variables = true;
    }

    fn miss(&mut self, script: &str) {
        if !self.missing.iter().any(|other| other == script) {
            self.missing.push(script.to_owned());
        }
    }

    /// A file that an earlier command wrote, or one of the input: by its path, or by its name if only one has it.
    fn find(&self, path: &str) -> Option<(String, String)> {
        if let Some((name, text)) = self.written.iter().rev().find(|(name, _)| name == path) {
            return Some((name.clone(), text.clone()));
        }
        let exact = self.sources.iter().find(|source| source.path == path);
        let wanted = path.trim_start_matches("./");
        let mut same_end = self.sources.iter().filter(|source| {
            let have = source.path.trim_start_matches("./");
            have.ends_with(&format!("/{wanted}")) || wanted.ends_with(&format!("/{have}")) || have == wanted
        });
        let mut same_name = self.sources.iter().filter(|source| base_name(source.path) == base_name(wanted));
        let only = |mut found: Box<dyn Iterator<Item = &Source<'_>> + '_>| {
            let first = found.next();
            first
                .filter(|_| found.next().is_none())
                .map(|source| (source.path.to_owned(), source.text.to_owned()))
        };
        let exact = exact.map(|source| (source.path.to_owned(), source.text.to_owned()));
        let by_end = exact.or_else(|| only(Box::new(same_end.by_ref())));
        by_end.or_else(|| only(Box::new(same_name.by_ref())))
    }

    pub(super) fn call_script(&mut self, path: &str, arguments: Vec<Arg>, pipefail: bool) {
        match self.find(path) {
            Some((name, text)) => self.run_child(&name, &text, Some(arguments), pipefail),
            // MindFormers' own launcher gets the program as its first argument.
            None if base_name(path).starts_with("msrun_launcher") && !arguments.is_empty() => {
                let program = self.marks.split(&arguments[0].text);
                let counts = arguments.iter().skip(1).take(2).zip(["--worker_num", "--local_worker_num"]);
                let counts = counts.flat_map(|(count, flag)| [Arg::of(flag), count.clone()]);
                let args = std::iter::once(Arg::of("msrun")).chain(counts).chain(program).collect();
                self.start(args);
            }
            None => {
                let shown = self.marks.display(path);
                self.miss(&shown);
                self.note_lost_status();
            }
        }
        self.print_unknown("…", false);
        self.status = None;
    }

    /// `bash -c TEXT`, `bash FILE`, or a shell that reads a here-document.
    pub(super) fn run_shell(&mut self, args: &[Arg], redirects: &[Redirect]) {
        let (mut at, mut pipefail) = (1, false);
        while let Some(arg) = args.get(at) {
            let Some(options) = arg.text.strip_prefix(['-', '+']) else { break };
            if arg.open {
                return self.start(args.to_vec());
            }
            at += 1;
            if options == "-" {
                break;
            }
            if options.contains('o') && !options.starts_with('-') {
                pipefail |= args.get(at).is_some_and(|option| option.text == "pipefail");
                at += 1;
            }
            if options.contains('c') && !options.starts_with('-') {
                let Some(script) = args.get(at).cloned() else { return };
                let file = self.file.clone();
                let line = self.line;
                let mut child = self.state.of_child(String::new(), None);
                child.arguments = Some(args.iter().skip(at + 2).cloned().collect());
                child.has_pipefail = pipefail;
                child.script = args.get(at + 1).map_or_else(|| "bash".to_owned(), |name| name.text.clone());
                let outer = std::mem::replace(&mut self.state, child);
                self.run_text(&file, &script.text);
                let managers = self.state.managers;
                self.state = State { managers, ..outer };
                (self.line, self.status) = (line, None);
                return;
            }
        }
        match args.get(at) {
            Some(script) if script.text != "-s" => {
                if has_mark(base_name(&script.text))
                    || script.open && has_mark(&script.text) && base_name(&script.text).is_empty()
                {
                    return self.start(args.to_vec());
                }
                let (path, arguments) = (script.text.clone(), args[at + 1..].to_vec());
                self.call_script(&path, arguments, pipefail);
            }
            _ => self.run_document(redirects),
        }
    }

    /// Runs the here-document of a command.
    fn run_document(&mut self, redirects: &[Redirect]) {
        for redirect in redirects {
            let text = match (&redirect.document, redirect.operator) {
                (Some(document), _) if document.quoted => document.text.clone(),
                (Some(document), _) => self.expand_text(&document.text.clone(), true),
                (None, "<<<") => self.expand_text(&redirect.target.raw, false),
                (None, "<") => {
                    let path = self.expand_text(&redirect.target.raw, false);
                    return self.call_script(&path, Vec::new(), false);
                }
                _ => continue,
            };
            let file = self.file.clone();
            self.run_child(&file, &text, Some(Vec::new()), false);
        }
    }

    /// `ssh HOST COMMAND`: the variables of this shell stay here.
    pub(super) fn run_remote(&mut self, args: &[Arg], redirects: &[Redirect]) {
        let start = args.iter().position(|arg| base_name(&arg.text) == "ssh").map_or(1, |at| at + 1);
        let mut at = start;
        while let Some(arg) = args.get(at) {
            if !arg.text.starts_with('-') {
                break;
            }
            at += if ["-p", "-i", "-o", "-l", "-F", "-J", "-L", "-R", "-b", "-c"].contains(&arg.text.as_str())
            {
                2
            } else {
                1
            };
        }
        let command: Vec<&str> = args.iter().skip(at + 1).map(|arg| arg.text.as_str()).collect();
        let (command, file, line) = (command.join(" "), self.file.clone(), self.line);
        let mut child = State::new("bash".to_owned(), Some(Vec::new()), true);
        child.managers = self.state.managers;
        let outer = std::mem::replace(&mut self.state, child);
        if command.is_empty() || command.trim() == "bash -s" {
            let documents: Vec<Redirect> = redirects.to_vec();
            // An unquoted document is expanded here.
            self.state = outer.clone();
            self.run_document(&documents);
        } else {
            self.run_text(&file, &command);
        }
        self.state = outer;
        (self.line, self.status) = (line, None);
    }

    /// `nohup`, `numactl` and similar programs: the command begins at the first word that is a known program.
    pub(super) fn run_wrapped(&mut self, name: &str, args: &[Arg], redirects: &[Redirect]) {
        let mut args = args.to_vec();
        if name == "env" {
            for arg in args.iter().skip(1).take_while(|arg| !is_interpreter(base_name(&arg.text))) {
                if assignment(&arg.text).is_some() {
                    self.assign(&arg.text, true);
                } else if arg.text == "LD_PRELOAD" {
                    self.lint(Lint::PreloadOverwritten, "");
                }
            }
        }
        let clears = match name {
            "env" => {
                args.iter().any(|arg| matches!(arg.text.as_str(), "-i" | "-" | "-u" | "--ignore-environment"))
            }
            "sudo" | "su" | "runuser" => {
                !args.iter().any(|arg| matches!(arg.text.as_str(), "-E" | "-m" | "-p"))
            }
            _ => false,
        };
        if clears {
            self.forget_variables(name);
        }
        if name == "xargs" {
            let text = self.unknown("$(xargs)", false);
            args.push(Arg { text, open: true });
        }
        let args = &args;
        let is_command = |arg: &Arg| {
            let name = base_name(&arg.text);
            is_interpreter(name)
                || is_script_name(name)
                || matches!(name, "bash" | "sh" | "ssh" | "eval")
                || self.state.functions.contains_key(&arg.text)
        };
        match args
            .iter()
            .skip(1)
            .position(|arg| has_mark(base_name(&arg.text)) && arg.open || is_command(arg))
        {
            Some(at) => self.run_args(args[at + 1..].to_vec(), redirects),
            None => self.print_unknown(name, false),
        }
    }

    pub(super) fn count_managers(&mut self, args: &[Arg]) {
        let is_manager =
            |arg: &Arg| base_name(&arg.text) == "manager.py" || arg.text.contains("start_taskd_manager");
        if args.iter().any(is_manager) {
            self.state.managers += 1;
            if self.state.managers > 1 {
                self.lint(Lint::ManagerStartedTwice, "");
            }
        }
    }

    /// Keeps the text of a file that `cat`, `tee` or `echo` writes.
    pub(super) fn write_file(&mut self, args: &[Arg], redirects: &[Redirect]) {
        let name = args.first().map(|arg| arg.text.clone()).unwrap_or_default();
        let target = redirects.iter().find(|redirect| matches!(redirect.operator, ">" | ">>" | ">|"));
        let Some(target) = target else { return };
        let path = self.expand_text(&target.target.raw, false);
        let document = redirects.iter().find_map(|redirect| redirect.document.clone());
        let text = match (name.as_str(), document) {
            ("cat", Some(document)) if document.quoted => document.text,
            ("cat", Some(document)) => self.expand_text(&document.text, true),
            ("echo", None) => {
                args[1..].iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ") + "\n"
            }
            _ => return,
        };
        match self.written.iter_mut().find(|(name, _)| *name == path) {
            Some((_, old)) if target.operator == ">>" => old.push_str(&text),
            Some((_, old)) => *old = text,
            None if is_script_name(base_name(&path)) => self.written.push((path, text)),
            None => {}
        }
    }
}

//! Calls of other scripts and shells.

use std::rc::Rc;

use super::run::Interpreter;
use super::state::{End, State, Value};
use super::tree::{Redirect, assignment};
use crate::Source;
use crate::lint::Lint;
use crate::marks::{Arg, clean, has_mark};
use crate::program::{base_name, is_interpreter, lists};

/// Folders and files of CANN, conda and the distribution, which set paths only.
const ENVIRONMENT_SCRIPTS: &[&str] =
    &["/usr/local/Ascend/", "/etc/profile", "/etc/bash", "/opt/conda/", "/opt/miniconda", "/opt/anaconda"];

const ENVIRONMENT_SCRIPT_NAMES: &str = "activate conda.sh .bashrc .bash_profile .profile";
/// CANN's, below a folder with one of [`ENVIRONMENT_FOLDERS`] in its path. A file of this name elsewhere may set anything.
const CANN_SCRIPT_NAMES: &str = "set_env.sh set_env.bash setenv.bash setenv.sh";
const ENVIRONMENT_FOLDERS: &[&str] = &["ascend", "cann", "nnal", "/atb"];

/// Options with a value, of ssh and of programs that run a command on many machines.
const SSH_OPTIONS: &str = "-p -i -o -l -F -J -L -R -D -E -S -W -b -c -m";
const PARALLEL_OPTIONS: &str = "-w -g -f -t -u -x -l -p -H -h -O -o -e --hosts --hostfile --nodes";

pub(super) fn is_script_name(name: &str) -> bool {
    [".sh", ".bash", ".ksh"].iter().any(|ending| name.ends_with(ending))
}

impl Interpreter<'_> {
    /// `. FILE`: it can change every variable.
    pub(super) fn source(&mut self, args: &[Arg]) {
        let Some(path) = args.first().map(|arg| arg.text.clone()) else { return };
        if let Some((name, text)) = self.find(&path) {
            let text = text.to_string();
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
                || lists(ENVIRONMENT_SCRIPT_NAMES, base_name(&path))
                || lists(CANN_SCRIPT_NAMES, base_name(&path))
                    && ENVIRONMENT_FOLDERS.iter().any(|folder| shown.to_ascii_lowercase().contains(folder)))
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

    /// What a user who gave files has to know of one that is missing: how they are found.
    pub(crate) fn missing_message(&self, script: &str) -> String {
        let shown = |paths: &[&str]| match paths {
            [first, second, third, _, ..] => format!("{first}, {second}, {third} and others"),
            paths => paths.join(", "),
        };
        let paths = self.sources.iter().map(|source| source.path);
        let same: Vec<&str> = paths.filter(|path| base_name(path) == base_name(script)).collect();
        if same.len() > 1 {
            return format!(
                "{script} isn't read, because several files of the input have its name: {}; give only that file, or in a folder with \
                 the same path",
                shown(&same)
            );
        }
        let is_script =
            |source: &&Source<'_>| is_script_name(base_name(source.path)) || source.text.starts_with("#!");
        let unused = self.sources.iter().filter(is_script).map(|source| source.path);
        let unused: Vec<&str> = unused.filter(|path| !self.ran.contains(*path)).collect();
        let uncalled = match unused.as_slice() {
            [] => String::new(),
            paths => {
                format!("; files are found by their path or name, and no command calls {}", shown(paths))
            }
        };
        format!("{script} isn't in the input: give that file too{uncalled}")
    }

    /// A file that an earlier command wrote, or one of the input: by its path, or by its name if only one has it.
    pub(super) fn find(&self, path: &str) -> Option<(String, Rc<str>)> {
        let wanted = path.trim_start_matches("./");
        let is_same = |written: &str| {
            let written = written.trim_start_matches("./");
            written == wanted
                || written.ends_with(&format!("/{wanted}"))
                || wanted.ends_with(&format!("/{written}"))
        };
        let mut written = self.state.written.iter().filter(|(written, _)| is_same(written));
        if let Some((name, text)) = written.next() {
            // Of several files the path decides.
            let text = match self.state.written.get(path) {
                Some(text) => text,
                None if written.next().is_none() => text,
                None => return None,
            };
            return Some((name.clone(), Rc::clone(text.as_ref()?)));
        }
        let exact = self.sources.iter().find(|source| source.path == path);
        let mut same_end = self.sources.iter().filter(|source| {
            let have = source.path.trim_start_matches("./");
            have.ends_with(&format!("/{wanted}")) || wanted.ends_with(&format!("/{have}")) || have == wanted
        });
        let mut same_name = self.sources.iter().filter(|source| base_name(source.path) == base_name(wanted));
        let only = |mut found: Box<dyn Iterator<Item = &Source<'_>> + '_>| {
            let first = found.next();
            first
                .filter(|_| found.next().is_none())
                .map(|source| (source.path.to_owned(), Rc::from(clean(source.text))))
        };
        let exact = exact.map(|source| (source.path.to_owned(), Rc::from(clean(source.text))));
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
                let mut child = self.state.of_child(String::new(), None);
                child.arguments = Some(args.iter().skip(at + 2).cloned().collect());
                child.has_pipefail = pipefail;
                child.script = args.get(at + 1).map_or_else(|| "bash".to_owned(), |name| name.text.clone());
                return self.in_child(child, |shell| shell.run_text(&file, &script.text));
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

    /// Runs what a shell reads from its standard input.
    fn run_document(&mut self, redirects: &[Redirect]) {
        if let Some((text, name)) = self.document(redirects) {
            self.run_child(&name, &text, Some(Vec::new()), false);
        }
    }

    /// The text that a command reads from its standard input, and the file that it is in.
    fn document(&mut self, redirects: &[Redirect]) -> Option<(String, String)> {
        for redirect in redirects {
            let text = match (&redirect.document, redirect.operator) {
                (Some(document), _) if document.quoted => document.text.clone(),
                (Some(document), _) => self.expand_text(&document.text.clone(), true),
                (None, "<<<") => self.expand_text(&redirect.target.raw, false),
                (None, "<") => {
                    let path = self.expand_text(&redirect.target.raw, false);
                    let Some((name, text)) = self.find(&path) else {
                        let shown = self.marks.display(&path);
                        self.miss(&shown);
                        return None;
                    };
                    return Some((text.to_string(), name));
                }
                _ => continue,
            };
            return Some((text, self.file.clone()));
        }
        None
    }

    /// `ssh HOST COMMAND`: the variables of this shell stay here.
    pub(super) fn run_remote(&mut self, args: &[Arg], redirects: &[Redirect]) {
        let is_ssh = |arg: &Arg| base_name(&arg.text) == "ssh";
        let start = args.iter().position(is_ssh).map_or(1, |at| at + 1);
        // ssh has the host as a word; the others have it behind an option.
        let hosts = usize::from(
            args.iter().any(is_ssh) || args.first().is_some_and(|arg| base_name(&arg.text) == "rsh"),
        );
        let mut at = start;
        while let Some(arg) = args.get(at) {
            if !arg.text.starts_with('-') {
                break;
            }
            let has_value = lists(if hosts == 1 { SSH_OPTIONS } else { PARALLEL_OPTIONS }, &arg.text);
            at += if has_value { 2 } else { 1 };
        }
        let command: Vec<&str> = args.iter().skip(at + hosts).map(|arg| arg.text.as_str()).collect();
        let (command, file) = (command.join(" "), self.file.clone());
        // The variables of this shell stay here.
        let mut child = State::new("bash".to_owned(), Some(Vec::new()), true);
        child.managers = self.state.managers;
        if command.is_empty() || command.trim().starts_with("bash -s") {
            // An unquoted document is expanded here.
            if let Some((text, name)) = self.document(redirects) {
                self.in_child(child, |shell| shell.run_text(&name, &text));
            }
        } else {
            self.in_child(child, |shell| shell.run_text(&file, &command));
        }
        self.status = None;
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
            Some(at) => {
                self.run_args(args[at + 1..].to_vec(), redirects);
                if name == "exec" {
                    self.state.end = Some(End::Exit);
                }
            }
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

    /// Keeps the text of a file that `cat`, `tee` or `echo` writes; what others write isn't known.
    pub(super) fn write_file(&mut self, args: &[Arg], redirects: &[Redirect]) {
        let name = args.first().map(|arg| arg.text.clone()).unwrap_or_default();
        let target = redirects.iter().find(|redirect| matches!(redirect.operator, ">" | ">>" | ">|"));
        let (path, appends) = match target {
            _ if name == "tee" => {
                let mut files = args[1..].iter().filter(|arg| !arg.text.starts_with('-'));
                let Some(file) = files.next().map(|arg| arg.text.clone()) else { return };
                (file, args.iter().any(|arg| matches!(arg.text.as_str(), "-a" | "--append")))
            }
            Some(target) => (self.expand_text(&target.target.raw, false), target.operator == ">>"),
            None => return,
        };
        let is_source = self.sources.iter().any(|source| base_name(source.path) == base_name(&path));
        let is_known = self.state.written.contains_key(&path);
        if !is_source && !is_known && !is_script_name(base_name(&path)) {
            return;
        }
        let document = redirects.iter().find_map(|redirect| redirect.document.clone());
        let text = match (name.as_str(), document) {
            ("cat" | "tee", Some(document)) if document.quoted => Some(document.text),
            ("cat" | "tee", Some(document)) => Some(self.expand_text(&document.text, true)),
            ("echo", None) => {
                Some(args[1..].iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ") + "\n")
            }
            _ => None,
        };
        let old = match self.state.written.get(&path) {
            Some(old) => old.clone(),
            None => self.find(&path).map(|(_, text)| text),
        };
        let text = match (text, old) {
            (Some(text), Some(old)) if appends => Some(format!("{old}{text}")),
            (Some(_), None) if appends && is_known => None,
            (text, _) => text,
        };
        self.spend(text.as_ref().map_or(0, String::len));
        self.state.written.insert(path, text.map(Rc::from));
    }

    /// Files of the input that a command changes aren't known any more.
    pub(super) fn note_changed_files(&mut self, name: &str, args: &[Arg]) {
        let targets = match name {
            "sed" | "perl"
                if args.iter().any(|arg| arg.text.starts_with("-i") || arg.text.starts_with("-pi")) =>
            {
                args
            }
            "patch" | "truncate" | "dd" | "envsubst" | "wget" | "curl" => args,
            "cp" | "mv" | "ln" | "install" | "rsync" => &args[args.len().saturating_sub(1)..],
            _ => return,
        };
        for target in targets {
            let is_source =
                self.sources.iter().any(|source| base_name(source.path) == base_name(&target.text));
            if is_source || self.state.written.contains_key(&target.text) {
                self.state.written.insert(target.text.clone(), None);
            }
        }
    }
}

//! Simple commands: assignments, builtins, other scripts, and programs that start others.

use super::calls::is_script_name;
use super::condition::decide;
use super::lexer::{Word, is_name};
use super::run::{Interpreter, has_output_file};
use super::state::{End, Value};
use super::tree::Redirect;
use crate::lint::Lint;
use crate::marks::{Arg, has_mark};
use crate::program::{base_name, is_interpreter, lists};

/// Programs that run the command behind their own options.
const WRAPPERS: &str = "builtin catchsegv chroot command docker dumb-init env exec gdb gosu ionice kubectl ltrace mpiexec mpirun \
    msprof nice nohup nsys numactl orterun pdsh runuser script setsid srun stdbuf strace su sudo taskset \
    tini time timeout unbuffer watch xargs";
/// Programs that print one word.
const PRINT_ONE_WORD: &str = "arch date expr hostname mktemp nproc pwd readlink realpath uname wc whoami";

impl Interpreter<'_> {
    pub(super) fn run_simple(&mut self, assignments: &[Word], words: &[Word], redirects: &[Redirect]) {
        self.lint_blanks(words);
        for word in assignments {
            self.assign(&word.raw, !words.is_empty());
        }
        let Some(first) = words.first() else {
            self.status = Some(true);
            return;
        };
        if matches!(first.raw.as_str(), "export" | "declare" | "typeset" | "local" | "readonly") {
            return self.declare(&first.raw, &words[1..]);
        }
        let args = self.expand_words(words);
        let document = redirects.iter().find_map(|redirect| redirect.document.as_ref());
        if let (Some(document), Some(_), [Arg { text, .. }]) = (document, &self.output, args.as_slice())
            && text == "cat"
            && !has_output_file(redirects)
        {
            let text =
                if document.quoted { document.text.clone() } else { self.expand_text(&document.text, true) };
            self.output.get_or_insert_default().push_str(&text);
            return;
        }
        if has_output_file(redirects) {
            self.write_file(&args, redirects);
            let outer = self.output.take();
            self.run_args(args, redirects);
            self.output = outer;
        } else {
            self.run_args(args, redirects);
        }
    }

    /// Runs a command whose words are expanded.
    pub(super) fn run_args(&mut self, mut args: Vec<Arg>, redirects: &[Redirect]) {
        self.status = None;
        let Some(first) = args.first() else { return };
        if has_mark(&first.text) {
            return self.run_unknown_command(args, redirects);
        }
        let name = base_name(&first.text).to_owned();
        if first.text.starts_with("--") {
            self.lint(Lint::FlagAsCommand, first.text.clone());
            return;
        }
        if let Some(body) = self.state.functions.get(&first.text).cloned() {
            args.remove(0);
            return self.call_function(&body, args);
        }
        let builtin = self.run_builtin(&name, &args);
        if builtin {
            return;
        }
        if matches!(name.as_str(), "bash" | "sh" | "dash" | "ksh" | "zsh" | "ash") {
            return self.run_shell(&args, redirects);
        }
        if matches!(name.as_str(), "ssh" | "sshpass") {
            return self.run_remote(&args, redirects);
        }
        if lists(WRAPPERS, name.as_str()) {
            return self.run_wrapped(&name, &args, redirects);
        }
        if is_script_name(&name) {
            return self.call_script(&args[0].text.clone(), args[1..].to_vec(), false);
        }
        if is_interpreter(&name) {
            self.count_managers(&args);
            self.start(args);
        }
        self.print_unknown(&name, lists(PRINT_ONE_WORD, name.as_str()));
    }

    /// A command that comes from a variable whose value isn't known.
    fn run_unknown_command(&mut self, args: Vec<Arg>, redirects: &[Redirect]) {
        let combinations = self.marks.resolve(args.clone(), 8).unwrap_or_default();
        let is_decided = |args: &Vec<Arg>| args.first().is_none_or(|first| !has_mark(&first.text));
        if !combinations.is_empty() && combinations.iter().all(is_decided) {
            let before = self.state.clone();
            let mut ends = Vec::new();
            for args in combinations {
                self.run_args(args, redirects);
                ends.push(std::mem::replace(&mut self.state, before.clone()));
            }
            // They differ in what they start at most.
            if let Some(end) = ends.pop() {
                self.state = end;
            }
            self.status = None;
            return;
        }
        let path = args.first().map(|first| first.text.clone()).unwrap_or_default();
        let name = base_name(&path);
        if has_mark(name) {
            self.start(args);
        } else if is_script_name(name) {
            self.call_script(&path, args[1..].to_vec(), false);
        } else if is_interpreter(name) {
            self.count_managers(&args);
            self.start(args);
        }
        self.print_unknown("…", false);
    }

    /// Whether `name` is a builtin, which has been run then.
    fn run_builtin(&mut self, name: &str, args: &[Arg]) -> bool {
        let text = |at: usize| args.get(at).map(|arg| arg.text.as_str());
        self.status = Some(true);
        match name {
            "true" | ":" | "wait" | "sleep" | "trap" | "ulimit" | "umask" | "hash" | "alias" => {}
            "false" => self.status = Some(false),
            "exit" => self.state.end = Some(End::Exit),
            "return" => self.state.end = Some(End::Return),
            "break" => self.state.end = Some(End::Iteration { breaks: true }),
            "continue" => self.state.end = Some(End::Iteration { breaks: false }),
            "cd" | "pushd" => {
                let folder = text(1).unwrap_or_default();
                if folder.starts_with('/') {
                    self.state.folder.clear();
                }
                self.state.folder = format!("{}/{folder}", self.state.folder);
                self.state.folder.truncate(self.state.folder.floor_char_boundary(4096));
            }
            "[" | "test" => {
                let end = if name == "[" { args.len().saturating_sub(1).max(1) } else { args.len() };
                self.status = decide(&args[1..end], false);
            }
            "set" => self.set_options(&args[1..]),
            "shift" => {
                let count = text(1).map_or(Some(1), |count| count.parse::<usize>().ok());
                let all = self.state.arguments.take();
                self.state.arguments = all.zip(count).and_then(|(mut all, count)| {
                    let is_known = all.iter().take(count).all(|arg| !arg.open);
                    all.drain(..count.min(all.len()));
                    is_known.then_some(all)
                });
            }
            "unset" => {
                for arg in &args[1..] {
                    if arg.text == "LD_PRELOAD" {
                        self.lint(Lint::PreloadOverwritten, "");
                    }
                    self.state.set(&arg.text, None);
                }
            }
            "read" | "getopts" | "mapfile" | "readarray" => {
                for arg in args[1..].iter().filter(|arg| is_name(&arg.text)) {
                    let value = self.unknown(&format!("${} ({name})", arg.text), false);
                    self.state.set(&arg.text, Some(Value::Text(value)));
                }
                if name == "getopts" {
                    let value = self.unknown("$OPTARG", false);
                    self.state.set("OPTARG", Some(Value::Text(value)));
                }
                self.status = None;
            }
            "let" => {
                for arg in &args[1..] {
                    let end = arg.text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    let name = arg.text[..end.unwrap_or(arg.text.len())].to_owned();
                    let value = self.unknown(&arg.text, true);
                    self.state.set(&name, Some(Value::Text(value)));
                }
                self.status = None;
            }
            "[[" => self.status = None,
            "eval" => {
                let script: Vec<&str> = args[1..].iter().map(|arg| arg.text.as_str()).collect();
                let (script, file, line) = (script.join(" "), self.file.clone(), self.line);
                if args[1..].iter().any(|arg| arg.open) {
                    self.give_up(&format!("{}line {line}: what eval runs isn't known", self.place()));
                }
                self.run_text(&file, &script);
                if script.chars().any(|c| self.marks.may_split(c)) {
                    self.forget_variables("eval");
                }
                self.line = line;
            }
            "source" | "." => self.source(&args[1..]),
            "echo" | "printf" | "basename" | "dirname" | "seq" => self.print(name, &args[1..]),
            _ => return false,
        }
        true
    }

    fn set_options(&mut self, args: &[Arg]) {
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let sets = arg.text.starts_with('-');
            if arg.text == "--" {
                self.state.arguments = Some(args[at + 1..].to_vec());
                return;
            }
            if !sets && !arg.text.starts_with('+') {
                return;
            }
            if arg.text[1..].contains('a') {
                self.state.exports_all = sets;
            }
            if arg.text[1..].contains('o') {
                at += 1;
                if args.get(at).is_some_and(|option| option.text == "pipefail") {
                    self.state.has_pipefail = sets;
                }
            }
            at += 1;
        }
    }

    /// Commands whose output scripts use.
    fn print(&mut self, name: &str, args: &[Arg]) {
        if name == "printf" && args.first().is_some_and(|arg| arg.text == "-v") {
            let variable = args.get(1).map(|arg| arg.text.clone()).unwrap_or_default();
            let value = self.unknown(&format!("${variable}"), false);
            return self.state.set(&variable, Some(Value::Text(value)));
        }
        if self.output.is_none() {
            return;
        }
        let words: Vec<&str> = args
            .iter()
            .map(|arg| arg.text.as_str())
            .filter(|text| !matches!(*text, "-n" | "-e" | "-w"))
            .collect();
        let is_known = args.iter().all(|arg| arg.known().is_some());
        let text = match (name, words.as_slice()) {
            ("echo", _) => words.join(" ") + "\n",
            ("printf", [format]) if !format.contains(['%', '\\']) => (*format).to_owned(),
            ("printf", ["%s" | "%s\\n", text]) => (*text).to_owned(),
            ("basename", [path]) if is_known => base_name(path).to_owned(),
            ("basename", [path, suffix]) if is_known => base_name(path).trim_end_matches(suffix).to_owned(),
            ("dirname", [path]) if is_known => {
                path.rsplit_once('/').map_or(".", |(folder, _)| folder).to_owned()
            }
            ("seq", [last]) if is_known => sequence("1", last),
            ("seq", [first, last]) if is_known => sequence(first, last),
            _ => return self.print_unknown(name, matches!(name, "basename" | "dirname")),
        };
        self.output.get_or_insert_default().push_str(&text);
    }
}

fn sequence(first: &str, last: &str) -> String {
    match (first.parse::<i64>(), last.parse::<i64>()) {
        (Ok(first), Ok(last)) if last.saturating_sub(first) <= 1024 => {
            (first..=last).map(|number| number.to_string()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

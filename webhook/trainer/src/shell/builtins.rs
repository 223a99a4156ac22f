//! Simple commands: assignments, builtins, other scripts, and programs that start others.

use super::calls::is_script_name;
use super::condition::decide;
use super::lexer::{Word, is_name};
use super::run::{Interpreter, has_output_file};
use super::state::{End, Value, Variable};
use super::tree::{Redirect, assignment};
use crate::launch::is_program;
use crate::lint::Lint;
use crate::marks::{Arg, has_mark};
use crate::program::{base_name, is_interpreter, lists};

/// Programs that run the command behind their own options.
const WRAPPERS: &str = "apptainer builtin catchsegv cgexec chroot chrt command conda docker dumb-init env exec firejail flock gdb gosu \
    ionice kubectl ltrace mamba micromamba mpiexec mpirun msprof nerdctl nice nohup nsenter nsys numactl orterun pipenv \
    podman poetry proxychains proxychains4 runuser script setpriv setsid sg singularity srun stdbuf strace su sudo \
    systemd-run taskset tini time timeout unbuffer unshare uv watch xargs xvfb-run";
/// Of these, the ones that have a command as the text behind `-c`.
const WITH_TEXT: &str = "flock runuser script sg su";
/// Programs that run a command on other machines.
const REMOTE: &str = "clush dsh parallel-ssh pdsh pssh rsh ssh sshpass";
/// Programs that print one word.
const PRINT_ONE_WORD: &str = "arch date expr hostname mktemp nproc pwd readlink realpath uname wc whoami";

impl Interpreter<'_> {
    pub(super) fn run_simple(&mut self, assignments: &[Word], words: &[Word], redirects: &[Redirect]) {
        self.lint_blanks(words);
        if let Some(last) = words.last()
            && last.raw.strip_prefix('\\').is_some_and(|rest| rest.trim().is_empty() && !rest.is_empty())
            && words.iter().any(|word| is_interpreter(base_name(&word.raw)))
        {
            self.lint_backslash(last.line);
        }
        let Some(first) = words.first() else {
            for word in assignments {
                self.assign(&word.raw, false);
            }
            self.status = Some(true);
            return;
        };
        if matches!(first.raw.as_str(), "export" | "declare" | "typeset" | "local" | "readonly") {
            return self.declare(&first.raw, &words[1..]);
        }
        // The words have the values from before the assignments, which only the command sees.
        let args = self.expand_words(words);
        let names: Vec<&str> = assignments.iter().filter_map(|word| Some(assignment(&word.raw)?.0)).collect();
        let outer: Vec<Option<Variable>> =
            names.iter().map(|name| self.state.variables.get(*name).cloned()).collect();
        for word in assignments {
            self.assign(&word.raw, !args.is_empty());
        }
        let is_lasting = args.is_empty();
        let is_function = args.first().is_some_and(|first| self.state.functions.contains_key(&first.text));
        self.run_expanded(args, redirects);
        if !is_lasting {
            for (name, value) in names.into_iter().zip(outer) {
                if is_function {
                    // The function may have made it lasting by `export`.
                    let value = self.unknown(&format!("${name}"), false);
                    self.state.set(name, Some(Value::Text(value)));
                    continue;
                }
                match value {
                    Some(value) => self.state.variables.insert(name.to_owned(), value),
                    None => self.state.variables.remove(name),
                };
            }
        }
    }

    fn run_expanded(&mut self, args: Vec<Arg>, redirects: &[Redirect]) {
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
        let is_tee = args.first().is_some_and(|first| first.text == "tee");
        if is_tee || has_output_file(redirects) {
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
            if !self.lint_backslash(self.line.saturating_sub(1)) {
                self.lint(Lint::FlagAsCommand, first.text.clone());
            }
            return;
        }
        if let Some(bodies) = self.state.functions.get(&first.text).cloned() {
            args.remove(0);
            return self.call_functions(&bodies, &args);
        }
        let builtin = self.run_builtin(&name, &args, redirects);
        if builtin {
            return;
        }
        if matches!(name.as_str(), "bash" | "sh" | "dash" | "ksh" | "zsh" | "ash") {
            return self.run_shell(&args, redirects);
        }
        if lists(REMOTE, name.as_str()) {
            return self.run_remote(&args, redirects);
        }
        if lists(WITH_TEXT, name.as_str())
            && let Some(at) = args.iter().position(|arg| matches!(arg.text.as_str(), "-c" | "--command"))
            && let Some(script) = args.get(at + 1).map(|arg| arg.text.clone())
        {
            let child = self.state.of_child("bash".to_owned(), Some(Vec::new()));
            let file = self.file.clone();
            return self.in_child(child, |shell| shell.run_text(&file, &script));
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
        } else if starts_training(&args) {
            // A program that isn't known, with a training behind it.
            self.start(args);
        } else {
            self.note_changed_files(&name, &args);
        }
        self.print_unknown(&name, lists(PRINT_ONE_WORD, name.as_str()));
    }

    /// A command that comes from a variable whose value isn't known.
    fn run_unknown_command(&mut self, args: Vec<Arg>, redirects: &[Redirect]) {
        let combinations = self.marks.resolve(args.clone(), 8).unwrap_or_default();
        let is_decided = |args: &Vec<Arg>| args.first().is_none_or(|first| !has_mark(&first.text));
        if !combinations.is_empty() && combinations.iter().all(is_decided) {
            let printed = self.printed();
            let mut ends = Vec::new();
            for args in combinations {
                let before = self.snapshot();
                self.run_args(args, redirects);
                ends.push(std::mem::replace(&mut self.state, before));
            }
            if let Some(end) = ends.pop() {
                self.state = end;
            }
            if !ends.is_empty() {
                self.doubt_output(printed);
            }
            self.join(ends);
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
    fn run_builtin(&mut self, name: &str, args: &[Arg], redirects: &[Redirect]) -> bool {
        let text = |at: usize| args.get(at).map(|arg| arg.text.as_str());
        self.status = Some(true);
        match name {
            "true" | ":" | "wait" | "sleep" | "trap" | "ulimit" | "umask" | "hash" | "alias" => {}
            "false" => self.status = Some(false),
            "exit" => self.state.end = Some(End::Exit),
            "return" if self.returns == 0 => {}
            "return" => self.state.end = Some(End::Return),
            "break" | "continue" if self.loops == 0 => {}
            "break" | "continue" => {
                if text(1).is_some_and(|count| count != "1") {
                    self.give_up(&format!(
                        "{}line {}: {name} of several loops isn't read",
                        self.place(),
                        self.line
                    ));
                }
                self.state.end = Some(End::Iteration { breaks: name == "break" });
            }
            "cd" | "pushd" => self.change_folder(text(1).unwrap_or("~")),
            "popd" => self.state.folder.clear(),
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
                for arg in args[1..].iter().filter(|arg| !arg.text.starts_with('-')) {
                    if arg.text == "LD_PRELOAD" {
                        self.lint(Lint::PreloadOverwritten, "");
                    }
                    match arg.text.split_once('[') {
                        // An element of an array.
                        Some((name, _)) => {
                            let value = self.unknown(&format!("${{{name}[@]}}"), false);
                            self.state.set(name, Some(Value::Text(value)));
                        }
                        None if has_mark(&arg.text) => self.forget_variables("unset"),
                        None => {
                            self.state.set(&arg.text, None);
                            self.state.functions.remove(&arg.text);
                        }
                    }
                }
            }
            "read" if self.read_document(&args[1..], redirects) => {}
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
            "echo" | "printf" | "basename" | "dirname" | "seq" | "cat" => {
                self.note_changed_files(name, args);
                self.print(name, &args[1..]);
            }
            _ => return false,
        }
        true
    }

    fn change_folder(&mut self, folder: &str) {
        if folder.starts_with(['/', '~', '-']) || folder.is_empty() {
            self.state.folder.clear();
        }
        for part in folder.trim_start_matches(['~', '-']).split('/') {
            let own = self.state.folder.rsplit('/').next().unwrap_or_default();
            match part {
                "" | "." => {}
                ".." if !own.is_empty() && own != ".." && !has_mark(own) => {
                    let end = self.state.folder.len() - own.len();
                    self.state.folder.truncate(end.saturating_sub(1));
                }
                part => self.state.folder = format!("{}/{part}", self.state.folder),
            }
        }
        self.state.folder.truncate(self.state.folder.floor_char_boundary(4096));
    }

    /// `read -d '' NAME` of a here-document sets all of its text; whether it was such a command.
    fn read_document(&mut self, args: &[Arg], redirects: &[Redirect]) -> bool {
        let reads_all = args
            .windows(2)
            .any(|two| two[0].text.ends_with('d') && two[0].text.starts_with('-') && two[1].text.is_empty());
        let document = redirects.iter().find_map(|redirect| redirect.document.as_ref());
        let (Some(document), Some(name)) = (document.filter(|_| reads_all), args.last()) else {
            return false;
        };
        let text =
            if document.quoted { document.text.clone() } else { self.expand_text(&document.text, true) };
        // Only with the usual separators its ends are trimmed.
        let has_separators = self.state.variables.contains_key("IFS");
        let value = if has_separators { self.unknown("$(read)", false) } else { text.trim().to_owned() };
        self.state.set(&name.text, Some(Value::Text(value)));
        self.status = None;
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
        if name == "cat" {
            let found = if let [path] = words.as_slice() { self.find(path) } else { None };
            let Some((_, text)) = found else { return self.print_unknown(name, false) };
            return self.output.get_or_insert_default().push_str(&text);
        }
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

/// Whether the words behind the first are a launcher with a program.
fn starts_training(args: &[Arg]) -> bool {
    let mut behind = args.iter().skip(1).skip_while(|arg| !is_interpreter(base_name(&arg.text)));
    behind.next().is_some() && behind.any(is_program)
}

fn sequence(first: &str, last: &str) -> String {
    match (first.parse::<i64>(), last.parse::<i64>()) {
        (Ok(first), Ok(last)) if last.saturating_sub(first) <= 1024 => {
            (first..=last).map(|number| number.to_string()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

//! Walks the commands of a script.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::condition::decide;
use super::merge::merge;
use super::parser::parse;
use super::state::{End, State, Value, Variable};
use super::tree::{AndOr, Command, Kind, List, Pipeline, Redirect};
use crate::Source;
use crate::lint::{Lint, ScriptFinding};
use crate::marks::{Arg, Marks, clean};

/// Limits for scripts that would take long: commands and bytes of text, calls within calls, rounds of a loop.
const BUDGET: usize = 1 << 19;
const COMMAND_COST: usize = 64;
pub(super) const MAX_DEPTH: usize = 16;
const MAX_STARTED: usize = 64;

/// A program that a script starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) args: Vec<Arg>,
    /// The file, if it isn't the command itself.
    pub(crate) file: String,
    pub(crate) line: usize,
    /// The working directory, as far as `cd` shows it.
    pub(crate) folder: String,
    /// Values of the variables in [`ENVIRONMENT`]; `None` if unset or not exported.
    pub(crate) environment: Vec<(&'static str, Option<String>)>,
    /// Options whose value is an expansion that became nothing, with that expansion.
    pub(crate) empty_values: Vec<(String, String)>,
}

/// The variables of a training program that decide whether it can save.
pub(crate) const ENVIRONMENT: &[&str] =
    &["HIGH_AVAILABILITY", "MINDIO_AUTO_PATCH_MEGATRON", "MS_ENABLE_TFT", "WORLD_SIZE"];

/// What calls a script.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call<'a> {
    /// Variables of the environment; `None` for a value that isn't known.
    pub(crate) variables: &'a [(&'a str, Option<&'a str>)],
    /// Whether other variables may be set.
    pub(crate) has_unknown_variables: bool,
    /// `None` if they aren't known.
    pub(crate) arguments: Option<Vec<Arg>>,
}

pub(crate) struct Interpreter<'a> {
    pub(crate) marks: Marks,
    pub(crate) started: Vec<Started>,
    pub(crate) lints: Vec<ScriptFinding>,
    /// Scripts that are called and can't be read.
    pub(crate) missing: Vec<String>,
    /// The files that were run.
    pub(super) ran: BTreeSet<String>,
    /// Variables that were taken as unset.
    pub(crate) assumed_unset: Vec<String>,
    /// What couldn't be read, with its place.
    pub(crate) unread: Vec<String>,
    /// Options whose value became nothing, of which each [`Started`] has a copy.
    pub(super) empty_values: Vec<(String, String)>,
    /// What was expanded last, if it is an option.
    pub(super) last_option: String,
    pub(super) sources: &'a [Source<'a>],
    pub(super) state: State,
    /// Variables that running functions made local, with their values outside.
    pub(super) locals: Vec<Vec<(String, Option<Variable>)>>,
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) status: Option<bool>,
    /// What commands of a substitution print.
    pub(super) output: Option<String>,
    /// Whether a branch that may run ended the shell.
    pub(super) may_exit: bool,
    /// Where the exit status of what runs now is lost in a pipe.
    pub(super) lost_status: Option<(String, usize)>,
    uses_pipestatus: bool,
    /// Lines of the script that end in a backslash followed by a blank.
    broken_lines: Vec<usize>,
    /// States of branches that ended a function or a round of a loop early.
    pub(super) parked: Vec<State>,
    /// More than 0 while a round of a loop shows what it changes.
    pub(super) quiet: usize,
    /// Loops of the running function or shell that a `break` may leave.
    pub(super) loops: usize,
    /// Functions and sourced files that a `return` may leave.
    pub(super) returns: usize,
    pub(super) depth: usize,
    budget: usize,
}

impl<'a> Interpreter<'a> {
    pub(crate) fn new(sources: &'a [Source<'a>], call: &Call<'_>) -> Self {
        let mut interpreter = Self {
            marks: Marks::default(),
            started: Vec::new(),
            lints: Vec::new(),
            missing: Vec::new(),
            ran: BTreeSet::new(),
            assumed_unset: Vec::new(),
            unread: Vec::new(),
            empty_values: Vec::new(),
            last_option: String::new(),
            sources,
            state: State::new(String::new(), call.arguments.clone(), call.has_unknown_variables),
            locals: Vec::new(),
            file: String::new(),
            line: 0,
            status: None,
            output: None,
            may_exit: false,
            lost_status: None,
            uses_pipestatus: false,
            broken_lines: Vec::new(),
            parked: Vec::new(),
            quiet: 0,
            loops: 0,
            returns: 0,
            depth: 0,
            budget: BUDGET,
        };
        for (name, value) in call.variables {
            let text = match value {
                Some(value) => clean(value).into_owned(),
                None => interpreter.unknown(&format!("${name}"), false),
            };
            interpreter.state.set(name, Some(Value::Text(text)));
            interpreter.state.export(name);
        }
        interpreter
    }

    /// Runs the text of a script.
    pub(crate) fn run_text(&mut self, file: &str, text: &str) {
        if self.depth == MAX_DEPTH {
            self.give_up("calls within calls are too deep");
            return;
        }
        self.depth += 1;
        self.ran.insert(file.to_owned());
        let unix = text.replace("\r\n", "\n");
        if unix.len() != text.len() {
            self.give_up(&format!("{file} has Windows line ends, which shells read as parts of words"));
        }
        let text = unix.as_str();
        let script = parse(text);
        let outer = (std::mem::replace(&mut self.file, file.to_owned()), self.line, self.uses_pipestatus);
        self.uses_pipestatus = text.contains("PIPESTATUS");
        let lines = text.lines().zip(1..).filter(|(line, _)| is_broken(line)).map(|(_, number)| number);
        let outer_lines = std::mem::replace(&mut self.broken_lines, lines.collect());
        self.run_list(&script.commands);
        if let Some(line) = script.error
            && self.state.end != Some(End::Exit)
        {
            self.give_up(&format!("{}line {line} can't be read", self.place()));
        }
        (self.file, self.line, self.uses_pipestatus) = outer;
        self.broken_lines = outer_lines;
        self.depth -= 1;
    }

    /// Runs a command of which the words are known.
    pub(crate) fn run_command_line(&mut self, args: Vec<Arg>) {
        self.run_args(args, &[]);
    }

    /// Records a program that runs already.
    pub(crate) fn start_program(&mut self, args: Vec<Arg>, folder: &str) {
        self.state.folder = clean(folder).into_owned();
        self.start(args);
    }

    /// Calls a script with arguments in another shell.
    pub(super) fn run_child(&mut self, name: &str, text: &str, arguments: Option<Vec<Arg>>, pipefail: bool) {
        let mut child = self.state.of_child(name.to_owned(), arguments);
        child.has_pipefail = pipefail;
        self.in_child(child, |shell| shell.run_text(name, text));
    }

    /// Runs another shell, which starts in the state `child`.
    pub(super) fn in_child(&mut self, child: State, run: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.state, child);
        let (line, locals) = (self.line, std::mem::take(&mut self.locals));
        let parked = std::mem::take(&mut self.parked);
        let (loops, returns) = (std::mem::take(&mut self.loops), std::mem::take(&mut self.returns));
        run(self);
        (self.loops, self.returns) = (loops, returns);
        let inner = std::mem::replace(&mut self.state, outer.clone());
        self.state = outer.after(inner);
        (self.line, self.locals, self.parked, self.status) = (line, locals, parked, None);
    }

    /// A copy of the state, which costs as much as it is large.
    pub(super) fn snapshot(&mut self) -> State {
        self.spend(self.state.size() / 64);
        self.state.clone()
    }

    /// `file: ` of the script that runs.
    pub(super) fn place(&self) -> String {
        if self.file.is_empty() { String::new() } else { format!("{}: ", self.file) }
    }

    pub(super) fn give_up(&mut self, why: &str) {
        if self.quiet == 0 && !self.unread.iter().any(|other| other == why) {
            self.unread.push(why.to_owned());
        }
    }

    pub(super) fn spend(&mut self, cost: usize) {
        self.budget = self.budget.saturating_sub(cost);
        if self.budget == 0 {
            self.quiet = 0;
            self.give_up("the script is too long");
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.budget == 0
    }

    pub(super) fn assume_unset(&mut self, name: &str) {
        if !self.assumed_unset.iter().any(|other| other == name) {
            self.assumed_unset.push(name.to_owned());
        }
    }

    pub(super) fn lint(&mut self, lint: Lint, detail: impl Into<String>) {
        let finding = ScriptFinding { lint, file: self.file.clone(), line: self.line, detail: detail.into() };
        if self.quiet == 0 && self.lints.len() < MAX_STARTED && !self.lints.contains(&finding) {
            self.lints.push(finding);
        }
    }

    /// Reports `line` if it ends in a backslash followed by a blank; whether it does.
    pub(super) fn lint_backslash(&mut self, line: usize) -> bool {
        let is_broken = self.broken_lines.binary_search(&line).is_ok();
        if is_broken {
            let outer = std::mem::replace(&mut self.line, line);
            self.lint(Lint::BlankBehindBackslash, "");
            self.line = outer;
        }
        is_broken
    }

    /// Whether the present line has been reported.
    pub(super) fn has_lint(&self, lint: Lint, detail: &str) -> bool {
        self.lints.iter().any(|found| {
            found.lint == lint && found.line == self.line && found.file == self.file && found.detail == detail
        })
    }

    pub(super) fn start(&mut self, args: Vec<Arg>) {
        let environment = ENVIRONMENT.iter().map(|name| {
            let variable = self.state.variables.get(*name).filter(|variable| variable.is_exported);
            let text = variable.and_then(|variable| match variable.value.as_ref()? {
                Value::Text(text) => Some(text.clone()),
                Value::List(_) => None,
            });
            (*name, text)
        });
        let started = Started {
            args,
            file: self.file.clone(),
            line: self.line,
            folder: self.state.folder.clone(),
            environment: environment.collect(),
            empty_values: self.empty_values.clone(),
        };
        self.note_lost_status();
        if self.quiet > 0 || self.started.contains(&started) {
            return;
        }
        if self.started.len() == MAX_STARTED {
            self.give_up("the script starts too many programs");
        } else {
            self.started.push(started);
        }
    }

    /// Reports the pipe in which the exit status of the training is lost.
    pub(super) fn note_lost_status(&mut self) {
        if let Some((file, line)) = self.lost_status.take() {
            let outer = (std::mem::replace(&mut self.file, file), std::mem::replace(&mut self.line, line));
            self.lint(Lint::ExitStatusLost, "");
            (self.file, self.line) = outer;
        }
    }

    pub(super) fn run_list(&mut self, list: &List) {
        self.status = Some(true);
        for item in list {
            if self.state.end.is_some() || self.is_exhausted() {
                return;
            }
            self.run_item(item);
        }
    }

    fn run_item(&mut self, item: &AndOr) {
        if item.background {
            self.in_subshell(|shell| shell.run_chain(item));
            self.status = Some(true);
        } else {
            self.run_chain(item);
        }
    }

    fn run_chain(&mut self, item: &AndOr) {
        self.run_pipeline(&item.first);
        for (wanted, pipeline) in &item.rest {
            if self.state.end.is_some() {
                return;
            }
            match self.status {
                Some(status) if status != *wanted => {}
                Some(_) => self.run_pipeline(pipeline),
                None => {
                    let (before, printed) = (self.snapshot(), self.printed());
                    self.run_pipeline(pipeline);
                    self.doubt_output(printed);
                    self.join(vec![before]);
                    self.status = None;
                }
            }
        }
    }

    fn run_pipeline(&mut self, pipeline: &Pipeline) {
        if let [command] = pipeline.commands.as_slice() {
            self.run_command(command);
        } else {
            let outer = self.lost_status.clone();
            let (last, others) =
                pipeline.commands.split_last().map_or((None, &[][..]), |(l, o)| (Some(l), o));
            if last.is_some_and(is_tee) && !self.state.has_pipefail && !self.uses_pipestatus {
                self.lost_status = Some((self.file.clone(), last.map_or(self.line, |last| last.line)));
            }
            for command in others {
                let outer = self.output.take();
                self.output = outer.as_ref().map(|_| String::new());
                self.in_subshell(|shell| shell.run_command(command));
                self.output = outer;
            }
            self.lost_status = outer;
            if let Some(last) = last {
                self.in_subshell(|shell| shell.run_command(last));
            }
            self.status = None;
        }
        if pipeline.negated {
            self.status = self.status.map(|status| !status);
        }
    }

    pub(super) fn in_subshell(&mut self, run: impl FnOnce(&mut Self)) {
        let (outer, parked) = (self.snapshot(), std::mem::take(&mut self.parked));
        run(self);
        self.parked = parked;
        let inner = std::mem::replace(&mut self.state, outer.clone());
        self.state = outer.after(inner);
    }

    /// Joins the present state with the states of other branches.
    pub(super) fn join(&mut self, mut states: Vec<State>) {
        if states.is_empty() {
            return;
        }
        let present = self.snapshot();
        states.push(present);
        let (running, ended): (Vec<State>, Vec<State>) =
            states.into_iter().partition(|state| state.end.is_none());
        let exits = ended.iter().find(|state| state.end == Some(End::Exit)).cloned();
        self.may_exit |= exits.is_some();
        self.parked.extend(ended.into_iter().filter(|state| state.end != Some(End::Exit)));
        let origin = format!("{}line {}", self.place(), self.line);
        match merge(&mut self.marks, &origin, running) {
            Some(state) => self.state = state,
            // Every branch ended; which end comes first doesn't matter to what follows.
            None => {
                if let Some(state) = self.parked.pop().or(exits) {
                    self.state = state;
                }
            }
        }
    }

    fn run_command(&mut self, command: &Command) {
        self.spend(COMMAND_COST);
        if self.is_exhausted() {
            return;
        }
        self.line = command.line;
        match &command.kind {
            Kind::Simple { assignments, words } => self.run_simple(assignments, words, &command.redirects),
            Kind::Group(list) => self.run_list(list),
            Kind::Subshell(list) => self.in_subshell(|shell| shell.run_list(list)),
            Kind::If(arms, otherwise) => self.run_conditional(arms, otherwise),
            Kind::For { name, words, body } => {
                self.in_loop(|shell| shell.run_for(name, words.as_deref(), body));
            }
            Kind::While { wanted, condition, body } => {
                self.in_loop(|shell| shell.run_while(*wanted, condition, body));
            }
            Kind::Case(word, arms) => self.run_case(word, arms),
            Kind::Function(name, body) => {
                self.state.functions.insert(name.clone(), vec![Rc::clone(body)]);
                self.status = Some(true);
            }
            Kind::Test(words) => {
                let args: Vec<Arg> =
                    words.iter().map(|word| Arg::of(self.expand_text(&word.raw, false))).collect();
                self.status = decide(&args, true);
            }
            Kind::Arithmetic(expression) => self.run_arithmetic(expression),
        }
    }
}

/// Whether a blank behind the backslash of a continued line ends the command.
fn is_broken(line: &str) -> bool {
    let text = line.trim_end_matches([' ', '\t']);
    text.len() < line.len() && text.ends_with('\\') && !text.ends_with("\\\\")
}

fn is_tee(command: &Command) -> bool {
    let Kind::Simple { words, .. } = &command.kind else { return false };
    words.first().is_some_and(|word| word.raw == "tee" || word.raw.ends_with("/tee"))
}

/// Whether a file is redirected to the command's output.
pub(super) fn has_output_file(redirects: &[Redirect]) -> bool {
    redirects.iter().any(|redirect| redirect.operator.contains('>'))
}

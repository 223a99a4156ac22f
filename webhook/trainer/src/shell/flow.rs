//! Branches, loops and calls of functions.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::condition::matches;
use super::lexer::Word;
use super::merge::merge_surroundings;
use super::run::{Interpreter, MAX_DEPTH};
use super::state::{End, State, Value};
use super::tree::List;
use crate::marks::{Arg, has_mark};

const MAX_ROUNDS: usize = 64;
/// Runs of a loop's body until nothing new changes.
const MAX_PASSES: usize = 6;

impl Interpreter<'_> {
    pub(super) fn run_conditional(&mut self, arms: &[(List, List)], otherwise: &List) {
        let (line, printed) = (self.line, self.printed());
        let mut ends = Vec::new();
        let mut decided = None;
        for (condition, body) in arms {
            self.run_list(condition);
            match self.status {
                Some(false) => {}
                Some(true) => {
                    decided = Some(body);
                    break;
                }
                None => ends.push(self.run_branch(body)),
            }
        }
        self.run_list(decided.unwrap_or(otherwise));
        self.end_branches(line, printed, ends);
    }

    /// Runs what may not run; the state at its end.
    fn run_branch(&mut self, body: &List) -> State {
        let before = self.snapshot();
        self.run_list(body);
        std::mem::replace(&mut self.state, before)
    }

    /// Joins the states of branches that began at `line` and when as much as `printed` was printed.
    fn end_branches(&mut self, line: usize, printed: usize, ends: Vec<State>) {
        self.line = line;
        if !ends.is_empty() {
            self.doubt_output(printed);
        }
        self.join(ends);
    }

    pub(super) fn run_case(&mut self, word: &Word, arms: &[(Vec<Word>, List)]) {
        let subject = self.expand_text(&word.raw, false);
        let (mut ends, line, printed) = (Vec::new(), self.line, self.printed());
        for (patterns, body) in arms {
            let matched = patterns.iter().map(|pattern| {
                let pattern = self.expand_text(&pattern.raw, false);
                match pattern.as_str() {
                    "*" => Some(true),
                    _ if has_mark(&subject) || has_mark(&pattern) => None,
                    _ => matches(&pattern, &subject),
                }
            });
            let matched: Vec<Option<bool>> = matched.collect();
            let matched = if matched.contains(&Some(true)) {
                Some(true)
            } else if matched.contains(&None) {
                None
            } else {
                Some(false)
            };
            match matched {
                Some(false) => {}
                Some(true) => {
                    self.run_list(body);
                    break;
                }
                None => ends.push(self.run_branch(body)),
            }
        }
        self.end_branches(line, printed, ends);
    }

    pub(super) fn in_loop(&mut self, run: impl FnOnce(&mut Self)) {
        self.loops += 1;
        run(self);
        self.loops = self.loops.saturating_sub(1);
    }

    pub(super) fn run_for(&mut self, name: &str, words: Option<&[Word]>, body: &List) {
        let items = match words {
            Some(words) => self.expand_words(words),
            None => self.list_of_arguments(),
        };
        let is_known = |item: &Arg| !item.open && !has_mark(&item.text);
        if items.len() > MAX_ROUNDS || !items.iter().all(is_known) {
            return self.run_unknown_loop(body, Some(name));
        }
        let mut breaks = Vec::new();
        for item in items {
            self.state.set(name, Some(Value::Text(item.text)));
            self.run_list(body);
            if !self.has_next_round(&mut breaks) {
                break;
            }
        }
        self.end_loop(breaks);
        self.status = Some(true);
    }

    /// Continues behind a loop, also with the states that left it earlier.
    fn end_loop(&mut self, breaks: Vec<State>) {
        if !breaks.is_empty() {
            self.join(breaks);
        }
    }

    fn list_of_arguments(&mut self) -> Vec<Arg> {
        match &self.state.arguments {
            Some(arguments) => arguments.clone(),
            None => vec![Arg { text: self.unknown("$@", false), open: true }],
        }
    }

    /// Ends a round of a loop; whether there may be another. States that may have left the loop go to `left`.
    fn has_next_round(&mut self, left: &mut Vec<State>) -> bool {
        let mut continues = Vec::new();
        for mut state in self.take_parked(|end| matches!(end, End::Iteration { .. })) {
            let breaks = state.end == Some(End::Iteration { breaks: true });
            state.end = None;
            if breaks { left.push(state) } else { continues.push(state) }
        }
        match self.state.end {
            Some(End::Iteration { breaks: true }) => {
                self.state.end = None;
                let Some(state) = continues.pop() else { return false };
                left.push(std::mem::replace(&mut self.state, state));
            }
            Some(End::Iteration { breaks: false }) => self.state.end = None,
            Some(_) => {
                let Some(state) = continues.pop() else { return false };
                self.parked.push(std::mem::replace(&mut self.state, state));
            }
            None => {}
        }
        self.join(continues);
        !self.is_exhausted()
    }

    pub(super) fn run_while(&mut self, wanted: bool, condition: &List, body: &List) {
        let mut breaks = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let before = self.snapshot();
            self.run_list(condition);
            match self.status {
                Some(status) if status == wanted => self.run_list(body),
                Some(_) => {
                    self.end_loop(breaks);
                    self.status = Some(true);
                    return;
                }
                None => {
                    self.run_unknown_loop(body, None);
                    return self.end_loop(breaks);
                }
            }
            // The last of the three never ends, or its end isn't visible.
            if !self.has_next_round(&mut breaks) || self.state.is_like(&before) {
                return self.end_loop(breaks);
            }
        }
        self.run_unknown_loop(body, None);
        self.end_loop(breaks);
    }

    /// Runs a body that may run any number of times: what it changes is unknown in it and behind it.
    fn run_unknown_loop(&mut self, body: &List, variable: Option<&str>) {
        let printed = self.printed();
        if let Some(name) = variable {
            let text = self.unknown(&format!("${name}"), true);
            self.state.set(name, Some(Value::Text(text)));
        }
        let mut changed: BTreeSet<String> = variable.map(str::to_owned).into_iter().collect();
        self.quiet += 1;
        let mut is_done = false;
        for _ in 0..MAX_PASSES {
            let before = self.snapshot();
            self.run_list(body);
            let mut ends = self.take_parked(|end| matches!(end, End::Iteration { .. }));
            ends.push(std::mem::replace(&mut self.state, before));
            is_done = !self.widen(ends, &mut changed);
            if is_done {
                break;
            }
        }
        self.quiet = self.quiet.saturating_sub(1);
        if !is_done {
            self.give_up(&format!("{}line {}: what the loop changes isn't known", self.place(), self.line));
        }
        let unknown = self.snapshot();
        self.run_list(body);
        self.take_parked(|end| matches!(end, End::Iteration { .. }));
        let inner = std::mem::replace(&mut self.state, unknown.clone());
        match inner.end {
            Some(End::Return) => self.parked.push(inner.clone()),
            Some(End::Exit) => self.may_exit = true,
            _ => {}
        }
        self.state = State { end: None, ..unknown.after(inner) };
        self.doubt_output(printed);
        self.status = None;
    }

    /// Makes the present state one in which what differs at the ends of a loop's body isn't known; whether that is news.
    fn widen(&mut self, ends: Vec<State>, changed: &mut BTreeSet<String>) -> bool {
        let mut is_new = false;
        for end in ends {
            for (name, variable) in &end.variables {
                if self.state.variables.get(name) != Some(variable) && changed.insert(name.clone()) {
                    is_new = true;
                    let line = self.line + 1;
                    let origin = format!("${name} ({}changed in a loop before line {line})", self.place());
                    let text = self.unknown(&origin, false);
                    self.state.set(name, Some(Value::Text(text)));
                }
            }
            if self.state.arguments.is_some() && end.arguments != self.state.arguments {
                self.state.arguments = None;
                is_new = true;
            }
            is_new |= merge_surroundings(&mut self.state, end);
        }
        is_new
    }

    fn take_parked(&mut self, is_wanted: impl Fn(End) -> bool) -> Vec<State> {
        let parked = std::mem::take(&mut self.parked);
        let (taken, kept) = parked.into_iter().partition(|state| state.end.is_some_and(&is_wanted));
        self.parked = kept;
        taken
    }

    /// Calls a function, or runs a sourced file, whose `return` ends only itself.
    pub(super) fn with_return(&mut self, run: impl FnOnce(&mut Self)) {
        let (outer, printed) = (std::mem::take(&mut self.parked), self.printed());
        self.returns += 1;
        run(self);
        self.returns = self.returns.saturating_sub(1);
        let mut ends = self.take_parked(|end| end == End::Return);
        for state in ends.iter_mut().chain([&mut self.state]).filter(|state| state.end == Some(End::Return)) {
            state.end = None;
        }
        if !ends.is_empty() {
            self.doubt_output(printed);
            self.join(ends);
        }
        self.parked.extend(outer);
    }

    /// Calls a function, of which several definitions may count.
    pub(super) fn call_functions(&mut self, bodies: &[Rc<List>], arguments: &[Arg]) {
        let [others @ .., last] = bodies else { return };
        let (line, printed) = (self.line, self.printed());
        let mut ends = Vec::new();
        for body in others {
            let before = self.snapshot();
            self.call_function(body, arguments.to_vec());
            ends.push(std::mem::replace(&mut self.state, before));
        }
        self.call_function(last, arguments.to_vec());
        self.end_branches(line, printed, ends);
    }

    fn call_function(&mut self, body: &List, arguments: Vec<Arg>) {
        if self.depth == MAX_DEPTH {
            return self.give_up("calls within calls are too deep");
        }
        self.depth += 1;
        let outer = self.state.arguments.replace(arguments);
        self.locals.push(Vec::new());
        // A `break` in a function doesn't leave the loop around its call.
        let loops = std::mem::take(&mut self.loops);
        self.with_return(|shell| shell.run_list(body));
        self.loops = loops;
        for (name, value) in self.locals.pop().unwrap_or_default().into_iter().rev() {
            match value {
                Some(value) => self.state.variables.insert(name, value),
                None => self.state.variables.remove(&name),
            };
        }
        self.state.arguments = outer;
        self.depth -= 1;
    }
}

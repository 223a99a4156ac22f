//! Branches, loops and calls of functions.

use std::rc::Rc;

use super::condition::matches;
use super::lexer::Word;
use super::run::{Interpreter, MAX_DEPTH};
use super::state::{End, State, Value, Variable};
use super::tree::List;
use crate::marks::{Arg, has_mark};

const MAX_ROUNDS: usize = 64;

impl Interpreter<'_> {
    pub(super) fn run_conditional(&mut self, arms: &[(List, List)], otherwise: &List) {
        let mut ends = Vec::new();
        let line = self.line;
        for (condition, body) in arms {
            self.run_list(condition);
            match self.status {
                Some(false) => {}
                Some(true) => {
                    self.run_list(body);
                    self.line = line;
                    return self.join(ends);
                }
                None => {
                    let before = self.state.clone();
                    self.run_list(body);
                    ends.push(std::mem::replace(&mut self.state, before));
                }
            }
        }
        self.run_list(otherwise);
        self.line = line;
        self.join(ends);
    }

    pub(super) fn run_case(&mut self, word: &Word, arms: &[(Vec<Word>, List)]) {
        let subject = self.expand_text(&word.raw, false);
        let (mut ends, line) = (Vec::new(), self.line);
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
                    self.line = line;
                    return self.join(ends);
                }
                None => {
                    let before = self.state.clone();
                    self.run_list(body);
                    ends.push(std::mem::replace(&mut self.state, before));
                }
            }
        }
        self.line = line;
        self.join(ends);
    }

    pub(super) fn run_for(&mut self, name: &str, words: Option<&[Word]>, body: &List) {
        let items = match words {
            Some(words) => self.expand_words(words),
            None => self.list_of_arguments(),
        };
        let items: Vec<Arg> = items.iter().flat_map(range).collect();
        let is_known = |item: &Arg| !item.open && !has_mark(&item.text);
        if items.len() > MAX_ROUNDS || !items.iter().all(is_known) {
            return self.run_unknown_loop(body, Some(name));
        }
        for item in items {
            self.state.set(name, Some(Value::Text(item.text)));
            self.run_list(body);
            if !self.has_next_round() {
                return;
            }
        }
        self.status = Some(true);
    }

    fn list_of_arguments(&mut self) -> Vec<Arg> {
        match &self.state.arguments {
            Some(arguments) => arguments.clone(),
            None => vec![Arg { text: self.unknown("$@", false), open: true }],
        }
    }

    /// Ends a round of a loop; whether there may be another.
    fn has_next_round(&mut self) -> bool {
        match self.state.end {
            Some(End::Iteration { breaks }) => {
                self.state.end = None;
                !breaks
            }
            Some(_) => false,
            None => !self.is_exhausted(),
        }
    }

    pub(super) fn run_while(&mut self, wanted: bool, condition: &List, body: &List) {
        for _ in 0..MAX_ROUNDS {
            let before = self.state.clone();
            self.run_list(condition);
            match self.status {
                Some(status) if status == wanted => self.run_list(body),
                Some(_) => {
                    self.status = Some(true);
                    return;
                }
                None => return self.run_unknown_loop(body, None),
            }
            if !self.has_next_round() {
                return;
            }
            // It never ends, or the end isn't visible.
            if self.state.is_like(&before) {
                return;
            }
        }
        self.run_unknown_loop(body, None);
    }

    /// Runs a body that may run any number of times: what it changes is unknown in it and behind it.
    fn run_unknown_loop(&mut self, body: &List, variable: Option<&str>) {
        let before = self.state.clone();
        if let Some(name) = variable {
            let text = self.unknown(&format!("${name}"), true);
            self.state.set(name, Some(Value::Text(text)));
        }
        self.quiet += 1;
        self.run_list(body);
        self.quiet = self.quiet.saturating_sub(1);
        let parked = self.take_parked(|end| matches!(end, End::Iteration { .. }));
        let (mut changed, mut arguments_changed) = (Vec::new(), false);
        for state in parked.iter().chain([&self.state]) {
            arguments_changed |= state.arguments != before.arguments;
            let differs = |(name, value): &(&String, &Variable)| before.variables.get(*name) != Some(*value);
            changed.extend(state.variables.iter().filter(differs).map(|(name, _)| name.clone()));
        }
        self.state = before;
        if arguments_changed {
            self.state.arguments = None;
        }
        let line = self.line;
        for name in &changed {
            let origin = format!("${name} ({}changed in a loop before line {})", self.place(), line + 1);
            let one_word = variable == Some(name);
            let text = self.unknown(&origin, one_word);
            self.state.set(name, Some(Value::Text(text)));
        }
        let unknown = self.state.clone();
        self.run_list(body);
        self.take_parked(|end| matches!(end, End::Iteration { .. }));
        let managers = self.state.managers;
        self.state = State { managers, end: None, ..unknown };
        self.status = None;
    }

    fn take_parked(&mut self, is_wanted: impl Fn(End) -> bool) -> Vec<State> {
        let parked = std::mem::take(&mut self.parked);
        let (taken, kept) = parked.into_iter().partition(|state| state.end.is_some_and(&is_wanted));
        self.parked = kept;
        taken
    }

    /// Calls a function, or runs a sourced file, whose `return` ends only itself.
    pub(super) fn with_return(&mut self, run: impl FnOnce(&mut Self)) {
        let outer = std::mem::take(&mut self.parked);
        run(self);
        let mut ends = self.take_parked(|end| end == End::Return);
        for state in ends.iter_mut().chain([&mut self.state]).filter(|state| state.end == Some(End::Return)) {
            state.end = None;
        }
        if !ends.is_empty() {
            self.join(ends);
        }
        self.parked.extend(outer);
    }

    pub(super) fn call_function(&mut self, body: &Rc<List>, arguments: Vec<Arg>) {
        if self.depth == MAX_DEPTH {
            return self.give_up("calls within calls are too deep");
        }
        self.depth += 1;
        let outer = self.state.arguments.replace(arguments);
        self.with_return(|shell| shell.run_list(body));
        self.state.arguments = outer;
        self.depth -= 1;
    }
}

/// `{1..8}` becomes its numbers.
fn range(item: &Arg) -> Vec<Arg> {
    let bounds = item.text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let bounds = bounds.and_then(|bounds| bounds.split_once(".."));
    match bounds.map(|(first, last)| (first.parse::<i64>(), last.parse::<i64>())) {
        Some((Ok(first), Ok(last))) if last.saturating_sub(first) <= 1024 => {
            (first..=last).map(|number| Arg::of(number.to_string())).collect()
        }
        _ => vec![item.clone()],
    }
}

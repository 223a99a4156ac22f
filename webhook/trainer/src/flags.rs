//! Reads the flags of a training program, as argparse does.

use crate::launch::Count;
use crate::marks::{Arg, Marks, has_mark, is_mark};

/// Flags of Megatron-LM, MindSpeed and MindSpeed-LLM that have one value. An unknown word behind another flag may be a
/// flag itself.
const WITH_VALUE: &str = include_str!("flags_with_value.txt");

/// Whether argparse takes a word with blanks for a value where flags were meant.
fn is_refused(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    text.starts_with(char::is_whitespace) && !text.trim().starts_with(|c: char| c != '-')
        || first.starts_with("--") && !first.contains('=')
        || text.contains(" --")
}

/// The flags of a command line.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    all: Vec<(String, Vec<Arg>)>,
    /// Unknown parts that may be flags, and the flag whose value they are.
    pub(crate) hidden: Vec<(String, Option<String>)>,
    /// Whether a word is a blank, which most programs refuse.
    pub(crate) has_blank: bool,
}

impl Flags {
    pub(crate) fn read(args: &[Arg], marks: &Marks) -> Self {
        let mut flags = Self::default();
        for arg in args {
            let text = arg.text.as_str();
            let is_number = text
                .strip_prefix(['-', '+'])
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'));
            if arg.open {
                flags.hide(marks.origins(text));
            }
            if text.starts_with(is_mark) {
                if !flags.awaits_value() {
                    flags.hide(marks.origins(text));
                }
                flags.value(arg);
            } else if !text.is_empty() && text.trim().is_empty() {
                flags.has_blank = true;
            } else if text.contains(char::is_whitespace) && is_refused(text) {
                // argparse takes it for a value, also if it has flags, and refuses the command.
                let shown: String = text.trim().chars().take(40).collect();
                flags.hide(format!("{shown:?}, which is one word because of its quotes or a backslash,"));
            } else if text.starts_with('-') && !is_number {
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, vec![Arg { text: value.to_owned(), open: arg.open }]),
                    None => (text, Vec::new()),
                };
                if has_mark(name) {
                    flags.hide(marks.origins(name));
                }
                flags.all.push((name.to_owned(), value));
            } else if text.starts_with('#') || matches!(text, "\\" | "&&" | "|") {
                // Part of a comment inside quotes: argparse refuses it, and what follows isn't what was meant.
                flags.hide(format!("{text:?} among the flags"));
            } else {
                flags.value(arg);
            }
        }
        flags
    }

    fn hide(&mut self, origin: String) {
        let flag = self.awaits_value().then(|| self.all.last().map(|(name, _)| name.clone())).flatten();
        if !self.hidden.iter().any(|(other, _)| *other == origin) {
            self.hidden.push((origin, flag));
        }
    }

    fn awaits_value(&self) -> bool {
        self.all.last().is_some_and(|(name, values)| {
            values.is_empty() && WITH_VALUE.split_ascii_whitespace().any(|flag| flag == name)
        })
    }

    fn value(&mut self, arg: &Arg) {
        if let Some((_, values)) = self.all.last_mut() {
            values.push(arg.clone());
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.all.iter().any(|(flag, _)| flag == name)
    }

    /// The first flag that `is_wanted`.
    pub(crate) fn find(&self, is_wanted: impl Fn(&str) -> bool) -> Option<&str> {
        self.all.iter().map(|(flag, _)| flag.as_str()).find(|flag| is_wanted(flag))
    }

    /// The value of the last such flag; `None` if there is none, or it has no value.
    pub(crate) fn get(&self, name: &str) -> Option<&Arg> {
        self.all.iter().rev().find(|(flag, _)| flag == name)?.1.first()
    }

    /// The known text of a value.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.known()
    }

    /// The number of a flag, or `default` without the flag.
    pub(crate) fn count(&self, name: &str, default: u64, marks: &Marks) -> Count {
        if !self.has(name) {
            return Count::Known(default);
        }
        let value = self.get(name);
        let number =
            value.and_then(Arg::known).and_then(|text| text.parse().ok()).filter(|number| *number > 0);
        number.map_or_else(
            || {
                let shown = value.map(|value| marks.display(&value.text)).unwrap_or_default();
                Count::Unknown(format!("the value of {name} is {shown:?}"))
            },
            Count::Known,
        )
    }
}

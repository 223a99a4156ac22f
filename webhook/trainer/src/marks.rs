//! Parts of a text that aren't known before the script runs.
//!
//! Each is one character of a private-use area inside the text, so that texts with unknown parts are joined, split,
//! assigned and parsed again like any other text.

use std::borrow::Cow;

const FIRST: char = '\u{F0000}';
const LAST: char = '\u{FFFFD}';
/// A script with more unknown parts than this gets one mark for the rest.
const MAX: usize = 1024;

/// What is known of an unknown part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    Unknown {
        /// The expansion that it comes from, as the script has it.
        origin: String,
        /// Whether it has neither blanks nor the chance to be several words.
        one_word: bool,
    },
    /// One of several texts; which one depends on a condition.
    OneOf {
        /// Where the condition is.
        origin: String,
        alternatives: Vec<Vec<Arg>>,
    },
}

/// A word of a command, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Arg {
    /// The text with its marks.
    pub(crate) text: String,
    /// Whether its marks may become several words or none, because they aren't quoted.
    pub(crate) open: bool,
}

impl Arg {
    pub(crate) fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), open: false }
    }

    /// The text if all of it is known.
    pub(crate) fn known(&self) -> Option<&str> {
        (!has_mark(&self.text)).then_some(&self.text)
    }
}

pub(crate) fn is_mark(c: char) -> bool {
    (FIRST..=LAST).contains(&c)
}

pub(crate) fn has_mark(text: &str) -> bool {
    text.chars().any(is_mark)
}

/// Replaces characters that would be read as marks.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if has_mark(text) { text.replace(is_mark, "\u{FFFD}").into() } else { text.into() }
}

/// The marks of a report.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    all: Vec<Mark>,
}

impl Marks {
    fn add(&mut self, mark: Mark) -> char {
        let known = self.all.iter().position(|other| *other == mark);
        let index = known.unwrap_or(self.all.len()).min(MAX);
        if index == MAX && self.all.len() == MAX {
            let origin = "a script with too many unknown values".to_owned();
            self.all.push(Mark::Unknown { origin, one_word: false });
        } else if index == self.all.len() {
            self.all.push(mark);
        }
        let index = u32::try_from(index).unwrap_or_default();
        char::from_u32(u32::from(FIRST) + index).unwrap_or(FIRST)
    }

    /// A mark for a text of which nothing is known.
    pub(crate) fn unknown(&mut self, origin: impl Into<String>, one_word: bool) -> char {
        self.add(Mark::Unknown { origin: origin.into(), one_word })
    }

    /// A mark for one of several lists of words.
    pub(crate) fn one_of(&mut self, origin: &str, alternatives: Vec<Vec<Arg>>) -> char {
        self.add(Mark::OneOf { origin: origin.to_owned(), alternatives })
    }

    pub(crate) fn get(&self, c: char) -> Option<&Mark> {
        if !is_mark(c) {
            return None;
        }
        self.all.get(usize::try_from(u32::from(c) - u32::from(FIRST)).ok()?)
    }

    /// Whether an unquoted `c` may become several words, or none.
    pub(crate) fn may_split(&self, c: char) -> bool {
        self.get(c).is_some_and(|mark| !matches!(mark, Mark::Unknown { one_word: true, .. }))
    }

    /// The text for a reader, with the origins in place of marks.
    pub(crate) fn display(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            match self.get(c) {
                None => shown.push(c),
                Some(Mark::Unknown { origin, .. } | Mark::OneOf { origin, .. }) => shown.push_str(origin),
            }
        }
        shown
    }

    /// The origins of the unknown parts of `text`.
    pub(crate) fn origins(&self, text: &str) -> String {
        let marks = text.chars().filter(|c| is_mark(*c)).map(String::from);
        let mut origins: Vec<String> = marks.map(|mark| self.display(&mark)).collect();
        origins.dedup();
        origins.join(", ")
    }

    /// All combinations of alternatives of `args`; the same mark has the same alternative everywhere. `None` if there are
    /// more than `limit`.
    pub(crate) fn resolve(&self, args: Vec<Arg>, limit: usize) -> Option<Vec<Vec<Arg>>> {
        let (mut done, mut open) = (Vec::new(), vec![args]);
        while let Some(args) = open.pop() {
            if done.len() + open.len() >= limit {
                return None;
            }
            let choice = args.iter().flat_map(|arg| arg.text.chars()).find_map(|c| match self.get(c) {
                Some(Mark::OneOf { alternatives, .. }) => Some((c, alternatives)),
                _ => None,
            });
            match choice {
                None => done.push(args),
                Some((mark, alternatives)) => open.extend(
                    alternatives
                        .iter()
                        .map(|words| args.iter().flat_map(|arg| self.put(arg, mark, words)).collect()),
                ),
            }
        }
        Some(done)
    }

    /// `arg` with `words` in place of `mark`.
    fn put(&self, arg: &Arg, mark: char, words: &[Arg]) -> Vec<Arg> {
        if !arg.text.contains(mark) {
            return vec![arg.clone()];
        }
        if arg.open && arg.text.chars().eq([mark]) {
            let split = |word: &Arg| if word.open { self.split(&word.text) } else { vec![word.clone()] };
            return words.iter().flat_map(split).collect();
        }
        let joined = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        let text = arg.text.replace(mark, &joined);
        if arg.open { self.split(&text) } else { vec![Arg { text, open: false }] }
    }

    /// The words of an unquoted text.
    pub(crate) fn split(&self, text: &str) -> Vec<Arg> {
        let word = |text: &str| Arg { text: text.to_owned(), open: text.chars().any(|c| self.may_split(c)) };
        text.split_ascii_whitespace().map(word).collect()
    }
}

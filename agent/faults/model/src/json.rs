//! What MindCluster's JSON files of faults are read with, and what can be wrong with them.

use serde_json::{Map, Value};

use crate::code::Code;
use crate::level::Level;

/// No ConfigMap holds more.
pub(crate) const LARGEST: usize = 1 << 20;

/// So many warnings are told one by one.
const MOST_WARNINGS: usize = 50;

/// So much of a foreign text is repeated in a message.
const LONGEST_EXCERPT: usize = 40;

/// A file that can't be used at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// More than a ConfigMap holds.
    #[error("it has {0} bytes, and 1 MiB is the most; is it the right file?")]
    TooLarge(usize),
    /// Not JSON, or something else than an object.
    #[error("it is no JSON object: {0}")]
    NotAnObject(String),
    /// A known key with a value of another shape. MindCluster refuses the whole file for it.
    #[error("`{key}` must be {shape}")]
    WrongType {
        /// Which.
        key: String,
        /// What it has to be.
        shape: &'static str,
    },
}

/// Something in a file that has no effect, or another one than its writer may expect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A key that means nothing here.
    #[error("`{key}` is no key that is known here and has no effect; is it misspelled?")]
    UnknownKey {
        /// Which.
        key: String,
    },
    /// A text that is no code.
    #[error("`{key}`: `{text}` is no fault code and has no effect; write hexadecimal digits, as in 80E01801")]
    InvalidCode {
        /// Where.
        key: String,
        /// What is there.
        text: String,
    },
    /// A code of a network fault at a level that those can't have.
    #[error(
        "`{key}`: {code} is a network fault, which can't be at that level; it is {} instead",
        Level::NotHandleFault
    )]
    LevelNotForNetwork {
        /// Where.
        key: &'static str,
        /// Which.
        code: Code,
    },
    /// A code in a list of network faults that isn't one of those.
    #[error(
        "`{key}`: {code} is no network fault, so it has no effect there; the network faults are {}",
        network_codes()
    )]
    NotNetworkFault {
        /// Where.
        key: &'static str,
        /// Which.
        code: Code,
    },
    /// A code at two levels.
    #[error("{code} is both {lower} and {higher}; the higher one counts")]
    ConflictingLevels {
        /// Which.
        code: Code,
        /// The level that it doesn't have.
        lower: Level,
        /// The level that it has.
        higher: Level,
    },
    /// A file that lists no code.
    #[error("it lists no code, so every code is classified by its severity")]
    Empty,
    /// A rule out of MindCluster's limits, which has no effect there either.
    #[error("`{key}`: {problem}; the rule has no effect")]
    InvalidRule {
        /// Which.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A second rule of the same kind for a code.
    #[error("`{key}`: {code} has a rule already; the first one counts")]
    DuplicateRule {
        /// Where.
        key: String,
        /// Which.
        code: Code,
    },
    /// Those that aren't told one by one.
    #[error("and {0} more")]
    Omitted(usize),
}

fn network_codes() -> String {
    crate::classify::NETWORK_CODES.map(|number| format!("{number:08X}")).join(", ")
}

/// Warnings, not more than somebody reads.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    told: Vec<Warning>,
    more: usize,
}

impl Warnings {
    pub(crate) fn push(&mut self, warning: Warning) {
        if self.told.len() < MOST_WARNINGS {
            self.told.push(warning);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<Warning> {
        if self.more > 0 {
            self.told.push(Warning::Omitted(self.more));
        }
        self.told
    }
}

/// The beginning of a foreign text, in one line.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(LONGEST_EXCERPT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What a parser says, without the whole of a text that it repeats.
pub(crate) fn problem(error: &serde_json::Error) -> String {
    const LONGEST: usize = 200;
    let text = error.to_string();
    let mut short: String =
        text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The members of a JSON object; of a key that is there twice, the last value, as Go reads it.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, ParseError> {
    if text.len() > LARGEST {
        return Err(ParseError::TooLarge(text.len()));
    }
    serde_json::from_str(text).map_err(|error| ParseError::NotAnObject(problem(&error)))
}

/// The codes of a list, with those that aren't codes told. MindCluster reads texts only, and leaves out what it can't
/// read as a number.
pub(crate) fn codes(key: &str, value: &Value, warnings: &mut Warnings) -> Result<Vec<Code>, ParseError> {
    let wrong = || ParseError::WrongType { key: key.to_owned(), shape: "a list of texts, as [\"80E01801\"]" };
    let list = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        _ => return Err(wrong()),
    };
    let mut codes = Vec::with_capacity(list.len());
    for element in list {
        let text = element.as_str().ok_or_else(wrong)?;
        match text.parse() {
            Ok(code) => codes.push(code),
            Err(_) => warnings.push(Warning::InvalidCode { key: key.to_owned(), text: excerpt(text) }),
        }
    }
    Ok(codes)
}

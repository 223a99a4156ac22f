//! Parses MindCluster's JSON files of faults.

use serde_json::{Map, Value};

use crate::code::{Code, NETWORK_CODES};
use crate::level::Level;

/// The size limit of a ConfigMap, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// The limit of warnings per file.
const MAX_WARNINGS: usize = 50;

/// The limit of an excerpt, in characters.
const MAX_EXCERPT: usize = 40;

/// Why a file can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The file exceeds the size limit of a ConfigMap.
    #[error("it has {0} bytes, and 1 MiB is the most; is it the right file?")]
    TooLarge(usize),
    /// The file isn't a JSON object.
    #[error("it is no JSON object: {0}")]
    NotAnObject(String),
    /// The value of a known key has another type. MindCluster refuses the whole file then.
    #[error("`{key}` must be {expected}")]
    WrongType { key: String, expected: &'static str },
}

/// A part of a file that has no effect, or an unexpected one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The key isn't known.
    #[error("`{key}` is no key that is known here and has no effect; is it misspelled?")]
    UnknownKey { key: String },
    /// The text is no fault code.
    #[error("`{key}`: `{text}` is no fault code and has no effect; write hexadecimal digits, as in 80E01801")]
    InvalidCode {
        key: String,
        /// The beginning of the text.
        text: String,
    },
    /// The level isn't possible for network faults.
    #[error(
        "`{key}`: {code} is a network fault, which can't be at that level; it is {} instead",
        Level::NotHandleFault
    )]
    LevelNotForNetwork { key: &'static str, code: Code },
    /// The code is in a list of network faults and isn't one.
    #[error(
        "`{key}`: {code} is no network fault, so it has no effect there; the network faults are {}",
        network_codes()
    )]
    NotNetworkFault { key: &'static str, code: Code },
    /// The code has two levels.
    #[error("{code} is both {lower} and {higher}; the higher one applies")]
    ConflictingLevels {
        code: Code,
        /// The level that is ignored.
        lower: Level,
        /// The level that applies.
        higher: Level,
    },
    /// The file lists no code.
    #[error("it lists no code, so every code is classified by its severity")]
    Empty,
    /// The rule is outside MindCluster's limits; the device plugin ignores it too.
    #[error("`{key}`: {problem}; the rule has no effect")]
    InvalidRule {
        /// The path of the rule.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// The code already has a rule of this kind.
    #[error("`{key}`: {code} has a rule already; the first one applies")]
    DuplicateRule {
        /// The path of the rule.
        key: String,
        code: Code,
    },
    /// The number of warnings beyond the limit.
    #[error("and {0} more")]
    Omitted(usize),
}

fn network_codes() -> String {
    NETWORK_CODES.map(|number| format!("{number:08X}")).join(", ")
}

/// A bounded list of warnings.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    warnings: Vec<Warning>,
    omitted: usize,
}

impl Warnings {
    pub(crate) fn push(&mut self, warning: Warning) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        } else {
            self.omitted += 1;
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<Warning> {
        if self.omitted > 0 {
            self.warnings.push(Warning::Omitted(self.omitted));
        }
        self.warnings
    }
}

/// The beginning of a foreign text as one line.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(MAX_EXCERPT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The message of a parser, shortened as it may quote the whole text.
pub(crate) fn error_message(error: &serde_json::Error) -> String {
    const MAX_LENGTH: usize = 200;
    let text = error.to_string();
    let mut short: String =
        text.chars().take(MAX_LENGTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The members of a JSON object; the last value of a duplicate key, as in Go.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, ParseError> {
    if text.len() > MAX_BYTES {
        return Err(ParseError::TooLarge(text.len()));
    }
    serde_json::from_str(text).map_err(|error| ParseError::NotAnObject(error_message(&error)))
}

/// The codes of a list. As MindCluster, it accepts strings only, and ignores those that aren't numbers, with a warning.
pub(crate) fn codes(key: &str, value: &Value, warnings: &mut Warnings) -> Result<Vec<Code>, ParseError> {
    let wrong_type =
        || ParseError::WrongType { key: key.to_owned(), expected: "a list of texts, as [\"80E01801\"]" };
    let list = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        _ => return Err(wrong_type()),
    };
    let mut codes = Vec::with_capacity(list.len());
    for element in list {
        let text = element.as_str().ok_or_else(wrong_type)?;
        match text.parse() {
            Ok(code) => codes.push(code),
            Err(_) => warnings.push(Warning::InvalidCode { key: key.to_owned(), text: excerpt(text) }),
        }
    }
    Ok(codes)
}

//! The value of a document: JSON with exact numbers.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::scalar::{self, Scalar};

/// A JSON value like [`serde_json::Value`], with numbers as text, because printing an `f64` could change them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// The JSON value `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A JSON number, as text.
    Number(String),
    /// A JSON string.
    String(String),
    /// A JSON array.
    Sequence(Vec<Data>),
    /// A JSON object, in its order and without duplicate keys.
    Mapping(Vec<(String, Data)>),
}

impl Data {
    /// The member of a mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Mapping(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is a mapping or sequence that isn't empty.
    pub fn is_filled(&self) -> bool {
        match self {
            Self::Sequence(items) => !items.is_empty(),
            Self::Mapping(members) => !members.is_empty(),
            _ => false,
        }
    }

    /// Its type, for messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }

    /// A number in its normal form, in which equal numbers are equal text.
    fn number(json: &str) -> Self {
        match scalar::resolve(json) {
            Scalar::Integer(text) | Scalar::Float(text) => Self::Number(text),
            _ => Self::Number(json.to_owned()),
        }
    }

    /// Compact JSON text, the form in which the injection core reads an object.
    pub fn to_json(&self) -> String {
        // Strings, numbers and mappings with string keys always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether a JSON value is equal; 8000 and 8000.0 are equal numbers.
    pub fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Number(text), Value::Number(number)) => {
                let ours = number_value(text);
                ours == *value || ours == Self::number(&number.to_string()).to_value()
            }
            (Self::Sequence(items), Value::Array(values)) => {
                items.len() == values.len()
                    && items.iter().zip(values).all(|(item, value)| item.equals(value))
            }
            (Self::Mapping(members), Value::Object(values)) => {
                let same =
                    |(key, item): &(String, Self)| values.get(key).is_some_and(|value| item.equals(value));
                members.len() == values.len() && members.iter().all(same)
            }
            (Self::Null, Value::Null) => true,
            (Self::Bool(ours), Value::Bool(theirs)) => ours == theirs,
            (Self::String(ours), Value::String(theirs)) => ours == theirs,
            _ => false,
        }
    }

    /// The value with numbers of `serde_json`.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(text) => number_value(text),
            Self::String(text) => Value::String(text.clone()),
            Self::Sequence(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Self::Mapping(members) => {
                Value::Object(members.iter().map(|(key, value)| (key.clone(), value.to_value())).collect())
            }
        }
    }
}

fn number_value(text: &str) -> Value {
    // A number that is too large for `f64` isn't equal to any.
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

impl From<&Value> for Data {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::number(&number.to_string()),
            Value::String(text) => Self::String(text.clone()),
            Value::Array(items) => Self::Sequence(items.iter().map(Self::from).collect()),
            Value::Object(members) => {
                Self::Mapping(members.iter().map(|(key, value)| (key.clone(), Self::from(value))).collect())
            }
        }
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(text) => {
                RawValue::from_string(text.clone()).map_err(serde::ser::Error::custom)?.serialize(serializer)
            }
            Self::String(text) => serializer.serialize_str(text),
            Self::Sequence(items) => serializer.collect_seq(items),
            Self::Mapping(members) => serializer.collect_map(members.iter().map(|(key, value)| (key, value))),
        }
    }
}

/// Writes a JSON string, which is a double-quoted YAML scalar as well.
///
/// Characters that YAML doesn't allow unescaped, or that other parsers take for a line break, are escaped as well.
pub fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_unprintable(c) => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    // Writing into a String has no way to fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Whether YAML requires `c` to be escaped, or a parser takes it for a line break.
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

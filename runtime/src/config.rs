//! Strict YAML files: unknown keys are refused, and problems are reported with their line and key.
//!
//! A crate that owns a configuration defines its shape for serde. [`read_shape`] reads it, the crate's own check turns it
//! into settings or [`Problems`], and [`load`] adds the name of the file.

mod poll;
mod problem;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

pub use self::poll::poll;
pub use self::problem::{ConfigError, Problem, Problems};

/// The size limit of a ConfigMap.
const LARGEST: u64 = 1 << 20;

/// Reads YAML into a shape whose `deny_unknown_fields` makes it strict; an empty text is all defaults.
///
/// `free_keys` names the mapping, if there is one, whose keys are the user's own and may be called anything.
///
/// # Errors
///
/// With the first problem of the YAML or of its shape.
pub fn read_shape<T: DeserializeOwned>(text: &str, free_keys: Option<&str>) -> Result<T, Problems> {
    let options = serde_saphyr::options! { with_snippet: false };
    let mut path = String::new();
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            path = error.path().to_string();
            error.into_inner()
        })
    })
    .map_err(|error| Problems::from(unreadable(as_written(&path, free_keys), &error)))
}

/// Reads a file and hands its text to `parse`.
///
/// # Errors
///
/// When the file can't be read or `parse` refuses it.
pub fn load<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, Problems>) -> Result<T, ConfigError> {
    let text = read(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    parse(&text).map_err(|problems| ConfigError::Invalid { path: path.to_owned(), problems })
}

/// Reads a configuration file's text, of which there may be no more than a ConfigMap holds.
///
/// # Errors
///
/// When it can't be read, isn't UTF-8 or is larger.
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if length as u64 > LARGEST {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

/// A problem of the YAML itself, or of its shape, at `key`.
fn unreadable(key: String, error: &serde_saphyr::Error) -> Problem {
    use serde_saphyr::Error;
    let error = error.without_snippet();
    let position = error.location().map(|at| (at.line(), at.column()));
    let message = match error {
        Error::SerdeUnknownField { expected, .. } => {
            format!("is no key that is known here; choose among {}, or remove it", expected.join(", "))
        }
        Error::DuplicateMappingKey { key: Some(name), .. } => format!("has the key {name} twice; keep one"),
        Error::MultipleDocuments { .. } => "starts a second document; the configuration is one".to_owned(),
        other => in_plain_words(without_position(&other.to_string())),
    };
    Problem { position, key, message }
}

/// A path without what isn't in the file: `.` for the whole, `?` for what the parser couldn't name, and the member
/// `value` of [`serde_saphyr::Spanned`], which no key of a shape is called.
fn as_written(path: &str, free_keys: Option<&str>) -> String {
    let is_free =
        free_keys.is_some_and(|free| path.strip_prefix(free).is_some_and(|rest| rest.starts_with('.')));
    if is_free {
        let path = path.trim_end_matches(".?");
        // The one left of two is the user's own key.
        let inner = path.strip_suffix(".value").filter(|outer| outer.contains('.'));
        return inner.unwrap_or(path).to_owned();
    }
    let keys = path.split('.').filter(|key| !matches!(*key, "" | "?" | "value"));
    keys.collect::<Vec<_>>().join(".").replace(".value[", "[")
}

/// The parser ends its messages with the position, which a [`Problem`] has in front.
fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(text, _)| text)
}

/// Rephrases messages of the parser so that they say what to write.
fn in_plain_words(message: &str) -> String {
    let plain = match message {
        "expected mapping start" => "must be a mapping, as `key: value`",
        "expected sequence start" => "must be a list, as `[a, b]`",
        "expected string scalar" => "must be one value, neither a list nor a mapping",
        "invalid boolean" => "must be true or false",
        _ if message.starts_with("cannot deserialize null") => "has no value; give one, or remove the key",
        _ if message.starts_with("externally tagged enum") => "must be a single value",
        _ => {
            match message.strip_prefix("invalid ").map(|kind| kind.strip_prefix(['i', 'u']).unwrap_or("?")) {
                Some(bits) if bits.parse::<u8>().is_ok() => "must be a whole number",
                _ => message,
            }
        }
    };
    plain.to_owned()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Shape {
        #[serde(rename = "number")]
        _number: u8,
        #[serde(rename = "names")]
        _names: std::collections::BTreeMap<String, String>,
        #[serde(rename = "list")]
        _list: Option<serde_saphyr::Spanned<Vec<String>>>,
        #[serde(rename = "flag")]
        _flag: bool,
        #[serde(rename = "word")]
        _word: Option<Word>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        One,
    }

    #[test]
    fn faults_name_line_and_key() {
        for (text, expected) in [
            ("number: x\n", "line 1, column 9: number: must be a whole number"),
            ("names: 1\n", "names: must be a mapping"),
            ("list: 1\n", "list: must be a list"),
            ("list: [a, [b]]\n", "list[1]: must be one value"),
            ("flag: 5\n", "flag: must be true or false"),
            ("word: [a]\n", "word: must be a single value"),
            ("names: {a: null}\n", "names.a: has no value"),
            (
                "\nnumbr: 1\n",
                "line 2, column 1: numbr: is no key that is known here; choose among number, names, list",
            ),
            ("names:\n  value: [1]\n", "line 2, column 10: names.value: "),
            ("number: 1\nnumber: 2\n", "has the key number twice"),
            ("number: 1\n---\nnumber: 2\n", "starts a second document"),
        ] {
            let faults = read_shape::<Shape>(text, Some("names")).expect_err(text).to_string();
            assert!(faults.contains(expected), "{text:?}: {faults}");
        }
        read_shape::<Shape>("", None).expect("all defaults");
    }

    #[test]
    fn a_file_is_named() {
        let error = load(Path::new("/nowhere/config.yaml"), |_| Ok(())).expect_err("no such file");
        assert!(error.to_string().starts_with("/nowhere/config.yaml can't be read"), "{error}");
    }
}

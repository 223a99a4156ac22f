//! The configuration: one YAML file, strict, proven before it is used, watched while it is.

mod check;
mod fault;
mod file;
mod watch;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;

pub use self::fault::{ConfigError, Fault, Faults};
pub use self::watch::{ConfigEvent, ConfigWatcher};
use crate::policy::Policy;

/// A ConfigMap can't be larger; whatever is, isn't a configuration.
const LARGEST: u64 = 1 << 20;

/// What the operator of a cluster may set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    policy: Policy,
    strictness: Strictness,
}

/// What becomes of an object that the core fails on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strictness {
    /// It is let through as it is, with a warning.
    #[default]
    Warn,
    /// It is refused.
    Deny,
}

impl Config {
    /// Reads a configuration from YAML; an empty text is the default.
    ///
    /// # Errors
    ///
    /// With every fault found, each with its place and key.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        let options = serde_saphyr::options! { with_snippet: false };
        let mut path = String::new();
        let file = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
            serde_path_to_error::deserialize(deserializer).map_err(|error| {
                path = error.path().to_string();
                error.into_inner()
            })
        })
        .map_err(|error| Faults(vec![unreadable(&path, &error)]))?;
        check::check(file)
    }

    /// Reads a configuration from a file.
    ///
    /// # Errors
    ///
    /// When the file can't be read or [`Config::parse`] refuses it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path).map_err(|problem| ConfigError::Read { path: path.to_owned(), problem })?;
        Self::parse(&text).map_err(|faults| ConfigError::Invalid { path: path.to_owned(), faults })
    }

    /// The settings of the injection core.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What becomes of an object that the core fails on.
    pub const fn strictness(&self) -> Strictness {
        self.strictness
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if length as u64 > LARGEST {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

/// A fault of the YAML itself, or of its shape, at `path`.
fn unreadable(path: &str, error: &serde_saphyr::Error) -> Fault {
    use serde_saphyr::Error;
    let error = error.without_snippet();
    let position = error.location().map(|at| (at.line(), at.column()));
    let problem = match error {
        Error::SerdeUnknownField { expected, .. } => {
            format!("is no key that is known here; choose among {}, or remove it", expected.join(", "))
        }
        Error::DuplicateMappingKey { key: Some(name), .. } => format!("has the key {name} twice; keep one"),
        Error::MultipleDocuments { .. } => "starts a second document; the configuration is one".to_owned(),
        other => without_position(&other.to_string()).to_owned(),
    };
    Fault { position, key: as_written(path), problem }
}

/// A path without what isn't in the file: `.` for the whole, `?` for what the parser couldn't name, and the member
/// `value` of [`serde_saphyr::Spanned`]. No key of ours is called so; a variable may be.
fn as_written(path: &str) -> String {
    if path.starts_with("env.") {
        return path.trim_end_matches(".?").to_owned();
    }
    let keys = path.split('.').filter(|key| !matches!(*key, "" | "?" | "value"));
    keys.collect::<Vec<_>>().join(".")
}

/// The parser ends its messages with the position, which a [`Fault`] has in front.
fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(text, _)| text)
}

//! Strict YAML files: unknown keys are refused, and problems are reported with their line and key.
//!
//! A crate that owns a configuration defines its shape for serde. [`read_shape`] reads it, the crate's own check turns it
//! into settings or [`Problems`], [`load`] adds the name of the file, and [`ConfigWatcher`] reloads it.

mod poll;
mod problem;
mod shape;
mod watcher;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use self::poll::poll;
pub use self::problem::{ConfigError, Problem, Problems};
pub use self::shape::read_shape;
pub use self::watcher::{ConfigEvent, ConfigMetrics, ConfigWatcher};

/// The size limit of a ConfigMap.
const LARGEST: u64 = 1 << 20;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named() {
        let error = load(Path::new("/nowhere/config.yaml"), |_| Ok(())).expect_err("no such file");
        assert!(error.to_string().starts_with("/nowhere/config.yaml can't be read"), "{error}");
    }
}

//! The configuration: one YAML file, strict, proven before it is used, watched while it is.

mod check;
mod file;
mod watch;

#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Deserialize;

pub use self::watch::{ConfigEvent, ConfigWatcher};
use swansong_inject::policy::Policy;
pub use swansong_runtime::config::{ConfigError, Problem, Problems};

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
    pub fn parse(text: &str) -> Result<Self, Problems> {
        check::check(swansong_runtime::config::read_shape(text, Some("env"))?)
    }

    /// Reads a configuration from a file.
    ///
    /// # Errors
    ///
    /// When the file can't be read or [`Config::parse`] refuses it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        swansong_runtime::config::load(path, Self::parse)
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

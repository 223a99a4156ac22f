//! The agent's configuration: one strict YAML file.

mod faults;
mod file;
mod parser;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use self::faults::{FaultSettings, GatewaySettings};
use crate::{checks, preload, readiness};
pub use swansong_runtime::config::{ConfigError, Problem, Problems};

/// The agent's validated configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// What is required of the host.
    pub checks: checks::Settings,
    /// When processes of injected Pods are inspected.
    pub preload: preload::Settings,
    /// When status changes are reported.
    pub readiness: readiness::Settings,
    /// How device faults are reported and classified.
    pub faults: FaultSettings,
}

impl Config {
    /// Parses a configuration. An empty text is the default.
    ///
    /// # Errors
    ///
    /// All problems, each with its position and key.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        swansong_runtime::config::read_shape(text, None, parser::parse)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// When the file can't be read or [`Config::parse`] fails.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        swansong_runtime::config::load(path, Self::parse)
    }
}

//! The configuration: one strict YAML file, validated before use and reloaded when it changes.

mod check;
mod file;

#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Deserialize;

use swansong_inject::policy::{NativeSidecars, Policy};
pub use swansong_runtime::config::{ConfigError, Problem, Problems};
use swansong_trainer::TrainerReason;

/// The settings of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    policy: Policy,
    strictness: Strictness,
    /// Reasons for which jobs are denied.
    denied_trainers: Vec<TrainerReason>,
}

/// What happens to an object that can't be processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strictness {
    /// It is admitted unchanged, with a warning.
    #[default]
    Warn,
    /// The request is denied.
    Deny,
}

impl Config {
    /// Parses YAML; an empty text is the default.
    ///
    /// # Errors
    ///
    /// With all problems, each with its position and key.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        swansong_runtime::config::read_shape(text, Some("env"), check::check)
    }

    /// Reads and parses a file.
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

    /// The same configuration for a cluster with or without native sidecars.
    #[must_use]
    pub fn with_native_sidecars(self, native_sidecars: NativeSidecars) -> Self {
        Self { policy: self.policy.with_native_sidecars(native_sidecars), ..self }
    }

    /// The first reason for which a job with these findings is denied.
    pub fn denies(&self, findings: &[TrainerReason]) -> Option<TrainerReason> {
        findings.iter().copied().find(|reason| self.denied_trainers.contains(reason))
    }

    /// What happens to an object that can't be processed.
    pub const fn strictness(&self) -> Strictness {
        self.strictness
    }
}

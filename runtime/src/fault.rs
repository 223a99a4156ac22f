//! What is wrong with a configuration file, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line and column, from 1; `None` when the fault has no place.
    pub position: Option<(u64, u64)>,
    /// The key, as `ports.ttp.name`; empty for the file as a whole.
    pub key: String,
    /// What is wrong and what to do.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.position {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
}

/// Everything that is wrong with one text; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

impl Faults {
    /// `outcome` when nothing is wrong, else everything that is.
    ///
    /// # Errors
    ///
    /// When there is a fault.
    pub fn none_or<T>(faults: Vec<Fault>, outcome: T) -> Result<T, Self> {
        if faults.is_empty() { Ok(outcome) } else { Err(Self(faults)) }
    }

    /// The faults, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Why a configuration file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{path} can't be read ({problem}); check the path, and that this user may read it")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        problem: io::Error,
    },
    /// The file holds something else than a configuration.
    #[error("{path}: {faults}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        faults: Faults,
    },
}

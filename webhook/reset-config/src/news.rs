//! What the guard tells of itself, for logs and metrics.

use std::fmt;

use crate::agenda::Key;

/// What is watched; its text is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Watched {
    /// AscendJobs.
    AscendJobs,
    /// Volcano Jobs.
    VolcanoJobs,
    /// Labelled ConfigMaps.
    ConfigMaps,
}

impl Watched {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AscendJobs, Self::VolcanoJobs, Self::ConfigMaps];

    /// `AscendJob`, `VolcanoJob` or `ConfigMap`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AscendJobs => "AscendJob",
            Self::VolcanoJobs => "VolcanoJob",
            Self::ConfigMaps => "ConfigMap",
        }
    }
}

/// What a request was about; its text is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum About {
    /// A job.
    Job,
    /// A namespace.
    Namespace,
    /// A ConfigMap.
    ConfigMap,
    /// An Event.
    Event,
}

impl About {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Job, Self::Namespace, Self::ConfigMap, Self::Event];

    /// `job`, `namespace`, `config_map` or `event`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Namespace => "namespace",
            Self::ConfigMap => "config_map",
            Self::Event => "event",
        }
    }
}

/// How many jobs stand how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standings {
    /// Yet to be looked at, or waiting for an old ConfigMap to go.
    pub pending: u64,
    /// With a ConfigMap that ClusterD can use.
    pub sound: u64,
    /// That need none after all: finished, or in a namespace that is left out.
    pub nothing: u64,
    /// With one that ClusterD can't use, or a name with which there can be none.
    pub unusable: u64,
    /// For which none may be created.
    pub refused: u64,
}

/// Something worth a log line or a metric. `Display` is a sentence for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// All of these are known from now on.
    Watching(Watched),
    /// The cluster doesn't know this kind; looked for again from time to time.
    Absent(Watched),
    /// They can't be watched for now.
    NotWatching {
        /// What.
        what: Watched,
        /// Why.
        problem: String,
    },
    /// A ConfigMap was created.
    Created {
        /// For which job.
        job: Key,
    },
    /// People were told that a job's ConfigMap is of no use, or can't be.
    Complained {
        /// Which job.
        job: Key,
        /// What they were told.
        message: String,
    },
    /// The API server won't have a ConfigMap created.
    Refused {
        /// For which job.
        job: Key,
        /// What it says.
        problem: String,
    },
    /// A request failed; it is tried again.
    Failed {
        /// About what.
        about: About,
        /// What was asked and what happened.
        problem: String,
    },
    /// Requests succeed again.
    Recovered,
    /// How the jobs stand now.
    Standings(Standings),
}

impl News {
    /// Whether this is bad news.
    pub const fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::NotWatching { .. } | Self::Complained { .. } | Self::Refused { .. } | Self::Failed { .. }
        )
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watching(what) => write!(f, "each {} is known", what.as_str()),
            Self::Absent(what) => {
                write!(f, "this cluster knows no {}; looking for it from time to time", what.as_str())
            }
            Self::NotWatching { what, problem } => write!(f, "no watch of any {}: {problem}", what.as_str()),
            Self::Created { job } => write!(f, "created the reset ConfigMap of {job}"),
            Self::Complained { job, message } => write!(f, "{job}: {message}"),
            Self::Refused { job, problem } => {
                write!(f, "the reset ConfigMap of {job} can't be created: {problem}")
            }
            Self::Failed { about, problem } => write!(f, "{}: {problem}", about.as_str()),
            Self::Recovered => f.write_str("the API server answers again"),
            Self::Standings(standings) => write!(f, "{standings:?}"),
        }
    }
}

/// Whoever wants to know.
pub trait Observer: Send + Sync {
    /// It happened.
    fn observe(&self, news: &News);
}

impl<F: Fn(&News) + Send + Sync> Observer for F {
    fn observe(&self, news: &News) {
        self(news);
    }
}

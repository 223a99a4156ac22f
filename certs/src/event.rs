//! What this crate tells the server, which turns it into logs and metrics.

use std::fmt;
use std::time::SystemTime;

use crate::clock::rfc3339;

/// Where a certificate, or a failure to get one, came from. Its text serves as a metric label.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Source {
    /// A certificate file and a key file.
    Files,
    /// The Secret that Swansong keeps itself.
    Secret,
    /// The `caBundle` of the webhook configuration.
    CaBundle,
}

impl Source {
    /// The label: `files`, `secret` or `ca_bundle`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Secret => "secret",
            Self::CaBundle => "ca_bundle",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Something worth a log line or a metric. `Display` is a sentence for the log; no event holds key material.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A new pair is in use from now on.
    Loaded {
        /// Where it came from.
        source: Source,
        /// Serial number of the leaf.
        serial: String,
        /// When it ends; the expiry metric.
        not_after: SystemTime,
    },
    /// An attempt failed; the last good pair, if there was one, stays in use.
    Failed {
        /// What was attempted.
        source: Source,
        /// What went wrong and what to do about it.
        error: String,
    },
    /// What failed before succeeds again.
    Recovered {
        /// What had failed.
        source: Source,
    },
    /// This replica made a certificate authority and stored it.
    AuthorityIssued {
        /// Why there had to be one.
        reason: String,
        /// When it ends.
        not_after: SystemTime,
    },
    /// This replica made a leaf and stored it.
    LeafIssued {
        /// Why there had to be one.
        reason: String,
        /// Serial number of the leaf.
        serial: String,
        /// When it ends.
        not_after: SystemTime,
    },
    /// This replica put the authority into a webhook configuration.
    CaBundleSet {
        /// Name of the MutatingWebhookConfiguration.
        configuration: String,
        /// Names of the webhooks that lacked it.
        webhooks: Vec<String>,
    },
}

impl Event {
    /// Whether this is bad news; the server logs it as a warning then.
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded { source, serial, not_after } => {
                write!(out, "serving certificate {serial} from {source}, valid until {}", rfc3339(*not_after))
            }
            Self::Failed { source, error } => write!(out, "{source}: {error}"),
            Self::Recovered { source } => write!(out, "{source}: sound again"),
            Self::AuthorityIssued { reason, not_after } => write!(
                out,
                "made a new certificate authority, valid until {}, because {reason}",
                rfc3339(*not_after)
            ),
            Self::LeafIssued { reason, serial, not_after } => write!(
                out,
                "made certificate {serial}, valid until {}, because {reason}",
                rfc3339(*not_after)
            ),
            Self::CaBundleSet { configuration, webhooks } => write!(
                out,
                "set caBundle of {} in MutatingWebhookConfiguration {configuration}",
                webhooks.join(", ")
            ),
        }
    }
}

/// Takes events. Called from the loops of this crate, so it must not block.
pub trait Observer: Send + Sync + 'static {
    /// Takes one event.
    fn observe(&self, event: &Event);
}

impl<F> Observer for F
where
    F: Fn(&Event) + Send + Sync + 'static,
{
    fn observe(&self, event: &Event) {
        self(event);
    }
}

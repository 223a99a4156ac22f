//! What this crate tells the server, which turns it into logs and metrics.

use std::fmt;
use std::time::SystemTime;

use crate::anchor::AuthorityId;
use crate::clock::{Skew, rfc3339};
use crate::content::Stage;

/// Where a certificate, or a failure to get one, came from. Its text serves as a metric label.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Source {
    /// A certificate file and a key file.
    Files,
    /// The Secret that Swansong keeps itself.
    Secret,
    /// The `caBundle` of the webhook configuration.
    CaBundle,
    /// The file of authorities that clients are judged by.
    ClientRoots,
}

impl Source {
    /// The label: `files`, `secret`, `ca_bundle` or `client_roots`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Secret => "secret",
            Self::CaBundle => "ca_bundle",
            Self::ClientRoots => "client_roots",
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
    /// This replica made the successor of the authority in use and stored it.
    AuthorityAnnounced {
        /// Why there has to be one.
        reason: String,
        /// When it ends.
        not_after: SystemTime,
    },
    /// This replica took the successor into use.
    AuthorityPromoted {
        /// Why now.
        reason: String,
        /// When it ends.
        not_after: SystemTime,
    },
    /// This replica gave up an authority of the past.
    AuthorityRetired {
        /// Which.
        id: AuthorityId,
        /// Why now.
        reason: String,
    },
    /// This replica found an authority in a `caBundle` that the Secret had forgotten, and keeps it as one of the past.
    AuthorityFound {
        /// Which.
        id: AuthorityId,
    },
    /// How far a change of authority has come, as this replica sees it: at its first look and whenever it changes.
    Authorities {
        /// How far.
        stage: Stage,
        /// How many are to be trusted.
        trusted: usize,
        /// The one in use.
        id: AuthorityId,
        /// When that ends; the expiry metric of the authority.
        not_after: SystemTime,
    },
    /// There is a new leaf, and it isn't served yet because the API servers may not know its authority yet.
    HeldBack {
        /// Serial number of the leaf.
        serial: String,
        /// The authority.
        id: AuthorityId,
    },
    /// What is in use will end soon and nobody has renewed it; told once for each certificate.
    ExpiresSoon {
        /// Where it came from.
        source: Source,
        /// Serial number of the leaf.
        serial: String,
        /// When it ends.
        not_after: SystemTime,
    },
    /// This machine's clock is off the API server's, which counts from now on.
    ClockOff {
        /// How far.
        skew: Skew,
    },
    /// The two clocks agree again.
    ClockRight,
    /// An annotation asks for what there isn't.
    RequestIgnored {
        /// What it says.
        value: String,
    },
    /// New authorities that clients are judged by.
    ClientRootsLoaded {
        /// How many.
        authorities: usize,
    },
    /// This replica brought a webhook configuration into line with the Secret.
    CaBundleSet {
        /// Name of the MutatingWebhookConfiguration.
        configuration: String,
        /// Names of the webhooks that weren't.
        webhooks: Vec<String>,
    },
}

impl Event {
    /// Whether this is bad news; the server logs it as a warning then.
    pub const fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Failed { .. }
                | Self::ExpiresSoon { .. }
                | Self::ClockOff { .. }
                | Self::RequestIgnored { .. }
        )
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
            Self::AuthorityAnnounced { reason, not_after } => write!(
                out,
                "prepared a new certificate authority, valid until {}, because {reason}; it is taken into use when the API servers have had time to learn of it",
                rfc3339(*not_after)
            ),
            Self::AuthorityPromoted { reason, not_after } => write!(
                out,
                "took the prepared certificate authority, valid until {}, into use, because {reason}",
                rfc3339(*not_after)
            ),
            Self::AuthorityRetired { id, reason } => {
                write!(out, "certificate authority {id} is trusted no longer, because {reason}")
            }
            Self::AuthorityFound { id } => write!(
                out,
                "certificate authority {id} is in a caBundle though the Secret has forgotten it; it stays trusted until no replica needs it"
            ),
            Self::Authorities { stage, trusted, id, not_after } => write!(
                out,
                "certificate authority {id} is in use, valid until {}; {trusted} trusted, stage {stage}",
                rfc3339(*not_after)
            ),
            Self::HeldBack { serial, id } => write!(
                out,
                "certificate {serial} waits until the API servers have had time to learn of its authority {id}"
            ),
            Self::ExpiresSoon { source, serial, not_after } => write!(
                out,
                "certificate {serial} from {source} ends at {} and nothing has come to replace it; see why it isn't renewed",
                rfc3339(*not_after)
            ),
            Self::ClockOff { skew } => write!(
                out,
                "this machine's clock is {} s {} the API server's, whose time is used instead; set this machine's clock",
                skew.by.as_secs(),
                if skew.ahead { "ahead of" } else { "behind" }
            ),
            Self::ClockRight => out.write_str("this machine's clock agrees with the API server's again"),
            Self::RequestIgnored { value } => write!(
                out,
                "annotation {} says {value:?}, which is ignored; it can be ca or leaf",
                crate::ROTATE
            ),
            Self::ClientRootsLoaded { authorities } => {
                write!(out, "clients are judged by {authorities} authorities from now on")
            }
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

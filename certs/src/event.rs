//! Events that this crate reports to logs and metrics.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use strum::{Display, EnumDiscriminants, EnumIter, IntoStaticStr};

use crate::ca_certificate::CaId;
use crate::clock::{ClockSkew, rfc3339};

/// What a certificate, or the failure to get one, is read from. Its text is the metric label `source`.
#[derive(Clone, Copy, Debug, Display, Eq, Hash, IntoStaticStr, PartialEq)]
#[strum(serialize_all = "snake_case")]
pub enum Source {
    /// A certificate file and a key file.
    Files,
    /// The Secret that Swansong manages.
    Secret,
    /// The `caBundle` of the webhook configuration.
    CaBundle,
    /// The file of CAs that sign client certificates.
    ClientCa,
}

/// An event for logs and metrics. `Display` is the log message. No event contains key material.
#[derive(Clone, Debug, EnumDiscriminants, Eq, PartialEq)]
#[strum_discriminants(name(EventKind), vis(pub(crate)), derive(EnumIter, Hash, IntoStaticStr))]
#[strum_discriminants(strum(serialize_all = "snake_case"))]
#[non_exhaustive]
pub enum Event {
    /// A new pair is in use.
    Loaded {
        /// What it was read from.
        source: Source,
        /// Serial number of the leaf.
        serial: String,
        /// When the leaf expires.
        not_after: SystemTime,
    },
    /// A check failed. The last valid pair, if there is one, stays in use.
    Failed {
        /// What was checked.
        source: Source,
        /// The problem and what to do about it.
        error: String,
    },
    /// A check succeeded after a failure.
    Recovered {
        /// What was checked.
        source: Source,
    },
    /// This replica created a CA and took it into use at once.
    CaIssued {
        /// Why a CA was needed.
        reason: String,
        /// When the CA expires.
        not_after: SystemTime,
    },
    /// This replica issued a leaf and stored it.
    LeafIssued {
        /// Why a leaf was needed.
        reason: String,
        /// Serial number of the leaf.
        serial: String,
        /// When the leaf expires.
        not_after: SystemTime,
    },
    /// This replica created the next CA and stored it.
    CaAnnounced {
        /// Why a CA is needed.
        reason: String,
        /// When the CA expires.
        not_after: SystemTime,
    },
    /// This replica took the announced CA into use.
    CaPromoted {
        /// Why at this time.
        reason: String,
        /// When the CA expires.
        not_after: SystemTime,
    },
    /// This replica removed a previous CA.
    CaRetired {
        id: CaId,
        /// Why it was removed.
        reason: String,
    },
    /// This replica added a CA to the previous ones that a `caBundle` contained and the Secret didn't.
    CaAdopted { id: CaId },
    /// The CAs of the Secret differ from those of the last check.
    CasChanged {
        /// The CA in use.
        current: CaId,
        /// When the CA in use expires.
        not_after: SystemTime,
        /// Number of CAs that belong in the `caBundle`.
        trusted: usize,
        /// Whether another CA is announced.
        next_pending: bool,
    },
    /// A new leaf isn't served yet, since API servers may not have its CA yet.
    WaitingForCaBundle {
        /// Serial number of the leaf.
        serial: String,
        ca: CaId,
    },
    /// The certificate in use expires soon and has not been renewed. Reported once for each certificate.
    ExpiresSoon {
        /// What it was read from.
        source: Source,
        /// Serial number of the leaf.
        serial: String,
        /// When the leaf expires.
        not_after: SystemTime,
    },
    /// This machine's clock differs from the API server's, whose clock is used from now on.
    ClockSkewDetected {
        /// The difference between the clocks.
        skew: ClockSkew,
    },
    /// The two clocks agree again.
    ClockSkewResolved,
    /// The annotation [`ROTATE`](crate::ROTATE) has an unknown value.
    UnknownRotationRequest {
        /// Value of the annotation.
        value: String,
    },
    /// The CAs that sign client certificates changed.
    ClientCaLoaded {
        /// Number of CAs.
        cas: usize,
    },
    /// This replica updated the `caBundle` of a webhook configuration.
    CaBundleUpdated {
        /// Name of the MutatingWebhookConfiguration.
        configuration: String,
        /// Names of the updated webhooks.
        webhooks: Vec<String>,
    },
}

impl Event {
    /// Returns whether the event is a failure, which is logged as a warning.
    pub const fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Failed { .. }
                | Self::ExpiresSoon { .. }
                | Self::ClockSkewDetected { .. }
                | Self::UnknownRotationRequest { .. }
        )
    }

    pub(crate) fn kind(&self) -> EventKind {
        self.into()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded { source, serial, not_after } => {
                write!(out, "serving certificate {serial} from {source}, valid until {}", rfc3339(*not_after))
            }
            Self::Failed { source, error } => write!(out, "{source}: {error}"),
            Self::Recovered { source } => write!(out, "{source}: recovered"),
            Self::CaIssued { reason, not_after } => {
                write!(out, "issued a new CA, valid until {}, because {reason}", rfc3339(*not_after))
            }
            Self::LeafIssued { reason, serial, not_after } => write!(
                out,
                "issued certificate {serial}, valid until {}, because {reason}",
                rfc3339(*not_after)
            ),
            Self::CaAnnounced { reason, not_after } => write!(
                out,
                "announced the next CA, valid until {}, because {reason}; it is used when the API servers have had time to read the caBundle",
                rfc3339(*not_after)
            ),
            Self::CaPromoted { reason, not_after } => {
                write!(
                    out,
                    "took the next CA into use, valid until {}, because {reason}",
                    rfc3339(*not_after)
                )
            }
            Self::CaRetired { id, reason } => write!(out, "CA {id} is no longer trusted, because {reason}"),
            Self::CaAdopted { id } => write!(
                out,
                "CA {id} is in a caBundle and not in the Secret; it remains trusted until its leaves have expired"
            ),
            Self::CasChanged { current, not_after, trusted, next_pending } => write!(
                out,
                "CA {current} is in use, valid until {}; {trusted} trusted{}",
                rfc3339(*not_after),
                if *next_pending { ", the next one is announced" } else { "" }
            ),
            Self::WaitingForCaBundle { serial, ca } => write!(
                out,
                "certificate {serial} is not served until the API servers have had time to read its CA {ca} from the caBundle"
            ),
            Self::ExpiresSoon { source, serial, not_after } => write!(
                out,
                "certificate {serial} from {source} expires at {} and has not been renewed; check what renews it",
                rfc3339(*not_after)
            ),
            Self::ClockSkewDetected { skew } => write!(
                out,
                "this machine's clock is {} s {} the API server's, whose time is used instead; set this machine's clock",
                skew.by.as_secs(),
                if skew.ahead { "ahead of" } else { "behind" }
            ),
            Self::ClockSkewResolved => {
                out.write_str("this machine's clock agrees with the API server's again")
            }
            Self::UnknownRotationRequest { value } => write!(
                out,
                "annotation {} is {value:?}, which is ignored; use ca, leaf or revoke-ca",
                crate::ROTATE
            ),
            Self::ClientCaLoaded { cas } => write!(out, "client certificates of {cas} CAs are accepted"),
            Self::CaBundleUpdated { configuration, webhooks } => write!(
                out,
                "updated caBundle of {} in MutatingWebhookConfiguration {configuration}",
                webhooks.join(", ")
            ),
        }
    }
}

/// Receives events. It is called from the loops of this crate, so it must not block.
pub trait Observer: Send + Sync + 'static {
    /// Receives one event.
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

/// Reports the failures of one source when they begin or change, and their end.
pub(crate) struct FailureReporter {
    source: Source,
    observer: Arc<dyn Observer>,
    failing: Option<String>,
}

impl FailureReporter {
    pub(crate) const fn new(source: Source, observer: Arc<dyn Observer>) -> Self {
        Self { source, observer, failing: None }
    }

    pub(crate) const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    pub(crate) fn failed(&mut self, error: &impl fmt::Display) {
        let error = error.to_string();
        if self.failing.as_ref() != Some(&error) {
            self.observer.observe(&Event::Failed { source: self.source, error: error.clone() });
            self.failing = Some(error);
        }
    }

    pub(crate) fn recovered(&mut self) {
        if self.failing.take().is_some() {
            self.observer.observe(&Event::Recovered { source: self.source });
        }
    }
}

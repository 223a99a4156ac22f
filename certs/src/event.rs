//! Events that this crate reports to logs and metrics.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use strum::{Display, EnumDiscriminants, EnumIter, IntoStaticStr};
use tracing::{info, warn};

use crate::certificate::CaId;
use crate::error::Error;

/// Returns the wall-clock time. An argument, so that tests can judge certificates at any time.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Receives events. It is called from the loops of this crate, so it must not block.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

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

/// The difference between this machine's clock and the API server's in seconds, positive if this machine's is ahead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClockSkew(pub i64);

impl fmt::Display for ClockSkew {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} s {}", self.0.unsigned_abs(), if self.0 > 0 { "ahead of" } else { "behind" })
    }
}

/// An event for logs and metrics. `Display` is the log message. No event contains key material.
#[derive(Clone, Debug, Display, EnumDiscriminants, Eq, PartialEq)]
#[strum_discriminants(name(EventKind), vis(pub(crate)), derive(EnumIter, Hash, IntoStaticStr))]
#[strum_discriminants(strum(serialize_all = "snake_case"))]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Event {
    /// A new pair is in use.
    #[strum(to_string = "serving certificate {serial} from {source}, valid until {not_after}")]
    Loaded { source: Source, serial: String, not_after: Timestamp },
    /// A check failed. The last valid pair, if there is one, stays in use.
    #[strum(to_string = "{source}: {error}")]
    Failed { source: Source, error: String },
    /// A check succeeded after a failure.
    #[strum(to_string = "{source}: recovered")]
    Recovered { source: Source },
    /// This replica created a CA and took it into use at once.
    #[strum(to_string = "issued a new CA, valid until {not_after}, because {reason}")]
    CaIssued { reason: String, not_after: Timestamp },
    /// This replica issued a leaf and stored it.
    #[strum(to_string = "issued certificate {serial}, valid until {not_after}, because {reason}")]
    LeafIssued { reason: String, serial: String, not_after: Timestamp },
    /// This replica created the next CA and stored it.
    #[strum(
        to_string = "announced the next CA, valid until {not_after}, because {reason}; it is used when the API servers have had time to read the caBundle"
    )]
    CaAnnounced { reason: String, not_after: Timestamp },
    /// This replica took the announced CA into use.
    #[strum(to_string = "took the next CA into use, valid until {not_after}, because {reason}")]
    CaPromoted { reason: String, not_after: Timestamp },
    /// This replica removed a previous CA.
    #[strum(to_string = "CA {id} is no longer trusted, because {reason}")]
    CaRetired { id: CaId, reason: String },
    /// This replica added a CA to the previous ones that a `caBundle` contained and the Secret didn't.
    #[strum(
        to_string = "CA {id} is in a caBundle and not in the Secret; it remains trusted until its leaves have expired"
    )]
    CaAdopted { id: CaId },
    /// The CAs of the Secret differ from those of the last check. `trusted` is the number that belong in the `caBundle`.
    #[strum(
        to_string = "CA {current} is in use, valid until {not_after}; {trusted} trusted, next CA announced: {next_pending}"
    )]
    CasChanged { current: CaId, not_after: Timestamp, trusted: usize, next_pending: bool },
    /// A new leaf isn't served yet, since API servers may not have its CA yet.
    #[strum(
        to_string = "certificate {serial} is not served until the API servers have had time to read its CA {ca} from the caBundle"
    )]
    WaitingForCaBundle { serial: String, ca: CaId },
    /// The certificate in use expires soon and has not been renewed. Reported once for each certificate.
    #[strum(
        to_string = "certificate {serial} from {source} expires at {not_after} and has not been renewed; check what renews it"
    )]
    ExpiresSoon { source: Source, serial: String, not_after: Timestamp },
    /// This machine's clock differs from the API server's, whose clock is used from now on.
    #[strum(
        to_string = "this machine's clock is {skew} the API server's, whose time is used instead; set this machine's clock"
    )]
    ClockSkewDetected { skew: ClockSkew },
    /// The two clocks agree again.
    #[strum(to_string = "this machine's clock agrees with the API server's again")]
    ClockSkewResolved,
    /// The annotation [`ROTATE`](crate::ROTATE) has an unknown value.
    #[strum(
        to_string = "annotation swansong.dev/rotate is {value:?}, which is ignored; use ca, leaf or revoke-ca"
    )]
    UnknownRotationRequest { value: String },
    /// The CAs that sign client certificates changed.
    #[strum(to_string = "client certificates of {cas} CAs are accepted")]
    ClientCaLoaded { cas: usize },
    /// This replica updated the `caBundle` of these webhooks.
    #[strum(to_string = "updated caBundle of {webhooks} in MutatingWebhookConfiguration {configuration}")]
    CaBundleUpdated { configuration: String, webhooks: String },
}

impl Event {
    /// Returns whether the event is a failure.
    pub const fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Failed { .. }
                | Self::ExpiresSoon { .. }
                | Self::ClockSkewDetected { .. }
                | Self::UnknownRotationRequest { .. }
        )
    }

    /// Writes the event to the log, a failure as a warning.
    pub fn log(&self) {
        if self.is_failure() {
            warn!(problem = %self, "certificate");
        } else {
            info!(event = %self, "certificate");
        }
    }
}

/// Reports the failures of one source when they begin or change, and their end.
pub(crate) struct FailureReporter {
    source: Source,
    observer: Observer,
    failing: Option<Error>,
}

impl FailureReporter {
    pub(crate) const fn new(source: Source, observer: Observer) -> Self {
        Self { source, observer, failing: None }
    }

    pub(crate) const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    pub(crate) fn failed(&mut self, error: &Error) {
        if self.failing.as_ref() != Some(error) {
            (self.observer)(&Event::Failed { source: self.source, error: error.to_string() });
            self.failing = Some(error.clone());
        }
    }

    pub(crate) fn recovered(&mut self) {
        if self.failing.take().is_some() {
            (self.observer)(&Event::Recovered { source: self.source });
        }
    }
}

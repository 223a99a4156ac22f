//! Certificates of the webhook: where they come from, and how they reach TLS handshakes.
//!
//! The server creates one [`Resolver`] and, with [`server_config`], one TLS configuration. One of two sources publishes
//! pairs to the resolver:
//!
//! ```text
//! FileWatcher  files ──────────► Pair ──┐
//!                                       ├──► Resolver ──► each new handshake
//! Manager      Secret ─► decide ─► Pair ┘
//!                │         │
//!                │         └─► apply ─► Secret (first writer succeeds)
//!                └─► caBundle of the MutatingWebhookConfiguration
//! ```
//!
//! - [`FileWatcher`]: cert-manager or a user maintains the files.
//! - [`Manager`]: Swansong maintains a Secret and the `caBundle`.
//!
//! Neither replaces a valid pair by an invalid one, and neither ends. They report to an [`Observer`], and [`CertificateMetrics`]
//! counts what they report. The time comes from a [`Clock`].
//!
//! The module [`rotation`] describes how a CA is replaced without a rejected handshake. To request a rotation:
//! `kubectl annotate secret swansong-webhook-tls swansong.dev/rotate=ca` (or `=leaf`, `=revoke-ca`); see [`ROTATE`].
//!
//! [`ClientCaWatcher`] reads the CAs that sign client certificates, and [`ClientVerifier`] verifies clients by them.
//!
//! Pure: [`decide()`] and [`RotationState::next_step`] (what to do), [`apply()`] (the result in memory), [`bundle`] (the
//! content of a `caBundle`), [`CaCertificate`], [`CertificateAuthority`] and [`Pair`]. No type shows key material in
//! `Debug`, in errors or in events.

mod annotations;
mod apply;
pub mod bundle;
mod ca;
mod ca_bundle;
mod ca_certificate;
mod client_ca;
mod clock;
mod decide;
mod error;
mod event;
mod fields;
mod files;
mod manager;
mod metrics;
mod pair;
mod read_error;
mod renewal_limiter;
mod resolver;
pub mod rotation;
mod secret_data;
mod secret_store;
mod settings;
mod tls;
mod tls_error;

pub use annotations::{RETIRED, ROTATE, TRUSTED_UNTIL};
pub use apply::{Outcome, SecretUpdate, apply};
pub use ca::{
    BACKDATE, CA_VALIDITY, CaError, CertificateAuthority, IssuedCertificate, LEAF_VALIDITY, service_names,
};
pub use ca_certificate::{CaCertificate, CaId};
pub use client_ca::{ClientCaError, ClientCaWatcher, ClientVerifier};
pub use clock::{Clock, ClockSkew, SystemClock};
pub use decide::{CaReason, Decision, LeafReason, decide};
pub use error::ManagerError;
pub use event::{Event, Observer, Source};
pub use files::{FilePair, FileWatcher, FilesError, POLL_INTERVAL};
pub use manager::{CHECK_INTERVAL, ManagedObjects, Manager};
pub use metrics::CertificateMetrics;
pub use pair::{Pair, PairError, PemPair};
pub use read_error::ReadError;
pub use resolver::Resolver;
pub use rotation::{ObservedBundle, RotationState};
pub use secret_data::{
    MAX_PREVIOUS, PreviousCa, RotationRequest, SecretData, StoredPair, TrustedCas, VerifiedSecret,
};
pub use settings::{CLOCK_TOLERANCE, SETTLE_TIME, Settings};
pub use tls::{MinimumTls, TlsError, server_config};

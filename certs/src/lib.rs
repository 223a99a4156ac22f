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
//! [`ClientCaWatcher`] reads the CAs that sign client certificates and builds the TLS configuration that requires them.
//!
//! Pure: [`decide()`] and [`RotationState::next_step`] (what to do), [`apply()`] (the result in memory), [`bundle`] (the
//! content of a `caBundle`), [`Certificate`], [`CertificateAuthority`] and [`Pair`]. No type shows key material in
//! `Debug`, in errors or in events.

mod apply;
pub mod bundle;
mod ca;
mod ca_bundle;
mod certificate;
mod client_ca;
mod decide;
mod error;
mod event;
mod files;
mod manager;
mod metrics;
mod pair;
mod resolver;
pub mod rotation;
mod secret_data;
mod secret_store;
mod tls;

pub use apply::{SecretUpdate, apply};
pub use ca::{BACKDATE, CertificateAuthority, Settings, service_names};
pub use certificate::{CaId, Certificate, PemPair};
pub use client_ca::ClientCaWatcher;
pub use decide::{Decision, decide};
pub use error::Error;
pub use event::{Clock, ClockSkew, Event, Observer, Source};
pub use files::{FilePair, FileWatcher, POLL_INTERVAL};
pub use manager::{CHECK_INTERVAL, ManagedObjects, Manager};
pub use metrics::CertificateMetrics;
pub use pair::Pair;
pub use resolver::Resolver;
pub use rotation::{ObservedBundle, RotationState};
pub use secret_data::{MAX_PREVIOUS, PreviousCa, RotationRequest, SecretData, TrustedCas, VerifiedSecret};
pub use secret_store::{RETIRED, ROTATE, TRUSTED_UNTIL};
pub use tls::{client_cas, server_config};

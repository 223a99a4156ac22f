//! Certificates for the webhook: where they come from, how they are kept, how they reach a handshake.
//!
//! The server makes one [`Resolver`] and, with [`server_config`], one TLS configuration for its life. Then one of two
//! sources feeds the resolver:
//!
//! ```text
//! FileWatcher  files ──────────► Pair ──┐
//!                                       ├──► Resolver ──► each new handshake
//! Manager      Secret ─► decide ─► Pair ┘
//!                │         │
//!                │         └─► carry_out ─► Secret (first writer wins)
//!                └─► caBundle of the MutatingWebhookConfiguration
//! ```
//!
//! - [`FileWatcher`]: someone else keeps the pair. [`FileWatcher::poll`] once at start, [`FileWatcher::run`] beside the
//!   server.
//! - [`Manager`]: Swansong keeps the pair. [`Manager::run`] beside the server, which waits for [`Resolver::ready`].
//!
//! Neither gives up a good pair for a bad one, and neither ends. What they do and fail to do they tell an [`Observer`],
//! which turns it into logs and metrics. The time comes from a [`Clock`].
//!
//! Pure: [`decide()`] (what to do), [`carry_out`] (do it in memory), [`bundle`] (what a `caBundle` should hold),
//! [`Authority`] and [`Pair`]. With I/O: the two sources and what they stand on. No type here shows key material in
//! `Debug`, in errors or in events.

mod api;
mod authority;
pub mod bundle;
mod ca_bundle;
mod clock;
mod decide;
mod event;
mod facts;
mod files;
mod issue;
mod managed;
mod pair;
mod resolver;
mod secret;
mod tls;

pub use api::ManageError;
pub use authority::{
    AUTHORITY_VALIDITY, Authority, AuthorityError, BACKDATE, Issued, LEAF_VALIDITY, service_names,
};
pub use clock::{Clock, SystemClock};
pub use decide::{AuthorityReason, Decision, Held, LeafReason, SecretData, Settings, decide};
pub use event::{Event, Observer, Source};
pub use files::{FilePair, FileWatcher, FilesError, POLL_INTERVAL};
pub use issue::{Fresh, Outcome, carry_out};
pub use managed::{CHECK_INTERVAL, Manager, Objects};
pub use pair::{Pair, PairError, PemPair};
pub use resolver::Resolver;
pub use tls::{ClientRoots, MinimumTls, TlsError, TlsOptions, server_config};

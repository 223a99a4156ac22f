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
//! How an authority is changed without a moment in which an API server refuses a leaf is told in the [`rotation`]
//! module. By hand: `kubectl annotate secret swansong-webhook-tls swansong.dev/rotate=ca` (or `=leaf`); see [`ROTATE`].
//!
//! Who may call is the matter of [`ClientTrust`], which a [`ClientRootsWatcher`] keeps as its file says.
//!
//! Pure: [`decide()`] and [`Memory::next_step`] (what to do), [`carry_out`] and [`take_step`] (do it in memory),
//! [`bundle`] (what a `caBundle` should hold), [`Anchor`], [`Authority`] and [`Pair`]. With I/O: the sources and what
//! they stand on. No type here shows key material in `Debug`, in errors or in events.

mod anchor;
mod api;
mod authority;
pub mod bundle;
mod ca_bundle;
mod client_roots;
mod clock;
mod content;
mod decide;
mod event;
mod facts;
mod files;
mod issue;
mod ledger;
mod managed;
mod pair;
mod resolver;
mod restraint;
pub mod rotation;
mod secret;
mod settings;
mod tls;
mod told;
mod unreadable;

pub use anchor::{Anchor, AuthorityId};
pub use api::ManageError;
pub use authority::{
    AUTHORITY_VALIDITY, Authority, AuthorityError, BACKDATE, Issued, LEAF_VALIDITY, service_names,
};
pub use client_roots::{ClientRootsError, ClientRootsWatcher, ClientTrust};
pub use clock::{Clock, Skew, SystemClock};
pub use content::{Held, MAX_PREVIOUS, Request, SecretData, Stage, Trust};
pub use decide::{AuthorityReason, Decision, LeafReason, decide};
pub use event::{Event, Observer, Source};
pub use files::{FilePair, FileWatcher, FilesError, POLL_INTERVAL};
pub use issue::{Fresh, Outcome, carry_out, take_step};
pub use ledger::{Entry, Ledger};
pub use managed::{CHECK_INTERVAL, Manager, Objects};
pub use pair::{Pair, PairError, PemPair};
pub use resolver::Resolver;
pub use rotation::{BundleView, Memory, Step};
pub use secret::{RETIRED, ROTATE, SERVING};
pub use settings::{REPLICA_EXPIRY, Renewal, SETTLE, SKEW_TOLERANCE, Settings};
pub use tls::{ClientRoots, MinimumTls, TlsError, TlsOptions, server_config, server_config_with_clients};

//! A durable, bounded, ordered outbox.
//!
//! Entries wait in it until their receiver accepts or refuses them. It knows nothing of what they mean beyond
//! this: an entry belongs to a *key*, within which order is kept; and to an episode, its *id*, which begins
//! ([`Kind::Occur`]), stands at the receiver from when that was accepted, and ends ([`Kind::Recover`]); or
//! happens [`Kind::Once`].
//!
//! What holds, whenever the process is killed:
//! - What was appended is sent at least once, always with the same id; what is sent twice has that id twice.
//! - Entries of one key are sent in the order in which they were appended, if only [`Outbox::heads`] are
//!   sent.
//! - A recovery is never dropped and never refused for want of room while its beginning waits or stands.
//! - Number and size are bounded by [`Limits`].
//! - A file that can't be used is set aside, not emptied.
//! - Without a disk it works in memory, says so, and writes everything as soon as there is one.
//!
//! Everything is in memory as well; the file follows it, one transaction and one `fdatasync` per operation.
//! The calls block for that long: call them where blocking is right. `docs/decisions/0015` has the reasons.

mod entry;
mod folder;
mod outbox;
mod overlay;
mod problem;
mod queue;
mod record;
mod state;
mod store;
mod upgrade;

pub use self::entry::{Appended, Counts, DeadLetter, Entry, Kind, Limits, Offered, Pending, Standing, Unfit};
pub use self::outbox::{OpenError, Opened, Outbox, SetAside};
pub use self::state::Refused;

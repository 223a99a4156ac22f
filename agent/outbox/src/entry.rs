//! What goes in and what comes out.

use serde::{Deserialize, Serialize};

/// What an entry says of its episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An episode began. It stands at the receiver from when it is accepted until its recovery is.
    Occur,
    /// An episode is over. Never dropped while its beginning is known.
    Recover,
    /// Something happened that nothing takes back.
    Once,
}

/// Something to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is about. Entries of one key are sent in the order in which they came.
    pub key: String,
    /// The episode: an [`Kind::Occur`] and its [`Kind::Recover`] share it, and a new episode has a new one.
    /// It belongs to one key.
    pub id: String,
    /// What it says.
    pub kind: Kind,
    /// When it happened, milliseconds since 1970. Data only: order is by sequence.
    pub at: u64,
    /// What is sent. The outbox doesn't look into it.
    pub body: Vec<u8>,
}

/// An entry that waits to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its place. Grows with every entry stored, and is never given twice.
    pub seq: u64,
    /// What it is.
    pub entry: Entry,
    /// How often it may have been sent.
    pub offered: Offered,
}

/// How often an entry may have been sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offered {
    /// Not at all: the receiver can't know of it.
    #[default]
    Never,
    /// At most once.
    Once,
    /// Perhaps more than once: an answer may have been lost.
    Again,
}

/// An episode that stands at the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What it is about.
    pub key: String,
    /// The episode.
    pub id: String,
    /// When it began, milliseconds since 1970.
    pub at: u64,
    /// When it was accepted, milliseconds since 1970.
    pub accepted_at: u64,
    /// Whether the receiver said that it took it. If not, it refused it after an attempt whose answer was
    /// lost, so that it may have it all the same.
    pub certain: bool,
    /// What was sent.
    pub body: Vec<u8>,
    /// Whatever its owner wants to remember of it: see [`crate::Outbox::note`].
    pub note: Vec<u8>,
}

/// An entry that the receiver refused for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its place among the entries.
    pub seq: u64,
    /// What it was.
    pub entry: Entry,
    /// Why it was refused.
    pub why: String,
    /// When, milliseconds since 1970.
    pub refused_at: u64,
}

/// How much is kept.
///
/// Entries that begin something and what stands count against `entries` and `bytes`. Recoveries don't, since
/// none may be refused: there are at most as many of them as of those, each of at most `entry_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many entries, recoveries aside, wait or stand.
    pub entries: usize,
    /// How many bytes they have: keys, ids, bodies and notes.
    pub bytes: usize,
    /// How many bytes one has, or its note.
    pub entry_bytes: usize,
    /// How many dead letters are kept; the oldest go first.
    pub dead_letters: usize,
}

impl Default for Limits {
    /// 4,096 entries of 4 MiB together and 16 KiB each, and 256 dead letters.
    fn default() -> Self {
        Self { entries: 4096, bytes: 4 << 20, entry_bytes: 16 << 10, dead_letters: 256 }
    }
}

/// What became of an entry that was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// It waits, at this place.
    Stored(u64),
    /// The same id and kind waits already, at this place.
    Pending(u64),
    /// It begins what stands already.
    Standing,
    /// It begins what is over: the recovery of this id waits. A new episode needs a new id.
    Over,
    /// It recovers what neither waits nor stands: there is nothing to tell.
    Unknown,
    /// There is no room. Never said of a recovery.
    Full,
    /// It can't be kept.
    Unfit(Unfit),
}

/// Why an entry can't be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Key or id is empty.
    #[error("key and id must not be empty")]
    Empty,
    /// It is larger than one entry may be.
    #[error("it has {bytes} bytes and at most {limit} are kept: shorten it, or raise the limit of an entry")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },
    /// Its id belongs to another key.
    #[error("its id is that of an episode of `{key}`: use another one")]
    OtherKey {
        /// Which.
        key: String,
    },
    /// Its id is that of another kind of entry: of a [`Kind::Once`] if this isn't one, or the reverse.
    #[error("its id is taken by an entry of another kind: use another one")]
    OtherKind,
}

/// How much is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries that wait.
    pub pending: usize,
    /// Episodes that stand at the receiver.
    pub standing: usize,
    /// Dead letters.
    pub dead_letters: usize,
    /// Bytes that count against [`Limits::bytes`].
    pub bytes: usize,
    /// Episodes that vanished unsent for want of room, since the outbox was opened.
    pub coalesced: u64,
    /// Entries for which there was no room, since the outbox was opened.
    pub full: u64,
}

impl Entry {
    /// What it takes of [`Limits::bytes`].
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.id.len() + self.body.len()
    }
}

impl Standing {
    /// What it takes of [`Limits::bytes`].
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.id.len() + self.body.len() + self.note.len()
    }
}

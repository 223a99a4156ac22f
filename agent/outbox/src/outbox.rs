//! The outbox: what is in memory, and the file that follows it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::entry::{Appended, Counts, DeadLetter, Entry, Limits, Pending, Standing};
use crate::folder::{Folder, Identity};
use crate::record::{self, RecordKey};
use crate::state::{Refused, State};
use crate::store::{Change, Failure, Store};

mod attach;

use self::attach::Trouble;

/// While there is no disk it is tried again with an operation, but no more often than that.
const PAUSE: Duration = Duration::from_secs(1);

/// The first place where the file couldn't be read: what it holds is older and gets places below.
const UNREAD: u64 = 1 << 40;

/// A durable, bounded, ordered outbox: see the crate's own page.
#[derive(Debug)]
pub struct Outbox {
    state: State,
    file: Option<(Store, Identity)>,
    /// Holds the lock: dropped after the file is closed.
    folder: Folder,
    problem: Option<String>,
    tried: Instant,
    /// Marks the file as written by this outbox.
    writer: u64,
    /// Who wrote what was read from the file.
    base: Option<u64>,
    /// Whether anything happened to it.
    used: bool,
    /// Whether the file can't be trusted to be on disk as it reads.
    suspect: bool,
    opened: Opened,
}

/// What was found when an outbox came to its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Whether there was a file, or at least something in its place.
    pub existed: bool,
    /// How many entries wait, of those that it held.
    pub pending: usize,
    /// How many episodes stand, of those that it held.
    pub standing: usize,
    /// The version of its format, if that was an older one. It was brought to the newest.
    pub upgraded_from: Option<u64>,
    /// What was in its place couldn't be used and has another name now.
    pub set_aside: Option<SetAside>,
}

/// What couldn't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Where it is.
    pub moved_to: PathBuf,
    /// What was wrong with it. If some records were still sound, they are kept, and counted in [`Opened`].
    pub why: String,
}

/// An outbox can't be opened. Whatever else happens, it opens in memory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error(
        "another process uses the outbox in {folder}, and did so for {waited:?}: two agents can't share one; \
         end the other, or give this one a folder of its own"
    )]
    Held {
        /// Which folder.
        folder: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
}

impl Outbox {
    /// Opens the outbox in `folder`, and makes it if there is none; waits at most `patience` for another
    /// process that uses it.
    ///
    /// Where the disk doesn't allow it, the outbox works in memory: [`Self::durable`] and [`Self::problem`]
    /// tell.
    pub fn open(folder: &Path, limits: Limits, patience: Duration) -> Result<(Self, Opened), OpenError> {
        let mut outbox = Self {
            state: State::new(limits, 1),
            folder: Folder::new(folder),
            file: None,
            problem: None,
            tried: Instant::now(),
            writer: fastrand::u64(1..),
            base: None,
            used: false,
            suspect: false,
            opened: Opened::default(),
        };
        if let Err(Trouble::Held) = outbox.attach(limits, patience) {
            return Err(OpenError::Held { folder: folder.to_owned(), waited: patience });
        }
        if outbox.base.is_none() && outbox.file.is_none() {
            outbox.state = State::new(limits, UNREAD);
        }
        let opened = outbox.opened.clone();
        Ok((outbox, opened))
    }

    /// Takes an entry. Once it returns, the entry is on disk, unless [`Self::durable`] says otherwise.
    pub fn append(&mut self, entry: Entry) -> Appended {
        let appended = self.state.append(entry);
        self.flush();
        appended
    }

    /// Takes entries, in order, at the cost of one.
    pub fn append_all(&mut self, entries: impl IntoIterator<Item = Entry>) -> Vec<Appended> {
        let appended = entries.into_iter().map(|entry| self.state.append(entry)).collect();
        self.flush();
        appended
    }

    /// The first entry of each key, in the order in which they came. Only these may be sent: one key is told
    /// in order.
    pub fn heads(&self) -> impl Iterator<Item = &Pending> {
        self.state.queue().heads()
    }

    /// What waits behind the head of a key, in order.
    pub fn behind(&self, key: &str) -> impl Iterator<Item = &Pending> {
        self.state.queue().of_key(key).skip(1)
    }

    /// All that waits, in order.
    pub fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.state.queue().iter()
    }

    /// Notes that entries may be sent from now on; called before each attempt to send them. Says which of
    /// them are there: those may be sent, the others are gone.
    ///
    /// What was offered is neither withdrawn nor let go for want of room. The second time counts too: see
    /// [`Self::refuse`]. From the third on, and for a recovery, it costs nothing.
    pub fn mark_offered(&mut self, places: &[u64]) -> Vec<u64> {
        let there = self.state.mark_offered(places);
        self.flush();
        there
    }

    /// Notes that the receiver took entries: an [`crate::Kind::Occur`] stands from now on, with a
    /// [`crate::Kind::Recover`] its episode is gone, a [`crate::Kind::Once`] is gone. Says which of them were
    /// there.
    pub fn accept(&mut self, places: &[u64], at: u64) -> Vec<u64> {
        let there = self.state.accept(places, at);
        self.flush();
        there
    }

    /// Takes entries back that were never offered, an episode's beginning together with its recovery; either
    /// may be named. Says what is gone. What was offered stays, since the receiver may know of it.
    pub fn withdraw(&mut self, places: &[u64]) -> Vec<u64> {
        let gone = self.state.withdraw(places);
        self.flush();
        gone
    }

    /// Notes that the receiver refused an entry for good. It becomes a dead letter; those are bounded, and
    /// the oldest go first.
    ///
    /// What becomes of its recovery hangs on whether the receiver may have the beginning. If it was offered
    /// once, that attempt is the one refused: it doesn't, and the recovery goes too. If it was offered again,
    /// an earlier answer may have been lost: the episode counts as standing, not `certain`, and its recovery
    /// will be sent. To recover what isn't there does no harm; not to recover what is there does, for good.
    pub fn refuse(&mut self, seq: u64, why: &str, at: u64) -> Refused {
        let refused = self.state.refuse(seq, why, at);
        self.flush();
        refused
    }

    /// What stands at the receiver, by id.
    pub fn standing(&self) -> impl Iterator<Item = &Standing> {
        self.state.standing()
    }

    /// The episode of that id, if it stands.
    pub fn standing_of(&self, id: &str) -> Option<&Standing> {
        self.state.standing_of(id)
    }

    /// Keeps a note with an episode that stands; false if it doesn't, or if the note is larger than an entry may be.
    pub fn note(&mut self, id: &str, note: &[u8]) -> bool {
        let noted = self.state.note(id, note);
        self.flush();
        noted
    }

    /// What the receiver refused, in the order in which it came.
    pub fn dead_letters(&self) -> impl Iterator<Item = &DeadLetter> {
        self.state.dead_letters()
    }

    /// The place that the next entry gets.
    pub fn next_place(&self) -> u64 {
        self.state.next()
    }

    /// How much is there.
    pub fn counts(&self) -> Counts {
        self.state.counts()
    }

    /// Whether everything is on disk.
    pub fn durable(&self) -> bool {
        self.file.is_some()
    }

    /// Why not everything is on disk, and what to do.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// What was found when it came to its file last: when it was opened, or later when the disk was there again.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Tries to get everything on disk if it isn't; operations try that as well, but no more often than once
    /// a second. To be called now and then while it isn't [`Self::durable`]. Says whether it is now.
    pub fn retry(&mut self) -> bool {
        if self.file.is_none() {
            self.tried = Instant::now();
            // What is wrong is in `problem`.
            let _ = self.attach(self.state.limits(), Duration::ZERO);
        }
        self.durable()
    }

    /// Writes what an operation touched.
    fn flush(&mut self) {
        let touched = self.state.take_touched();
        self.used |= !touched.is_empty();
        match &mut self.file {
            Some(_) if touched.is_empty() => {}
            Some((store, identity)) => {
                let change = |key: &RecordKey| (key.to_bytes(), record::value(&self.state, key));
                let changes: Vec<Change> = touched.iter().map(change).collect();
                let written = store.write(&changes, None).and_then(|()| {
                    let moved = || Failure::Disk(io::Error::other("the file was moved or deleted"));
                    self.folder.is_there(*identity).then_some(()).ok_or_else(moved)
                });
                if let Err(failure) = written {
                    self.opened = Opened::default();
                    self.detach(&Trouble::Failed("write", failure));
                }
            }
            None if self.tried.elapsed() >= PAUSE => {
                self.retry();
            }
            None => {}
        }
    }
}

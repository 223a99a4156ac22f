//! How an outbox comes to its file, and leaves it.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::{Outbox, SetAside};
use crate::entry::Limits;
use crate::folder::{Identity, LockError, Place};
use crate::problem;
use crate::record;
use crate::state::{Records, State};
use crate::store::{self, Change, Content, Failure, Stamp, Store};
use crate::upgrade::{Raw, VERSION, upgrade};

/// A file larger than this is made as small as it can be when it is opened.
const COMPACT_FROM: u64 = 4 << 20;

/// Why an outbox is in memory only.
pub(super) enum Trouble {
    Held,
    Failed(&'static str, Failure),
}

impl Trouble {
    fn write(failure: impl Into<Failure>) -> Self {
        Self::Failed("write", failure.into())
    }
}

impl Outbox {
    /// Lets go of the file; what was written since stays in memory.
    pub(super) fn detach(&mut self, trouble: &Trouble) {
        self.file = None;
        self.tried = Instant::now();
        self.problem = Some(match trouble {
            Trouble::Held => problem::held(self.folder.path()),
            Trouble::Failed(what, failure) => problem::text(what, self.folder.path(), failure),
        });
        // A disk that was full did nothing. One that failed otherwise may show from its cache what it never
        // wrote, so that only a new file is sure to be on it.
        let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
        if let Trouble::Failed("write", failure) = trouble {
            self.suspect |= !matches!(failure, Failure::Disk(error) if full.contains(&error.kind()));
        }
    }

    /// Comes to the file: reads it if that wasn't done, sets aside what can't be used, and makes it hold what
    /// is in memory.
    pub(super) fn attach(&mut self, limits: Limits, patience: Duration) -> Result<(), Trouble> {
        let locked = match self.folder.lock(patience) {
            Ok(()) => Ok(()),
            Err(LockError::Held) => Err(Trouble::Held),
            Err(LockError::Disk(error)) => Err(Trouble::Failed("lock", Failure::Disk(error))),
        };
        let attached = match locked {
            Err(Trouble::Held) => Err(Trouble::Held),
            // Where nothing can be locked since nothing can be written, what is there can still be read.
            locked => self.read(limits).and_then(|found| locked.and_then(|()| self.write(found))),
        };
        match attached {
            Ok(file) => {
                self.file = Some(file);
                self.problem = None;
                self.suspect = false;
                Ok(())
            }
            Err(trouble) => {
                self.detach(&trouble);
                Err(trouble)
            }
        }
    }

    /// Reads what is there and takes it in.
    fn read(&mut self, limits: Limits) -> Result<Found, Trouble> {
        let found = match self.folder.look() {
            Err(error) => Err(Failure::Disk(error)),
            Ok(Place::Nothing) => return Ok(Found::Nothing),
            Ok(Place::Other(what)) => Err(Failure::Unsound(format!("it is {what}"))),
            Ok(Place::File(file)) => store::read(file),
        };
        let found = match found {
            Ok(content) => match self.take_in(&content, limits) {
                None => Found::Sound(content.raw),
                Some(why) => Found::Unsound(why),
            },
            Err(Failure::Unsound(why)) => Found::Unsound(why),
            Err(failure) => return Err(Trouble::Failed("read", failure)),
        };
        self.opened.existed = true;
        Ok(found)
    }

    /// Takes the records of a file in, unless it is this outbox that wrote or read them. What is wrong with
    /// them, if something is.
    fn take_in(&mut self, content: &Content, limits: Limits) -> Option<String> {
        let newest;
        let raw = if content.version < VERSION {
            newest = upgrade(content.version, content.raw.clone());
            &newest
        } else {
            &content.raw
        };
        let mut records = Records::default();
        let mut damaged = Vec::new();
        for (key, value) in raw {
            damaged.extend(record::read(key, value, &mut records).err());
        }
        if content.writer != self.writer && self.base != Some(content.writer) {
            self.opened.upgraded_from = (content.version < VERSION).then_some(content.version);
            self.opened.pending = records.pending.len();
            self.opened.standing = records.standing.len();
            let older = State::restore(records, limits);
            if self.used {
                self.state.merge(older);
            } else {
                self.state = older;
            }
            self.base = Some(content.writer);
        }
        let first = damaged.first()?;
        Some(format!("{} of its records are damaged, the first: {first}", damaged.len()))
    }

    /// Makes the file hold what is in memory.
    fn write(&mut self, found: Found) -> Result<(Store, Identity), Trouble> {
        let unsound = match found {
            Found::Sound(before) if !self.suspect => match self.write_in_place(before) {
                // What could be read a moment ago and now can't be opened is no place to write to.
                Err(Failure::Unsound(why)) => Some(why),
                written => return written.map_err(Trouble::write),
            },
            Found::Sound(_) | Found::Nothing => None,
            Found::Unsound(why) => Some(why),
        };
        self.write_anew(unsound).inspect_err(|_| self.folder.discard())
    }

    fn write_in_place(&mut self, before: Raw) -> Result<(Store, Identity), Failure> {
        let (file, identity) = self.folder.open()?;
        let bytes = file.metadata()?.len();
        let mut store = Store::open(store::backend(file)?)?;
        store.write(&self.changes(before), Some(self.stamp()))?;
        if bytes > COMPACT_FROM {
            store.compact()?;
        }
        self.written();
        Ok((store, identity))
    }

    /// Writes a new file and puts it in the place of what is there, which is set aside if it isn't sound.
    /// Whatever moment it is killed at, the old or the new one is in its place.
    fn write_anew(&mut self, unsound: Option<String>) -> Result<(Store, Identity), Trouble> {
        let file = self.folder.make().map_err(Trouble::write)?;
        let mut store = store::backend(file).and_then(Store::open).map_err(Trouble::write)?;
        store.write(&self.changes(Raw::new()), Some(self.stamp())).map_err(Trouble::write)?;
        if let Some(why) = unsound {
            let moved = self.folder.set_aside();
            let moved_to =
                moved.map_err(|error| Trouble::Failed("set aside what is damaged in", error.into()))?;
            self.opened.set_aside = Some(SetAside { moved_to, why });
        }
        let identity = self.folder.install().map_err(Trouble::write)?;
        self.written();
        Ok((store, identity))
    }

    /// What makes `before` what is in memory.
    fn changes(&self, mut before: Raw) -> Vec<Change> {
        let mut changes = Vec::new();
        for key in self.state.all() {
            let bytes = key.to_bytes();
            let value = record::value(&self.state, &key);
            if before.remove(&bytes) != value {
                changes.push((bytes, value));
            }
        }
        changes.extend(before.into_keys().map(|key| (key, None)));
        changes
    }

    fn stamp(&self) -> Stamp {
        Stamp { version: VERSION, writer: self.writer }
    }

    fn written(&mut self) {
        self.state.take_touched();
        self.base = Some(self.writer);
    }
}

/// What is in the place of the file.
enum Found {
    Nothing,
    Sound(Raw),
    Unsound(String),
}

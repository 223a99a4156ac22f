//! How records are written.
//!
//! A key is a letter and what tells records of that letter apart. A value is a CRC-32 of key and rest (4
//! bytes, little endian), the length of a JSON object (4 bytes, little endian), that object, and the body as
//! it came. The checksum is ours because the store's own guards its pages and not what is in them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::entry::{DeadLetter, Entry, Kind, Offered, Pending, Standing};
use crate::state::{Records, State};

/// Which record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RecordKey {
    /// The next place to be given.
    Next,
    /// What waits at a place.
    Pending(u64),
    /// What stands, by id.
    Standing(String),
    /// A dead letter, by place.
    Dead(u64),
}

/// A record can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {key}: {why}")]
pub(crate) struct Damaged {
    /// Its key, readable.
    pub(crate) key: String,
    why: &'static str,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NextHeader {
    next: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PendingHeader<S> {
    key: S,
    id: S,
    kind: Kind,
    at: u64,
    offered: Offered,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StandingHeader<S> {
    key: S,
    id: S,
    at: u64,
    accepted_at: u64,
    certain: bool,
    note_bytes: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeadHeader<S> {
    key: S,
    id: S,
    kind: Kind,
    at: u64,
    why: S,
    refused_at: u64,
}

impl RecordKey {
    /// As it's written.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (letter, rest) = match self {
            Self::Next => (b'n', Vec::new()),
            Self::Pending(seq) => (b'p', seq.to_be_bytes().to_vec()),
            Self::Standing(id) => (b's', id.as_bytes().to_vec()),
            Self::Dead(seq) => (b'd', seq.to_be_bytes().to_vec()),
        };
        [vec![letter], rest].concat()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (letter, rest) = bytes.split_first()?;
        let seq = || rest.try_into().ok().map(u64::from_be_bytes);
        match letter {
            b'n' if rest.is_empty() => Some(Self::Next),
            b'p' => seq().map(Self::Pending),
            b's' => String::from_utf8(rest.to_vec()).ok().map(Self::Standing),
            b'd' => seq().map(Self::Dead),
            _ => None,
        }
    }
}

/// The value of a record as it is now; nothing if it's gone.
pub(crate) fn value(state: &State, key: &RecordKey) -> Option<Vec<u8>> {
    let bytes = key.to_bytes();
    match key {
        RecordKey::Next => Some(seal(&bytes, &NextHeader { next: state.next() }, &[])),
        RecordKey::Pending(seq) => {
            let Pending { entry, offered, .. } = state.queue().get(*seq)?;
            let Entry { key, id, kind, at, body } = entry;
            Some(seal(&bytes, &PendingHeader { key, id, kind: *kind, at: *at, offered: *offered }, &[body]))
        }
        RecordKey::Standing(id) => {
            let Standing { key, id, at, accepted_at, certain, body, note } = state.standing_of(id)?;
            let (at, accepted_at, certain) = (*at, *accepted_at, *certain);
            let header = StandingHeader { key, id, at, accepted_at, certain, note_bytes: note.len() };
            Some(seal(&bytes, &header, &[note, body]))
        }
        RecordKey::Dead(seq) => {
            let DeadLetter { entry, why, refused_at, .. } = state.dead_letter(*seq)?;
            let Entry { key, id, kind, at, body } = entry;
            let header = DeadHeader { key, id, kind: *kind, at: *at, why, refused_at: *refused_at };
            Some(seal(&bytes, &header, &[body]))
        }
    }
}

/// Adds a record to those that were read.
pub(crate) fn read(key: &[u8], value: &[u8], records: &mut Records) -> Result<(), Damaged> {
    let damaged = |why| Damaged { key: key.escape_ascii().to_string(), why };
    let name = RecordKey::parse(key).ok_or_else(|| damaged("its key is none"))?;
    match name {
        RecordKey::Next => {
            let (header, _): (NextHeader, _) = open(key, value).map_err(damaged)?;
            records.next = Some(header.next);
        }
        RecordKey::Pending(seq) => {
            let (header, body): (PendingHeader<String>, _) = open(key, value).map_err(damaged)?;
            let PendingHeader { key, id, kind, at, offered } = header;
            records.pending.push(Pending { seq, entry: Entry { key, id, kind, at, body }, offered });
        }
        RecordKey::Standing(id) => {
            let (header, mut note): (StandingHeader<String>, _) = open(key, value).map_err(damaged)?;
            if header.note_bytes > note.len() || header.id != id {
                return Err(damaged("what it says of itself isn't so"));
            }
            let body = note.split_off(header.note_bytes);
            let StandingHeader { key, at, accepted_at, certain, .. } = header;
            records.standing.push(Standing { key, id, at, accepted_at, certain, body, note });
        }
        RecordKey::Dead(seq) => {
            let (header, body): (DeadHeader<String>, _) = open(key, value).map_err(damaged)?;
            let DeadHeader { key, id, kind, at, why, refused_at } = header;
            records.dead.push(DeadLetter { seq, entry: Entry { key, id, kind, at, body }, why, refused_at });
        }
    }
    Ok(())
}

/// A value of a header and what follows it.
pub(crate) fn seal(key: &[u8], header: &impl Serialize, rest: &[&[u8]]) -> Vec<u8> {
    // A struct of texts and numbers is always JSON.
    let header = serde_json::to_vec(header).unwrap_or_default();
    let length = u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes();
    let rest = [&length, header.as_slice(), &rest.concat()].concat();
    [checksum(key, &rest).to_le_bytes().as_slice(), &rest].concat()
}

/// Header and the rest of a value.
pub(crate) fn open<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<(T, Vec<u8>), &'static str> {
    let (sum, rest) = value.split_first_chunk::<4>().ok_or("it is cut off")?;
    if u32::from_le_bytes(*sum) != checksum(key, rest) {
        return Err("its checksum is wrong");
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or("it is cut off")?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (header, rest) = rest.split_at_checked(length).ok_or("it is cut off")?;
    let header = serde_json::from_slice(header).map_err(|_| "it isn't of this version's form")?;
    Ok((header, rest.to_vec()))
}

fn checksum(key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

//! Which replica serves leaves of which authority, written by each replica into one annotation of the Secret.
//!
//! It is kept only while an authority of the past is trusted still: that one may go when nobody alive serves its leaves.
//! An entry has no time in it, since clocks differ. Whoever still serves the past counts its entry up now and then, and
//! the others see by their own clocks whether it has gone silent.

use std::collections::BTreeMap;
use std::fmt;

use crate::anchor::AuthorityId;

/// Replicas that are noted at most.
const MAX_ENTRIES: usize = 256;

/// The longest name of a replica: a pod's.
const MAX_NAME: usize = 253;

/// What one replica says of itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The authority of the leaf that it serves.
    pub serves: AuthorityId,
    /// Counted up as a sign of life.
    pub beat: u64,
}

/// The entries by the replica's name. Written as `name=authority/beat`, parted by blanks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ledger(BTreeMap<String, Entry>);

impl Ledger {
    /// Reads the annotation. What is damaged is left out: its writer will write it again.
    pub fn parse(text: &str) -> Self {
        let entries = text.split_ascii_whitespace().filter_map(|part| {
            let (name, entry) = part.split_once('=')?;
            let (serves, beat) = entry.split_once('/')?;
            let entry = Entry { serves: AuthorityId::parse(serves)?, beat: beat.parse().ok()? };
            (replica_name(name) == name).then(|| (name.to_owned(), entry))
        });
        Self(entries.take(MAX_ENTRIES).collect())
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// The entry of this replica.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.0.get(name)
    }

    /// Notes what this replica serves. When there are too many, one that serves the authority in use makes room: only
    /// those that serve the past are waited for.
    pub(crate) fn note(&mut self, name: &str, entry: Entry, current: &AuthorityId) {
        if self.0.len() >= MAX_ENTRIES && !self.0.contains_key(name) {
            let harmless = self.0.iter().find(|(_, entry)| entry.serves == *current);
            if let Some(name) = harmless.map(|(name, _)| name.clone()) {
                self.0.remove(&name);
            }
        }
        self.0.insert(name.to_owned(), entry);
    }

    /// Forgets these replicas.
    pub(crate) fn forget(&mut self, gone: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| !gone(name));
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, entry)) in self.iter().enumerate() {
            let gap = if position == 0 { "" } else { " " };
            write!(out, "{gap}{name}={}/{}", entry.serves, entry.beat)?;
        }
        Ok(())
    }
}

/// A name as it can stand in the ledger: what no pod's name contains becomes a dash.
pub(crate) fn replica_name(name: &str) -> String {
    let sound = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
    name.chars().take(MAX_NAME).map(|letter| if sound(letter) { letter } else { '-' }).collect()
}

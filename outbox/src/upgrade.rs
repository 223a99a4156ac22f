//! Files of older versions.
//!
//! | version | what is new |
//! |---|---|
//! | 1 | |
//! | 2 | what stands has a note |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{open, seal};

/// The version that is written.
pub(crate) const VERSION: u64 = 2;

/// Records as they're in the file, by key.
pub(crate) type Raw = BTreeMap<Vec<u8>, Vec<u8>>;

/// Brings records of an older version to [`VERSION`]. What is damaged stays as it is, for the reader to tell.
pub(crate) fn upgrade(version: u64, mut raw: Raw) -> Raw {
    if version < 2 {
        notes(&mut raw);
    }
    raw
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Standing1 {
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) at: u64,
    pub(crate) accepted_at: u64,
    pub(crate) certain: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Standing2 {
    #[serde(flatten)]
    before: Standing1,
    note_bytes: usize,
}

fn notes(raw: &mut Raw) {
    for (key, value) in raw.iter_mut().filter(|(key, _)| key.first() == Some(&b's')) {
        if let Ok((before, body)) = open::<Standing1>(key, value) {
            *value = seal(key, &Standing2 { before, note_bytes: 0 }, &[&body]);
        }
    }
}

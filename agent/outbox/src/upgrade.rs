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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::{Standing1, VERSION};
    use crate::record::seal;
    use crate::store::{self, Stamp, Store};
    use crate::{Appended, Entry, Kind, Limits, Outbox};

    #[test]
    fn a_file_of_version_1_is_brought_to_the_newest_and_loses_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("outbox.redb");
        let (mut outbox, _) = Outbox::open(folder.path(), Limits::default(), Duration::ZERO).expect("opened");
        let occur = |id: &str| Entry {
            key: "k".to_owned(),
            id: id.to_owned(),
            kind: Kind::Occur,
            at: 3,
            body: b"body".to_vec(),
        };
        outbox.append(occur("waits"));
        drop(outbox);

        // As version 1 wrote it.
        let file = || fs::File::options().read(true).write(true).open(&path).expect("a file");
        let standing =
            Standing1 { key: "k".to_owned(), id: "stands".to_owned(), at: 1, accepted_at: 2, certain: true };
        let record = (b"sstands".to_vec(), Some(seal(b"sstands", &standing, &[b"its body"])));
        let mut old = Store::open(store::backend(file()).expect("a file")).expect("opened");
        old.write(&[record], Some(Stamp { version: 1, writer: 77 })).expect("written");
        drop(old);
        assert_eq!(store::read(file()).expect("sound").version, 1);

        let (mut outbox, opened) =
            Outbox::open(folder.path(), Limits::default(), Duration::ZERO).expect("opened");
        assert_eq!((opened.upgraded_from, opened.pending, opened.standing), (Some(1), 1, 1));
        assert_eq!(opened.set_aside, None);
        let stands = outbox.standing_of("stands").expect("it stands");
        assert_eq!((stands.body.as_slice(), stands.note.as_slice()), (&b"its body"[..], &b""[..]));
        assert!(outbox.note("stands", b"noted"));
        assert_eq!(outbox.append(occur("next")), Appended::Stored(2));
        drop(outbox);

        assert_eq!(store::read(file()).expect("sound").version, VERSION);
        let (outbox, opened) =
            Outbox::open(folder.path(), Limits::default(), Duration::ZERO).expect("opened");
        assert_eq!((opened.upgraded_from, opened.pending), (None, 2));
        assert_eq!(outbox.standing_of("stands").expect("it stands").note, b"noted");
    }
}

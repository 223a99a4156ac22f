use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use redb::{Database, TableDefinition};
use swansong_outbox::{Entry, Kind, Limits, Opened, Outbox};
use tempfile::{TempDir, tempdir, tempdir_in};

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// Any bytes as an outbox: it opens, and what isn't restored is set aside as it was.
///
/// By the first byte the others are: 0, the file; 1, places and bytes that change a sound one; 2, records of
/// a sound store, each a length, a key, a length and what is checked by the record's own checksum; else the
/// same without a checksum.
pub fn outbox(input: &[u8]) {
    let Some((how, rest)) = input.split_first() else { return };
    match how {
        0 => {
            opened(rest);
        }
        1 => {
            let mut file = sound().to_vec();
            for change in rest.chunks_exact(4) {
                let place =
                    usize::from(change[0]) << 16 | usize::from(change[1]) << 8 | usize::from(change[2]);
                let place = place % file.len();
                file[place] ^= change[3];
            }
            let (opened, outbox, _folder) = opened(&file);
            if opened.set_aside.is_none() {
                let (counts, whole) = (outbox.counts(), (opened.pending, opened.standing));
                assert_eq!((counts.pending, counts.standing, whole), (3, 1, (3, 1)), "something is lost");
            }
        }
        how => works(&with_records(rest, *how == 2)),
    }
}

fn folder() -> TempDir {
    tempdir_in("/dev/shm").or_else(|_| tempdir()).expect("a folder")
}

fn open(folder: &Path) -> (Outbox, Opened) {
    Outbox::open(folder, Limits::default(), Duration::ZERO).expect("nobody else has it")
}

fn opened(file: &[u8]) -> (Opened, Outbox, TempDir) {
    let folder = folder();
    fs::write(folder.path().join("outbox.redb"), file).expect("written");
    let (outbox, opened) = open(folder.path());
    assert!(outbox.durable() && opened.existed, "{:?}", outbox.problem());
    if let Some(aside) = &opened.set_aside {
        assert!(!aside.why.is_empty());
        assert!(fs::read(&aside.moved_to).expect("it is there") == file, "what is set aside was changed");
    }
    (opened, outbox, folder)
}

/// Whatever was restored, the outbox does its work and is the same when it's opened again.
fn works(file: &[u8]) {
    let (_, mut outbox, folder) = opened(file);
    outbox.append(entry("k", "new", Kind::Occur));
    outbox.append(entry("k", "new", Kind::Recover));
    let heads: Vec<u64> = outbox.heads().map(|head| head.seq).collect();
    assert_eq!(outbox.mark_offered(&heads), heads);
    if let Some((last, others)) = heads.split_last() {
        outbox.accept(others, 1);
        outbox.refuse(*last, "no", 1);
    }
    let all: Vec<u64> = outbox.pending().map(|pending| pending.seq).collect();
    outbox.withdraw(&all);
    assert!(outbox.durable());
    let (counts, next) = (outbox.counts(), outbox.next_place());
    drop(outbox);
    let (outbox, opened) = open(folder.path());
    assert_eq!(opened.set_aside, None);
    let again = outbox.counts();
    assert_eq!(
        (again.pending, again.standing, again.dead_letters, again.bytes, outbox.next_place()),
        (counts.pending, counts.standing, counts.dead_letters, counts.bytes, next)
    );
}

fn entry(key: &str, id: &str, kind: Kind) -> Entry {
    Entry { key: key.to_owned(), id: id.to_owned(), kind, at: 1, body: b"body".to_vec() }
}

/// An outbox in which three entries wait and one episode stands.
fn sound() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let folder = folder();
        let (mut outbox, _) = open(folder.path());
        outbox.append_all(["a", "b", "c"].map(|id| entry(id, id, Kind::Occur)));
        outbox.accept(&[1], 1);
        outbox.append(entry("a", "a", Kind::Recover));
        outbox.note("a", b"note");
        drop(outbox);
        fs::read(folder.path().join("outbox.redb")).expect("a file")
    })
}

/// A sound file with other records in it.
fn with_records(mut input: &[u8], sealed: bool) -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, sound()).expect("written");
    let database = Database::open(&path).expect("a database");
    let transaction = database.begin_write().expect("a transaction");
    {
        let mut records = transaction.open_table(RECORDS).expect("a table");
        while let Some((key, rest)) = part(input)
            && let Some((value, rest)) = part(rest)
        {
            input = rest;
            let sum = crc32fast::hash(&[key, value].concat()).to_le_bytes();
            let value = [if sealed { &sum[..] } else { &[] }, value].concat();
            records.insert(key, value.as_slice()).expect("written");
        }
    }
    transaction.commit().expect("written");
    drop(database);
    fs::read(path).expect("a file")
}

/// A length of one byte, and that many bytes.
fn part(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = input.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

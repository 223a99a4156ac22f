use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tempfile::{tempfile, tempfile_in};

use super::*;

/// A file that does what it's asked for a while, and then fails or panics.
#[derive(Debug)]
struct Failing {
    file: FileBackend,
    left: Arc<AtomicU64>,
    panics: bool,
}

impl Failing {
    fn spend(&self) -> io::Result<()> {
        let spent = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        assert!(spent.is_ok() || !self.panics, "as asked");
        spent.map(|_| ()).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.spend()?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.spend()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.spend()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.spend()?;
        self.file.write(offset, data)
    }
}

const STAMP: Option<Stamp> = Some(Stamp { version: VERSION, writer: 5 });

/// What makes `before` `after`.
fn changes(before: &Raw, after: &Raw) -> Vec<Change> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), None));
    gone.chain(after.iter().map(|(key, value)| (key.clone(), Some(value.clone())))).collect()
}

fn raw(from: u8, to: u8) -> Raw {
    (from..to).map(|n| (vec![n], vec![n; 900])).collect()
}

/// Opens a file with 40 records and writes others, with `left` calls before the disk fails. What happened,
/// and what is in the file then.
fn written(left: u64, panics: bool) -> (Result<(), Failure>, Result<Content, Failure>) {
    let file = tempfile_in("/dev/shm").or_else(|_| tempfile()).expect("a file");
    let clone = || file.try_clone().expect("a file");
    let mut store = Store::open(backend(clone()).expect("a file")).expect("opened");
    store.write(&changes(&Raw::new(), &raw(0, 40)), STAMP).expect("written");
    drop(store);
    let failing = Failing {
        file: FileBackend::new(clone()).expect("a file"),
        left: Arc::new(AtomicU64::new(left)),
        panics,
    };
    let written =
        Store::open(failing).and_then(|mut store| store.write(&changes(&raw(0, 40), &raw(20, 90)), STAMP));
    (written, read(file))
}

#[test]
fn a_disk_that_fails_anywhere_leaves_the_old_or_the_new() {
    for panics in [false, true] {
        let mut outcomes = [0; 3];
        for left in 0.. {
            let (written, content) = written(left, panics);
            let content = content.expect("it is sound").raw;
            assert!(content == raw(0, 40) || content == raw(20, 90), "after {left}");
            match written {
                Ok(()) => {
                    assert_eq!(content, raw(20, 90));
                    outcomes[2] += 1;
                    // From here on the disk fails after everything was written.
                    if outcomes[2] > 20 {
                        break;
                    }
                }
                Err(Failure::Disk(_)) => {
                    assert!(!panics);
                    outcomes[0] += 1;
                }
                Err(Failure::Unsound(why)) => {
                    assert!(panics && why == "redb panicked over it", "{why}");
                    outcomes[1] += 1;
                }
            }
        }
        assert!(outcomes[usize::from(panics)] > 10, "{outcomes:?}");
    }
}

#[test]
fn reading_changes_nothing() {
    use std::os::unix::fs::FileExt;
    let file = tempfile().expect("a file");
    let mut store = Store::open(backend(file.try_clone().expect("a file")).expect("a file")).expect("opened");
    store.write(&changes(&Raw::new(), &raw(0, 100)), STAMP).expect("written");
    let bytes = || {
        let mut bytes = vec![0; usize::try_from(file.metadata().expect("a file").len()).expect("a size")];
        file.read_exact_at(&mut bytes, 0).expect("read");
        bytes
    };
    // It is open, so that redb wants to mend it.
    let before = bytes();
    let content = read(file.try_clone().expect("a file")).expect("sound");
    assert_eq!((content.version, content.writer, content.raw.len()), (VERSION, 5, 100));
    assert!(bytes() == before);
    drop(store);
    assert!(bytes() != before, "it was closed, which is written");
}

//! A file that can be read and only seems to be written.
//!
//! redb writes while it opens: it marks the file as in use and mends what a crash left. A file must not be
//! changed before it is known to be sound, and on a read-only disk it can't be. So it is first opened through
//! this.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use redb::StorageBackend;

const BLOCK: u64 = 4096;

/// What is read of a file, with what was written over it in memory.
#[derive(Debug)]
pub(crate) struct Overlay {
    file: File,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// So much of the file shows through: less than it has once it was shortened.
    shows: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Overlay {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, changes: Mutex::new(Changes { len, shows: len, blocks: BTreeMap::new() }) })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Changes) -> T) -> T {
        change(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Changes {
    fn block(&self, file: &File, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(block) = self.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; to_usize(BLOCK)?].into_boxed_slice();
        let start = number * BLOCK;
        let len = to_usize(self.shows.saturating_sub(start).min(BLOCK))?;
        file.read_exact_at(&mut block[..len], start)?;
        Ok(block)
    }
}

fn to_usize(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(io::Error::other)
}

/// The parts of a range that lie in one block each: the block, where in it, and how much.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    let end = offset.saturating_add(len as u64);
    std::iter::from_fn(move || {
        let (block, within) = (at / BLOCK, at % BLOCK);
        let len = (end - at).min(BLOCK - within);
        at += len;
        (len > 0).then_some((block, usize::try_from(within).ok()?, usize::try_from(len).ok()?))
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|changes| changes.len))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|changes| {
            if offset.checked_add(out.len() as u64).is_none_or(|end| end > changes.len) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut done = 0;
            for (number, within, len) in parts(offset, out.len()) {
                let block = changes.block(&self.file, number)?;
                out[done..done + len].copy_from_slice(&block[within..within + len]);
                done += len;
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|changes| {
            changes.len = len;
            changes.shows = changes.shows.min(len);
            // What lies beyond the end reads as zero when the file grows again.
            let kept = len / BLOCK;
            let within = to_usize(len % BLOCK)?;
            changes.blocks.retain(|number, _| *number <= kept);
            if let Some(last) = changes.blocks.get_mut(&kept) {
                last[within..].fill(0);
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|changes| {
            let mut done = 0;
            for (number, within, len) in parts(offset, data.len()) {
                let mut block = changes.block(&self.file, number)?;
                block[within..within + len].copy_from_slice(&data[done..done + len]);
                changes.blocks.insert(number, block);
                done += len;
            }
            changes.len = changes.len.max(offset.saturating_add(data.len() as u64));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;
    use redb::StorageBackend;
    use redb::backends::InMemoryBackend;

    use super::Overlay;

    #[derive(Debug, Clone)]
    enum Step {
        SetLen(u64),
        Write(u64, Vec<u8>),
        Read(u64, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let place = 0..20_000_u64;
        prop_oneof![
            place.clone().prop_map(Step::SetLen),
            (place.clone(), prop::collection::vec(any::<u8>(), 0..9000))
                .prop_map(|(at, data)| Step::Write(at, data)),
            (place, 0..9000_usize).prop_map(|(at, len)| Step::Read(at, len)),
        ]
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_file_and_leaves_the_file(len in 0..15_000_usize, steps in prop::collection::vec(step(), 0..20)) {
            let original: Vec<u8> = (1..=251).cycle().take(len).collect();
            let file = tempfile::tempfile().expect("a file");
            file.write_all_at(&original, 0).expect("written");
            let model = InMemoryBackend::new();
            model.set_len(len as u64).expect("grown");
            model.write(0, &original).expect("written");
            let overlay = Overlay::new(file.try_clone().expect("a file")).expect("an overlay");
            for step in steps {
                match step {
                    Step::SetLen(len) => {
                        model.set_len(len).expect("set");
                        overlay.set_len(len).expect("set");
                    }
                    Step::Write(at, data) => {
                        // Only a file grows by being written beyond its end.
                        let end = at + data.len() as u64;
                        if end > model.len().expect("a length") {
                            model.set_len(end).expect("set");
                        }
                        model.write(at, &data).expect("written");
                        overlay.write(at, &data).expect("written");
                    }
                    Step::Read(at, len) => {
                        let (mut expected, mut read) = (vec![0; len], vec![0; len]);
                        let there = at + len as u64 <= model.len().expect("a length");
                        prop_assert_eq!(overlay.read(at, &mut read).is_ok(), there);
                        if there {
                            model.read(at, &mut expected).expect("read");
                            prop_assert_eq!(read, expected);
                        }
                    }
                }
                prop_assert_eq!(overlay.len().expect("a length"), model.len().expect("a length"));
            }
            let mut now = vec![0; len];
            file.read_exact_at(&mut now, 0).expect("read");
            prop_assert_eq!(now, original);
        }
    }
}

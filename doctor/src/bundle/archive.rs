//! A tar.gz of a limited size.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::Entry;

/// No bundle has more bytes.
pub const LIMIT: usize = 20 << 20;
/// Room for the list of what was left out.
const LIST: usize = 256 << 10;
/// The end of an archive: two empty blocks, and gzip's checksum.
const END: usize = 4 << 10;
/// The header of an entry, with room for the extension of a long name.
const HEADER: usize = 4 << 10;

/// The archive can't be made.
#[derive(Debug, thiserror::Error)]
#[error("the archive can't be written: {0}")]
pub struct ArchiveError(#[from] io::Error);

/// A bundle that is ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// A tar archive, compressed by gzip.
    pub bytes: Vec<u8>,
    /// The number of files in it.
    pub files: usize,
    /// The paths for which there was no room.
    pub left_out: Vec<String>,
}

impl Bundle {
    /// Packs as many of the entries, in their order, as fit into `limit` bytes. `time` is in seconds since 1970.
    pub fn new(entries: &[Entry], limit: usize, time: u64) -> Result<Self, ArchiveError> {
        let mut archive = Archive::new(limit.saturating_sub(LIST), time);
        let (mut files, mut left_out) = (0, Vec::new());
        for Entry { path, content } in entries {
            if archive.add(path, content)? {
                files += 1;
            } else {
                left_out.push(path.clone());
            }
        }
        if !left_out.is_empty() {
            archive.limit = limit;
            let mut list = left_out.join("\n");
            while list.len() > LIST / 2 {
                list.truncate(list.rfind('\n').unwrap_or_default());
            }
            archive.add("LEFT-OUT.txt", list.as_bytes())?;
        }
        Ok(Self { bytes: archive.finish()?, files, left_out })
    }
}

/// An archive in memory.
struct Archive {
    tar: Builder<GzEncoder<Vec<u8>>>,
    limit: usize,
    /// Seconds since 1970, for all entries.
    time: u64,
}

impl Archive {
    /// An empty archive of at most `limit` bytes.
    fn new(limit: usize, time: u64) -> Self {
        let encoder = GzEncoder::new(Vec::new(), Compression::default());
        Self { tar: Builder::new(encoder), limit, time }
    }

    /// Adds a file. Returns whether there was room for it.
    fn add(&mut self, path: &str, content: &[u8]) -> Result<bool, ArchiveError> {
        // What was added so far leaves the encoder, so that its size is known.
        self.tar.get_mut().flush()?;
        let size = self.tar.get_ref().get_ref().len();
        // Compression enlarges nothing by more than a hundredth.
        let largest = content.len() + content.len() / 100 + HEADER + END;
        if size + largest > self.limit {
            return Ok(false);
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(u64::try_from(content.len()).unwrap_or_default());
        header.set_mode(0o644);
        header.set_mtime(self.time);
        self.tar.append_data(&mut header, path, content)?;
        Ok(true)
    }

    /// The bytes of the archive.
    fn finish(self) -> Result<Vec<u8>, ArchiveError> {
        Ok(self.tar.into_inner()?.finish()?)
    }
}

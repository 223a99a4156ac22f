//! The files of an image, and the layer made of them.

use std::collections::BTreeMap;
use std::io;

use tar::{EntryType, Header};

use super::ImageError;

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Folder { mode: u32 },
    File { mode: u32, contents: Vec<u8> },
}

/// Files and folders by path, without the leading slash.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    /// Adds a file and the folders above it. The same file may be added twice, as libraries are
    /// that two programs need.
    pub(crate) fn file(&mut self, path: &str, contents: Vec<u8>, mode: u32) -> Result<(), ImageError> {
        self.add(path, Entry::File { mode, contents })
    }

    /// Adds a folder and the folders above it.
    pub(crate) fn folder(&mut self, path: &str, mode: u32) -> Result<(), ImageError> {
        self.add(path, Entry::Folder { mode })
    }

    pub(crate) fn files(&self) -> Vec<&str> {
        let files = self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::File { .. }));
        files.map(|(path, _)| path.as_str()).collect()
    }

    /// The layer: an uncompressed tar. The order is that of the paths, the owner is root, the time
    /// is the beginning of time.
    pub(crate) fn to_tar(&self) -> io::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            match entry {
                Entry::Folder { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    tar.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                Entry::File { mode, contents } => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(contents.len() as u64);
                    tar.append_data(&mut header, path, contents.as_slice())?;
                }
            }
        }
        tar.into_inner()
    }

    fn add(&mut self, path: &str, entry: Entry) -> Result<(), ImageError> {
        let path = relative(path)?;
        let mut above = path.as_str();
        while let Some((folder, _)) = above.rsplit_once('/') {
            match self.entries.entry(folder.to_owned()).or_insert(Entry::Folder { mode: 0o755 }) {
                Entry::Folder { .. } => above = folder,
                Entry::File { .. } => return Err(ImageError::Taken(folder.to_owned())),
            }
        }
        match self.entries.get(&path) {
            Some(before) if *before != entry && !is_implied(before, &entry) => Err(ImageError::Taken(path)),
            _ => {
                self.entries.insert(path, entry);
                Ok(())
            }
        }
    }
}

/// A folder that came along with a file gets the mode that is asked for later.
fn is_implied(before: &Entry, now: &Entry) -> bool {
    matches!((before, now), (Entry::Folder { mode: 0o755 }, Entry::Folder { .. }))
}

fn relative(path: &str) -> Result<String, ImageError> {
    let wrong = || ImageError::Path(path.to_owned());
    let parts: Vec<_> =
        path.strip_prefix('/').ok_or_else(wrong)?.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() || parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Err(wrong());
    }
    Ok(parts.join("/"))
}

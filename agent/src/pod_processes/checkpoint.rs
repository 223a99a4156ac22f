//! Notices that a checkpoint folder got its final name.
//!
//! MindIO saves into a folder whose name begins with `tmp`, and renames it when all ranks have saved. A rename keeps the
//! inode, so a folder of another save isn't taken for it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirEntryExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::host::HostRoot;

/// The prefix of the name of a folder that isn't complete.
const TEMPORARY: &str = "tmp";
/// A folder with more entries isn't read further.
const MAX_ENTRIES: usize = 4096;
/// How long a file system may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The incomplete folders in the place where a Pod saves.
#[derive(Debug, Default)]
pub(super) struct CheckpointFolder {
    /// Names by inode.
    temporary: BTreeMap<u64, String>,
    /// Whether a file system that hangs still keeps a thread.
    is_listing: Arc<AtomicBool>,
}

impl CheckpointFolder {
    /// Lists `folder` in the file system `root`. Returns the folder that was renamed since the last call.
    pub(super) fn observe(&mut self, root: &Path, folder: &str) -> Option<String> {
        let listing = self.list(root, folder)?;
        let is_temporary = |name: &String| name.starts_with(TEMPORARY);
        let renamed = listing
            .iter()
            .find(|(inode, name)| !is_temporary(name) && self.temporary.contains_key(inode))
            .map(|(_, name)| format!("{}/{name}", folder.trim_end_matches('/')));
        self.temporary = listing.into_iter().filter(|(_, name)| is_temporary(name)).collect();
        renamed
    }

    /// Inodes and names; `None` if the folder can't be read in time. A network file system may hang forever.
    fn list(&self, root: &Path, folder: &str) -> Option<Vec<(u64, String)>> {
        if self.is_listing.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (sender, listed) = mpsc::channel();
        let (root, folder, is_listing) = (root.to_owned(), folder.to_owned(), Arc::clone(&self.is_listing));
        thread::spawn(move || {
            let listing = list(&root, &folder);
            is_listing.store(false, Ordering::Release);
            // The receiver may have given up.
            let _ = sender.send(listing);
        });
        listed.recv_timeout(TIMEOUT).ok().flatten()
    }
}

fn list(root: &Path, folder: &str) -> Option<Vec<(u64, String)>> {
    let folder = HostRoot::open(root).ok()?.resolve(folder).ok()?;
    let entries = fs::read_dir(folder.proc_path()).ok()?.take(MAX_ENTRIES).flatten();
    Some(entries.map(|entry| (entry.ino(), entry.file_name().to_string_lossy().into_owned())).collect())
}

/// The folder in which a training process saves, by its arguments.
pub(super) fn save_folder(arguments: &[String]) -> Option<&str> {
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        let folder = if argument == "--save" { arguments.next() } else { argument.strip_prefix("--save=") };
        if folder.is_some() {
            return folder.filter(|folder| folder.starts_with('/'));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_folder_is_noticed_once_and_another_save_is_not() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join("save").join(name);
        fs::create_dir_all(path("iter_0000001")).expect("made");
        let mut folder = CheckpointFolder::default();
        assert_eq!(folder.observe(root.path(), "/save"), None);
        fs::create_dir(path("tmp_iter_0000007")).expect("made");
        fs::create_dir(path("iter_0000006")).expect("made");
        assert_eq!(folder.observe(root.path(), "/save/"), None);
        fs::rename(path("tmp_iter_0000007"), path("iter_0000007")).expect("renamed");
        assert_eq!(folder.observe(root.path(), "/save/").as_deref(), Some("/save/iter_0000007"));
        assert_eq!(folder.observe(root.path(), "/save"), None);
        assert_eq!(folder.observe(root.path(), "/elsewhere"), None);
    }

    #[test]
    fn save_folder_is_an_argument() {
        let of = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            save_folder(&arguments).map(str::to_owned)
        };
        assert_eq!(of("python train.py --save-interval 10 --save /ckpt --load /x").as_deref(), Some("/ckpt"));
        assert_eq!(of("python train.py --save=/ckpt").as_deref(), Some("/ckpt"));
        for line in ["python train.py", "python --save", "python --save-interval 10", "python --save ckpt"] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}

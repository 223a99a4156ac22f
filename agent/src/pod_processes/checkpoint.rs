//! Notices that a checkpoint folder got its final name.
//!
//! MindIO saves into a folder whose name begins with `tmp`, and renames it when all ranks have saved. A save may be shorter
//! than the time between two listings, so a folder that is new counts too, if its name ends with a number like
//! `iter_0000007`.
//!
//! A Pod may end right after the rename. So the place is kept open from one listing to the next, which keeps its file system
//! attached, and is listed once more when no process of the Pod saves there any more.

use std::fs::{self, DirEntry};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use swansong_faults::Renamed;

use crate::host::{self, HostRoot};

/// The prefix of the name of a folder that isn't complete.
const TEMPORARY: &str = "tmp";
/// A folder with more entries isn't read further.
const MAX_ENTRIES: usize = 4096;
/// How long a file system may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The place where a Pod saves.
#[derive(Debug, Default)]
pub(super) struct CheckpointFolder {
    /// The folders there, and when they were listed.
    listed: Vec<Entry>,
    listed_at: u64,
    /// The place as it was last listed.
    place: Option<Place>,
    /// Whether a file system that hangs still keeps a thread.
    is_listing: Arc<AtomicBool>,
}

/// The open place, and its path in the Pod.
#[derive(Debug)]
struct Place {
    folder: host::Entry,
    path: String,
}

/// A folder in that place.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    inode: u64,
    /// Distinguishes it from another one that got the same inode; not every file system has it.
    created: Option<SystemTime>,
    name: String,
    /// When it was renamed, or a file in it was, in milliseconds since 1970.
    changed_at: u64,
}

impl CheckpointFolder {
    /// Lists `folder` in the file system `root` at `now`. Returns the folder that last got its final name since the last call.
    pub(super) fn observe(&mut self, root: &Path, folder: &str, now: u64) -> Option<Renamed> {
        let (root, path) = (root.to_owned(), folder.to_owned());
        self.record(now, true, move |_| Place::open(&root, path))
    }

    /// Lists the place for the last time at `now`, when no process saves there any more.
    pub(super) fn observe_end(&mut self, now: u64) -> Option<Renamed> {
        self.place.as_ref()?;
        self.record(now, false, |place| place)
    }

    fn record(
        &mut self,
        now: u64,
        is_kept: bool,
        find: impl FnOnce(Option<Place>) -> Option<Place> + Send + 'static,
    ) -> Option<Renamed> {
        let (listing, path) = self.list(is_kept, find)?;
        let complete = listing.iter().filter(|entry| !entry.is_temporary());
        let renamed = complete.filter_map(|entry| Some((self.completed_at(entry, now)?, &entry.name)));
        let renamed = renamed.max().map(|(at, name)| {
            let folder = format!("{}/{name}", path.trim_end_matches('/'));
            Renamed { folder, at }
        });
        (self.listed, self.listed_at) = (listing, now);
        renamed
    }

    /// When a folder that has its final name at `now` got it; `None` if it had it before, or holds no checkpoint.
    fn completed_at(&self, entry: &Entry, now: u64) -> Option<u64> {
        let before = self.listed.iter().find(|before| before.is_same(entry));
        match before {
            // Not every file system changes the time when a folder is renamed.
            Some(before) if before.is_temporary() => Some(entry.changed_at.max(self.listed_at).min(now)),
            Some(before) if before.name == entry.name => None,
            _ => entry.name.ends_with(|c: char| c.is_ascii_digit()).then(|| entry.changed_at.min(now)),
        }
    }

    /// Calls `find` with the last place, and returns the folders in the place that it returns, and that place's path. Returns
    /// `None` if they can't be read in time.
    ///
    /// A network file system may hang forever, also when a folder in it is closed, so all that is done in a thread.
    fn list(
        &mut self,
        is_kept: bool,
        find: impl FnOnce(Option<Place>) -> Option<Place> + Send + 'static,
    ) -> Option<(Vec<Entry>, String)> {
        if self.is_listing.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (sender, listed) = mpsc::channel();
        let (last, is_listing) = (self.place.take(), Arc::clone(&self.is_listing));
        thread::spawn(move || {
            let place = find(last);
            let listing = place.as_ref().and_then(|place| Some((place.list()?, place.path.clone())));
            let place = place.filter(|_| is_kept);
            is_listing.store(false, Ordering::Release);
            // The receiver may have given up.
            let _ = sender.send((listing, place));
        });
        let (listing, place) = listed.recv_timeout(TIMEOUT).ok()?;
        self.place = place;
        listing
    }
}

impl Place {
    fn open(root: &Path, path: String) -> Option<Self> {
        let folder = HostRoot::open(root).ok()?.resolve(&path).ok()?;
        Some(Self { folder, path })
    }

    fn list(&self) -> Option<Vec<Entry>> {
        let entries = fs::read_dir(self.folder.proc_path()).ok()?.take(MAX_ENTRIES).flatten();
        Some(entries.filter_map(|entry| Entry::of(&entry)).collect())
    }
}

impl Entry {
    /// `None` if it is no folder.
    fn of(entry: &DirEntry) -> Option<Self> {
        let metadata = entry.file_type().ok().filter(fs::FileType::is_dir).and(entry.metadata().ok())?;
        let changed_at =
            metadata.ctime().saturating_mul(1000).saturating_add(metadata.ctime_nsec() / 1_000_000);
        Some(Self {
            inode: metadata.ino(),
            created: metadata.created().ok(),
            name: entry.file_name().to_string_lossy().into_owned(),
            changed_at: changed_at.try_into().unwrap_or_default(),
        })
    }

    fn is_temporary(&self) -> bool {
        self.name.starts_with(TEMPORARY)
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.inode, self.created) == (other.inode, other.created)
    }
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
    use swansong_faults::unix_millis;

    use super::*;

    const SAVED: Option<&str> = Some("/save/iter_0000007");

    fn create(path: &Path, name: &str) {
        fs::create_dir(path.join(name)).expect("made");
    }

    fn rename(path: &Path, from: &str, to: &str) {
        fs::rename(path.join(from), path.join(to)).expect("renamed");
    }

    #[test]
    fn folder_that_got_its_final_name_is_noticed_once() {
        type Change = fn(&Path);
        let cases: [(Change, Option<&str>); 8] = [
            (|_| {}, None),
            (|path| rename(path, "tmp_iter_0000007", "iter_0000007"), SAVED),
            (|path| rename(path, "tmp_iter_0000007", "final"), Some("/save/final")),
            // It was saved between two listings.
            (|path| create(path, "iter_0000007"), SAVED),
            (|path| create(path, "tmp_iter_0000008"), None),
            (|path| create(path, "tensorboard"), None),
            // Megatron replaces the file in this way.
            (|path| rename(path, "tmp1234", "latest_checkpointed_iteration.txt"), None),
            (|path| fs::write(path.join("iter_0000007"), "").expect("written"), None),
        ];
        for (index, (change, expected)) in cases.into_iter().enumerate() {
            let root = tempfile::tempdir().expect("a folder");
            let path = root.path().join("save");
            fs::create_dir(&path).expect("made");
            create(&path, "iter_0000001");
            create(&path, "tmp_iter_0000007");
            fs::write(path.join("tmp1234"), "7").expect("written");
            let mut folder = CheckpointFolder::default();
            let mut observe = |name| folder.observe(root.path(), name, unix_millis());
            observe("/save");
            change(&path);
            let renamed = observe("/save/").map(|renamed| renamed.folder);
            assert_eq!(renamed.as_deref(), expected, "row {index}");
            assert_eq!(observe("/save"), None, "row {index}");
            assert_eq!(observe("/elsewhere"), None, "row {index}");
        }
    }

    #[test]
    fn rename_before_the_end_of_the_last_process_is_noticed() {
        let parent = tempfile::tempdir().expect("a folder");
        let (root, elsewhere) = (parent.path().join("root"), parent.path().join("elsewhere"));
        fs::create_dir_all(root.join("save/tmp_iter_0000007")).expect("made");
        let mut folder = CheckpointFolder::default();
        assert_eq!(folder.observe_end(unix_millis()), None);
        assert_eq!(folder.observe(&root, "/save", unix_millis()), None);
        rename(&root.join("save"), "tmp_iter_0000007", "iter_0000007");
        // The process has ended, so its path leads nowhere.
        fs::rename(&root, elsewhere).expect("renamed");
        let renamed = folder.observe_end(unix_millis()).map(|renamed| renamed.folder);
        assert_eq!(renamed.as_deref(), SAVED);
        assert!(folder.place.is_none(), "a volume could not be detached");
        assert_eq!(folder.observe_end(unix_millis()), None);
    }

    #[test]
    fn time_of_a_folder_is_when_it_was_renamed() {
        let entry =
            |inode, name: &str, changed_at| Entry { inode, created: None, name: name.to_owned(), changed_at };
        let folder = CheckpointFolder {
            listed: vec![entry(1, "tmp_iter_7", 10), entry(2, "iter_6", 20)],
            listed_at: 50,
            ..CheckpointFolder::default()
        };
        for (found, expected) in [
            (entry(1, "iter_7", 55), Some(55)),
            (entry(1, "iter_7", 10), Some(50)),
            (entry(1, "iter_7", 90), Some(60)),
            (Entry { created: Some(SystemTime::UNIX_EPOCH), ..entry(1, "log", 55) }, None),
            (entry(2, "iter_6", 55), None),
            (entry(3, "iter_7", 55), Some(55)),
            // The folder of a network file system whose clock is ahead, and an old one that wasn't listed.
            (entry(3, "iter_7", 90), Some(60)),
            (entry(3, "iter_5", 5), Some(5)),
        ] {
            assert_eq!(folder.completed_at(&found, 60), expected, "{found:?}");
        }
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

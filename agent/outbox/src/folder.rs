//! The folder of an outbox: its lock, its file, and what was set aside.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::fcntl::OFlag;

/// The outbox.
pub(crate) const FILE: &str = "outbox.redb";
/// An outbox in the making, renamed when it is whole.
const NEW: &str = "outbox.redb.new";
/// Held by the process that uses the outbox. Never deleted, so that all processes mean the same file.
const LOCK: &str = "outbox.lock";
/// Beginning of the names of what was set aside; a number and the time follow.
const ASIDE: &str = "outbox.redb.set-aside-";
/// How many files set aside are kept: the oldest, since it may hold what nobody got, and the newest others.
pub(crate) const KEPT: usize = 4;

const POLL: Duration = Duration::from_millis(50);

/// The folder of an outbox.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    lock: Option<Lock>,
}

/// The lock, while it is held.
#[derive(Debug)]
struct Lock {
    file: File,
    identity: Identity,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that is being started has the file open as well until its program runs, so that closing it
        // isn't enough.
        let _ = self.file.unlock();
    }
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// What is where the file should be.
#[derive(Debug)]
pub(crate) enum Place {
    Nothing,
    File(File),
    /// Something that is no file, as words.
    Other(&'static str),
}

/// The lock can't be had.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process has it.
    Held,
    /// The disk doesn't let us.
    Disk(io::Error),
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl Folder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), lock: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock, and makes the folder if only it is missing: were its parents made too, a mount that
    /// isn't there yet would be covered up. Waits at most `patience` for another process to let go of it.
    pub(crate) fn lock(&mut self, patience: Duration) -> Result<(), LockError> {
        let path = self.path.join(LOCK);
        if let Some(lock) = &self.lock
            && fs::symlink_metadata(&path).is_ok_and(|there| Identity::of(&there) == lock.identity)
        {
            return Ok(());
        }
        self.lock = None;
        if !self.path.is_dir() {
            self.create().map_err(LockError::Disk)?;
        }
        let file = options().create(true).open(&path).map_err(LockError::Disk)?;
        let identity = Identity::of(&file.metadata().map_err(LockError::Disk)?);
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(LockError::Disk(error)),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => return Err(LockError::Held),
                Err(TryLockError::WouldBlock) => thread::sleep(POLL),
            }
        }
        self.lock = Some(Lock { file, identity });
        Ok(())
    }

    fn create(&self) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&self.path)?;
        self.path.parent().filter(|parent| *parent != Path::new("")).map_or(Ok(()), sync)
    }

    /// What is where the file should be, to be read.
    pub(crate) fn look(&self) -> io::Result<Place> {
        let path = self.path.join(FILE);
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Place::Nothing),
            metadata => metadata?.file_type(),
        };
        if metadata.is_symlink() {
            Ok(Place::Other("a symbolic link"))
        } else if metadata.is_dir() {
            Ok(Place::Other("a folder"))
        } else if metadata.is_file() {
            OpenOptions::new().read(true).custom_flags(flags()).open(&path).map(Place::File)
        } else {
            Ok(Place::Other("neither file nor folder"))
        }
    }

    /// The file, to be written.
    pub(crate) fn open(&self) -> io::Result<(File, Identity)> {
        let file = options().open(self.path.join(FILE))?;
        let identity = Identity::of(&file.metadata()?);
        Ok((file, identity))
    }

    /// Whether the file is still where it was opened. If not, what is written to it is lost with it.
    pub(crate) fn is_there(&self, identity: Identity) -> bool {
        fs::symlink_metadata(self.path.join(FILE)).is_ok_and(|there| Identity::of(&there) == identity)
    }

    /// An empty file that becomes the outbox by [`Self::install`]. What is left of one that never did is replaced.
    pub(crate) fn make(&self) -> io::Result<File> {
        let path = self.path.join(NEW);
        match fs::symlink_metadata(&path) {
            Ok(there) if there.is_dir() => fs::remove_dir(&path)?,
            Ok(_) => fs::remove_file(&path)?,
            Err(_) => {}
        }
        options().create_new(true).open(path)
    }

    /// Puts the file of [`Self::make`] in its place, and what file is there away.
    pub(crate) fn install(&self) -> io::Result<Identity> {
        let (new, path) = (self.path.join(NEW), self.path.join(FILE));
        let identity = Identity::of(&fs::symlink_metadata(&new)?);
        fs::rename(new, path)?;
        sync(&self.path)?;
        Ok(identity)
    }

    /// Throws the file of [`Self::make`] away.
    pub(crate) fn discard(&self) {
        // What is left is replaced by the next one.
        let _ = fs::remove_file(self.path.join(NEW));
    }

    /// Gives what is in the file's place another name, and lets go of what was set aside long ago. A file
    /// keeps its first name too, until [`Self::install`] takes that: were it only renamed, a kill in between
    /// would leave nothing in its place.
    pub(crate) fn set_aside(&self) -> io::Result<PathBuf> {
        let aside = self.aside()?;
        let number = aside.last().map_or(0, |(number, _)| *number).saturating_add(1);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let path = self.path.join(format!("{ASIDE}{number:06}-{time}"));
        if fs::symlink_metadata(&path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let file = self.path.join(FILE);
        // Folders have one name only, and files too on some disks.
        fs::hard_link(&file, &path).or_else(|_| fs::rename(&file, &path))?;
        sync(&self.path)?;
        let kept = aside.len() + 1;
        for (_, path) in aside.iter().skip(1).take(kept.saturating_sub(KEPT)) {
            // A folder was somebody else's and stays.
            let _ = fs::remove_file(path);
        }
        Ok(path)
    }

    /// What was set aside, oldest first.
    fn aside(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut aside = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Some(number) = aside_number(&entry.file_name()) {
                aside.push((number, entry.path()));
            }
        }
        aside.sort();
        Ok(aside)
    }
}

/// Makes what was created or renamed in a folder last.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn aside_number(name: &OsString) -> Option<u64> {
    name.to_str()?.strip_prefix(ASIDE)?.split_once('-')?.0.parse().ok()
}

/// No link is followed and nothing is waited for, whoever else may write to the folder.
fn flags() -> i32 {
    (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits()
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(0o600).custom_flags(flags());
    options
}

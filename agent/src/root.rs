//! The host root: what the agent looks at is below one folder, and no link leads out of it.
//!
//! The file system of the host is mounted into the agent's container somewhere, and the files of a pod are seen
//! through `/proc/PID/root`. Both hold absolute links (`/usr/local/Ascend/cann` is one), which have to be followed
//! as the host or the pod would, and both may be written by somebody who wishes the agent to look elsewhere.
//! MindCluster's own look-up opens paths in the container of the component instead
//! (`ascend-common/common-utils/utils/path.go`).
//!
//! Resolution is that of libpathrs: `openat2` with `RESOLVE_IN_ROOT`, or the same step by step on kernels before
//! 5.6 (openEuler 20.03 has 4.19) and under seccomp profiles that don't know the call.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use pathrs::flags::OpenFlags;
use pathrs::{HandleRef, Root};

/// `ELOOP` of Linux.
const TOO_MANY_LINKS: i32 = 40;

/// A folder that is taken for `/`.
#[derive(Debug)]
pub struct HostRoot {
    root: Root,
    at: PathBuf,
}

/// Something that is there. It is held open without the right to read, so that a look at a device or a pipe
/// neither wakes nor blocks on anything, and what was looked at is what is read.
#[derive(Debug)]
pub struct Entry {
    file: File,
    metadata: Metadata,
    resolved: PathBuf,
}

/// Why a path couldn't be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// It, or a folder on the way, isn't there.
    #[error("it doesn't exist")]
    Missing,
    /// Links lead to links, more than forty times.
    #[error("its links go round in circles")]
    Loop,
    /// This process isn't allowed to.
    #[error("this process isn't allowed to look at it")]
    NotAllowed,
    /// Longer than the reader is willing to read.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// Something else stands there.
    #[error("it isn't {0}")]
    OtherKind(&'static str),
    /// Anything else.
    #[error(transparent)]
    Io(io::Error),
}

/// What a look gives.
pub type Look<T> = Result<T, LookError>;

impl HostRoot {
    /// Opens the folder that is taken for `/`.
    ///
    /// # Errors
    ///
    /// When it isn't a folder that can be opened.
    pub fn open(at: &Path) -> Look<Self> {
        // Not `Root::open`, which refuses links: `/proc/PID/root` is one.
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = Root::from_fd(nix::fcntl::open(at, flags, Mode::empty()).map_err(io::Error::from)?);
        let at = path_of(&root).map_err(LookError::from)?;
        Ok(Self { root, at })
    }

    /// Where the root is, with all links resolved.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// What `path` leads to.
    pub fn follow(&self, path: impl AsRef<Path>) -> Look<Entry> {
        let handle = self.root.resolve(path).map_err(|error| LookError::from(&error))?;
        self.entry(handle.into())
    }

    /// What stands at `path` itself, a link if it is one.
    pub fn stand(&self, path: impl AsRef<Path>) -> Look<Entry> {
        let handle = self.root.resolve_nofollow(path).map_err(|error| LookError::from(&error))?;
        self.entry(handle.into())
    }

    /// Where the link at `path` leads, as it is written; an error if there is none.
    pub fn link(&self, path: impl AsRef<Path>) -> Look<PathBuf> {
        self.root.readlink(path).map_err(|error| LookError::from(&error))
    }

    /// The whole of a regular file of at most `limit` bytes.
    pub fn read(&self, path: impl AsRef<Path>, limit: u64) -> Look<Vec<u8>> {
        self.follow(path)?.read(limit)
    }

    /// The names in a folder, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Look<Vec<OsString>> {
        self.follow(path)?.list()
    }

    fn entry(&self, handle: OwnedFd) -> Look<Entry> {
        let file = File::from(handle);
        let metadata = file.metadata()?;
        let path = path_of(&file)?;
        // What is deleted while it is looked at has no path below the root any more.
        let resolved = Path::new("/").join(path.strip_prefix(&self.at).unwrap_or(&path));
        Ok(Entry { file, metadata, resolved })
    }
}

impl Entry {
    /// What the kernel says of it.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The path inside the root, with all links resolved.
    pub fn resolved(&self) -> &Path {
        &self.resolved
    }

    /// A path to it for calls that take no open file, as long as this lives.
    pub(crate) fn own_path(&self) -> PathBuf {
        own_link(&self.file)
    }

    /// Opens a regular file for reading.
    pub fn open(&self) -> Look<File> {
        if !self.metadata.is_file() {
            return Err(LookError::OtherKind("a regular file"));
        }
        self.reopen(OpenFlags::O_RDONLY | OpenFlags::O_CLOEXEC)
    }

    /// The whole of a regular file of at most `limit` bytes.
    pub fn read(&self, limit: u64) -> Look<Vec<u8>> {
        let mut content = Vec::new();
        self.open()?.take(limit.saturating_add(1)).read_to_end(&mut content)?;
        if content.len() as u64 > limit { Err(LookError::TooLarge(limit)) } else { Ok(content) }
    }

    /// The names in a folder, sorted.
    pub fn list(&self) -> Look<Vec<OsString>> {
        if !self.metadata.is_dir() {
            return Err(LookError::OtherKind("a folder"));
        }
        let folder = self.reopen(OpenFlags::O_RDONLY | OpenFlags::O_DIRECTORY | OpenFlags::O_CLOEXEC)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(own_link(&folder))? {
            names.push(entry?.file_name());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn reopen(&self, flags: OpenFlags) -> Look<File> {
        HandleRef::from_fd(self.file.as_fd()).reopen(flags).map_err(|error| LookError::from(&error))
    }
}

impl From<&pathrs::error::Error> for LookError {
    fn from(error: &pathrs::error::Error) -> Self {
        match error.kind() {
            pathrs::error::ErrorKind::OsError(Some(code)) => io::Error::from_raw_os_error(code).into(),
            _ => Self::Io(io::Error::other(error.to_string())),
        }
    }
}

impl From<io::Error> for LookError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::NotAllowed,
            _ if error.raw_os_error() == Some(TOO_MANY_LINKS) => Self::Loop,
            _ => Self::Io(error),
        }
    }
}

fn path_of(open: &impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(own_link(open))
}

fn own_link(open: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(folder.path().join("usr/lib")).expect("made");
        std::fs::write(folder.path().join("usr/lib/real"), "content").expect("written");
        let root = HostRoot::open(folder.path()).expect("opened");
        (folder, root)
    }

    #[test]
    fn links_stay_inside() {
        let (folder, root) = tree();
        for (link, target) in [
            ("absolute", "/usr/lib/real"),
            ("relative", "usr/lib/real"),
            ("above", "../../../../../../../../usr/lib/real"),
            ("through", "/usr/../absolute"),
        ] {
            symlink(target, folder.path().join(link)).expect("linked");
            let entry = root.follow(Path::new("/").join(link)).expect(link);
            assert_eq!(entry.resolved(), Path::new("/usr/lib/real"), "{link}");
            assert_eq!(entry.read(7).expect("read"), b"content");
            let link = root.stand(link).expect("stands");
            assert!(link.metadata().is_symlink());
        }
    }

    #[test]
    fn a_link_to_the_real_system_finds_nothing() {
        let (folder, root) = tree();
        symlink("/proc/self/status", folder.path().join("out")).expect("linked");
        assert!(matches!(root.follow("out"), Err(LookError::Missing)));
        assert!(matches!(root.follow("../../../../etc"), Err(LookError::Missing)));
    }

    #[test]
    fn circles_end() {
        let (folder, root) = tree();
        symlink("b", folder.path().join("a")).expect("linked");
        symlink("/a", folder.path().join("b")).expect("linked");
        assert!(matches!(root.follow("a"), Err(LookError::Loop)));
    }

    #[test]
    fn only_regular_files_are_read() {
        let (_folder, root) = tree();
        assert!(matches!(root.read("/usr", 10), Err(LookError::OtherKind(_))));
        assert!(matches!(root.read("/usr/lib/real", 6), Err(LookError::TooLarge(6))));
        assert!(matches!(root.list("/usr/lib/real"), Err(LookError::OtherKind(_))));
        assert!(matches!(root.follow("/usr/lib/real/x"), Err(LookError::Missing)));
        assert_eq!(root.list("/usr").expect("listed"), ["lib"]);
    }

    #[test]
    fn the_root_itself_may_be_a_link() {
        let (folder, _) = tree();
        symlink("usr", folder.path().join("link")).expect("linked");
        let root = HostRoot::open(&folder.path().join("link")).expect("opened");
        assert_eq!(root.read("/lib/real", 7).expect("read"), b"content");
        let root = HostRoot::open(Path::new("/proc/self/root")).expect("opened");
        assert_eq!(root.at(), Path::new("/"));
        assert!(matches!(HostRoot::open(&folder.path().join("usr/lib/real")), Err(LookError::Missing)));
    }

    #[test]
    fn the_root_of_this_machine() {
        let root = HostRoot::open(Path::new("/")).expect("opened");
        assert_eq!(root.follow("/proc").expect("there").resolved(), Path::new("/proc"));
        assert!(!root.read("/proc/self/cgroup", 1 << 16).expect("read").is_empty());
    }
}

//! Paths below a root folder. No symbolic link leads out of it.
//!
//! The host's file system is mounted somewhere in the agent's container, and the files of a Pod are below
//! `/proc/PID/root`. Both contain absolute links (such as `/usr/local/Ascend/cann`) that have to be resolved as the host
//! or the Pod would, and untrusted users can write both. MindCluster's own lookup resolves paths in the component's
//! container instead (`ascend-common/common-utils/utils/path.go`).
//!
//! libpathrs resolves with `openat2` and `RESOLVE_IN_ROOT`, or emulates it on kernels before 5.6 (openEuler 20.03 has
//! 4.19) and under seccomp profiles that don't know the system call.

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

/// A folder that acts as `/`.
#[derive(Debug)]
pub struct HostRoot {
    root: Root,
    path: PathBuf,
}

/// An existing file, folder, device or link. It is held open with `O_PATH`, so opening a device or pipe has no side
/// effects, and a later read concerns the same file.
#[derive(Debug)]
pub struct Entry {
    file: File,
    metadata: Metadata,
    resolved: PathBuf,
}

/// Why a path couldn't be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The path or a folder in it doesn't exist.
    #[error("it doesn't exist")]
    Missing,
    /// Resolution follows more than forty links.
    #[error("its links form a loop")]
    Loop,
    /// This process has no permission.
    #[error("permission denied")]
    PermissionDenied,
    /// The content exceeds the limit, in bytes.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// The path has another file type.
    #[error("it isn't {0}")]
    OtherKind(&'static str),
    #[error(transparent)]
    Io(io::Error),
}

/// The result of an access to a path.
pub type PathResult<T> = Result<T, PathError>;

impl HostRoot {
    /// Opens the folder that acts as `/`.
    ///
    /// # Errors
    ///
    /// When it isn't a folder that can be opened.
    pub fn open(path: &Path) -> PathResult<Self> {
        // Not `Root::open`, which refuses links: `/proc/PID/root` is one.
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = Root::from_fd(nix::fcntl::open(path, flags, Mode::empty()).map_err(io::Error::from)?);
        let path = path_of(&root).map_err(PathError::from)?;
        Ok(Self { root, path })
    }

    /// The root's own path, with all links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the target of `path`.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathResult<Entry> {
        let handle = self.root.resolve(path).map_err(|error| PathError::from(&error))?;
        self.entry(handle.into())
    }

    /// Opens `path` itself, without following a link in its last component.
    pub fn resolve_nofollow(&self, path: impl AsRef<Path>) -> PathResult<Entry> {
        let handle = self.root.resolve_nofollow(path).map_err(|error| PathError::from(&error))?;
        self.entry(handle.into())
    }

    /// The target of the link at `path`, unresolved.
    pub fn read_link(&self, path: impl AsRef<Path>) -> PathResult<PathBuf> {
        self.root.readlink(path).map_err(|error| PathError::from(&error))
    }

    /// Reads a regular file of at most `limit` bytes.
    pub fn read(&self, path: impl AsRef<Path>, limit: u64) -> PathResult<Vec<u8>> {
        self.resolve(path)?.read(limit)
    }

    /// The sorted names in a folder.
    pub fn list(&self, path: impl AsRef<Path>) -> PathResult<Vec<OsString>> {
        self.resolve(path)?.list()
    }

    fn entry(&self, handle: OwnedFd) -> PathResult<Entry> {
        let file = File::from(handle);
        let metadata = file.metadata()?;
        let path = path_of(&file)?;
        // A file that was deleted meanwhile has no path below the root.
        let resolved = Path::new("/").join(path.strip_prefix(&self.path).unwrap_or(&path));
        Ok(Entry { file, metadata, resolved })
    }
}

impl Entry {
    /// Its metadata at the time of opening.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The path inside the root, with all links resolved.
    pub fn resolved(&self) -> &Path {
        &self.resolved
    }

    /// A path by which this process can access the entry while it is open, for calls that take no open file.
    pub(crate) fn proc_path(&self) -> PathBuf {
        fd_path(&self.file)
    }

    /// Opens a regular file for reading.
    pub fn open(&self) -> PathResult<File> {
        if !self.metadata.is_file() {
            return Err(PathError::OtherKind("a regular file"));
        }
        self.reopen(OpenFlags::O_RDONLY | OpenFlags::O_CLOEXEC)
    }

    /// Reads a regular file of at most `limit` bytes.
    pub fn read(&self, limit: u64) -> PathResult<Vec<u8>> {
        let mut content = Vec::new();
        self.open()?.take(limit.saturating_add(1)).read_to_end(&mut content)?;
        if content.len() as u64 > limit { Err(PathError::TooLarge(limit)) } else { Ok(content) }
    }

    /// The sorted names in a folder.
    pub fn list(&self) -> PathResult<Vec<OsString>> {
        if !self.metadata.is_dir() {
            return Err(PathError::OtherKind("a folder"));
        }
        let folder = self.reopen(OpenFlags::O_RDONLY | OpenFlags::O_DIRECTORY | OpenFlags::O_CLOEXEC)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(fd_path(&folder))? {
            names.push(entry?.file_name());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn reopen(&self, flags: OpenFlags) -> PathResult<File> {
        HandleRef::from_fd(self.file.as_fd()).reopen(flags).map_err(|error| PathError::from(&error))
    }
}

impl From<&pathrs::error::Error> for PathError {
    fn from(error: &pathrs::error::Error) -> Self {
        match error.kind() {
            pathrs::error::ErrorKind::OsError(Some(code)) => io::Error::from_raw_os_error(code).into(),
            _ => Self::Io(io::Error::other(error.to_string())),
        }
    }
}

impl From<io::Error> for PathError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            _ if error.raw_os_error() == Some(TOO_MANY_LINKS) => Self::Loop,
            _ => Self::Io(error),
        }
    }
}

fn path_of(open: &impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(fd_path(open))
}

fn fd_path(open: &impl AsFd) -> PathBuf {
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
    fn links_resolve_inside_the_root() {
        let (folder, root) = tree();
        for (link, target) in [
            ("absolute", "/usr/lib/real"),
            ("relative", "usr/lib/real"),
            ("above", "../../../../../../../../usr/lib/real"),
            ("through", "/usr/../absolute"),
        ] {
            symlink(target, folder.path().join(link)).expect("linked");
            let entry = root.resolve(Path::new("/").join(link)).expect(link);
            assert_eq!(entry.resolved(), Path::new("/usr/lib/real"), "{link}");
            assert_eq!(entry.read(7).expect("read"), b"content");
            let link = root.resolve_nofollow(link).expect("opened");
            assert!(link.metadata().is_symlink());
        }
    }

    #[test]
    fn links_do_not_leave_the_root() {
        let (folder, root) = tree();
        symlink("/proc/self/status", folder.path().join("out")).expect("linked");
        assert!(matches!(root.resolve("out"), Err(PathError::Missing)));
        assert!(matches!(root.resolve("../../../../etc"), Err(PathError::Missing)));
    }

    #[test]
    fn link_loops_are_errors() {
        let (folder, root) = tree();
        symlink("b", folder.path().join("a")).expect("linked");
        symlink("/a", folder.path().join("b")).expect("linked");
        assert!(matches!(root.resolve("a"), Err(PathError::Loop)));
    }

    #[test]
    fn only_regular_files_are_read() {
        let (_folder, root) = tree();
        assert!(matches!(root.read("/usr", 10), Err(PathError::OtherKind(_))));
        assert!(matches!(root.read("/usr/lib/real", 6), Err(PathError::TooLarge(6))));
        assert!(matches!(root.list("/usr/lib/real"), Err(PathError::OtherKind(_))));
        assert!(matches!(root.resolve("/usr/lib/real/x"), Err(PathError::Missing)));
        assert_eq!(root.list("/usr").expect("listed"), ["lib"]);
    }

    #[test]
    fn the_root_itself_may_be_a_link() {
        let (folder, _) = tree();
        symlink("usr", folder.path().join("link")).expect("linked");
        let root = HostRoot::open(&folder.path().join("link")).expect("opened");
        assert_eq!(root.read("/lib/real", 7).expect("read"), b"content");
        let root = HostRoot::open(Path::new("/proc/self/root")).expect("opened");
        assert_eq!(root.path(), Path::new("/"));
        assert!(matches!(HostRoot::open(&folder.path().join("usr/lib/real")), Err(PathError::Missing)));
    }

    #[test]
    fn the_machines_own_root_can_be_opened() {
        let root = HostRoot::open(Path::new("/")).expect("opened");
        assert_eq!(root.resolve("/proc").expect("there").resolved(), Path::new("/proc"));
        assert!(!root.read("/proc/self/cgroup", 1 << 16).expect("read").is_empty());
    }
}

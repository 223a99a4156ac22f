//! A cluster's own folder, and the removal of folders whose cluster was killed.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;

const PREFIX: &str = "swansong-testcluster-";
const LOCK: &str = "lock";
/// The kernel allows 107 bytes for the name of a socket, and the node's are four folders down.
const LONGEST_PATH: usize = 64;
/// A folder younger than this may be one whose lock isn't taken yet.
const SETTLED: Duration = Duration::from_mins(1);

/// A cluster's own folder; it is removed on drop unless it is to be kept.
pub(crate) struct WorkDir {
    path: PathBuf,
    keep: bool,
    // Held for as long as the cluster lives; the kernel lets go of it however the process ends.
    _lock: File,
}

impl WorkDir {
    /// Makes a new folder that only this user can enter, since keys are kept in it.
    pub(crate) fn create() -> Result<Self, Error> {
        let base = env::temp_dir();
        sweep(&base);
        let keep = env::var_os("SWANSONG_KEEP").is_some_and(|value| !value.is_empty() && value != "0");
        let path = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&base)
            .map_err(Error::file("make a folder in", &base))?
            .keep();
        if path.as_os_str().len() > LONGEST_PATH {
            return Err(Error::PathTooLong(path));
        }
        let file = path.join(LOCK);
        let lock = File::create(&file).map_err(Error::file("create", &file))?;
        lock.lock().map_err(Error::file("lock", &file))?;
        let work = Self { path, keep, _lock: lock };
        work.subdirectory("logs")?;
        Ok(work)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    pub(crate) fn subdirectory(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).map_err(Error::file("create", &path))?;
        Ok(path)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        // Keys are among the files, and people copy kubeconfigs elsewhere with their mode.
        let options = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let written = options.and_then(|mut file| file.write_all(contents.as_ref()));
        written.map_err(Error::file("write", &path))?;
        Ok(path)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("testcluster: kept {}", self.path.display());
            // Without its lock file a folder is never swept.
            let _ = fs::remove_file(self.path.join(LOCK));
        } else if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("testcluster: could not remove {}: {error}", self.path.display());
        }
    }
}

/// Removes the folders of clusters that were killed before they could do it themselves.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&path.join(LOCK)) {
            // Another process may be sweeping the same folder: what is gone is gone.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn is_abandoned(lock: &Path) -> bool {
    let Ok(file) = File::open(lock) else { return false };
    let age = file.metadata().and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > SETTLED) && file.try_lock().is_ok()
}

//! The state file and its folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::warn;

use super::State;

/// The version of the file's format. There are no migrations: another version is set aside.
const VERSION: u32 = 1;

/// No state is larger: 4,096 faults with some hundred bytes each.
const LARGEST: u64 = 64 << 20;

const NAME: &str = "state.json";
const NEW: &str = "state.json.new";
const LOCK: &str = "state.lock";
const SET_ASIDE: &str = "state.json.unreadable-";

/// How many files that were set aside are kept.
const KEPT: usize = 4;

/// Between two attempts to lock the folder.
const RETRY: Duration = Duration::from_millis(100);

/// The folder belongs to another agent.
#[derive(Debug, thiserror::Error)]
#[error("another process uses {}; two agents can't share a folder", .0.display())]
pub(crate) struct OpenError(PathBuf);

/// The state file. Its folder is locked as long as this lives.
#[derive(Debug)]
pub(crate) struct StateFile {
    folder: PathBuf,
    lock: Option<File>,
}

/// What was found when the file was opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// The state; empty if there was none that can be used.
    pub state: State,
    /// Why the folder can't be used.
    pub problem: Option<String>,
    /// Why a file was set aside, and where it is now.
    pub set_aside: Option<String>,
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    checksum: u32,
    state: &'a RawValue,
}

#[derive(Deserialize)]
struct Found<'a> {
    version: u32,
    checksum: u32,
    #[serde(borrow)]
    state: &'a RawValue,
}

impl StateFile {
    /// Locks the folder, for which an agent that is being replaced may need up to `timeout`, and reads the file.
    ///
    /// # Errors
    ///
    /// When another process keeps the lock. A disk that can't be used is no error: it may become usable.
    pub(crate) fn open(folder: &Path, timeout: Duration) -> Result<(Self, Opened), OpenError> {
        let mut file = Self { folder: folder.to_owned(), lock: None };
        let deadline = Instant::now() + timeout;
        let locked = loop {
            match file.lock() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Err(OpenError(folder.to_owned()));
                    }
                    sleep(RETRY);
                }
                other => break other,
            }
        };
        let mut opened = Opened::default();
        match locked.and_then(|()| file.read()) {
            Ok(Ok(state)) => opened.state = state,
            Ok(Err(why)) => opened.set_aside = Some(file.set_aside(&why)),
            Err(error) => opened.problem = Some(file.problem(&error)),
        }
        Ok((file, opened))
    }

    /// Replaces the file. After a crash at any moment there is the old state or the new one.
    ///
    /// # Errors
    ///
    /// Why the disk didn't take it, and what to do.
    pub(crate) fn write(&mut self, state: &str) -> Result<(), String> {
        let write = |file: &mut Self| {
            if file.lock.is_none() {
                file.lock()?;
            }
            let raw: &RawValue = serde_json::from_str(state)?;
            let checksum = crc32fast::hash(state.as_bytes());
            let text = serde_json::to_vec(&Written { version: VERSION, checksum, state: raw })?;
            let new = file.folder.join(NEW);
            let mut written = File::create(&new)?;
            written.write_all(&text)?;
            written.sync_all()?;
            fs::rename(&new, file.folder.join(NAME))?;
            File::open(&file.folder)?.sync_all()
        };
        write(self).map_err(|error| self.problem(&error))
    }

    fn lock(&mut self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => self.lock = Some(file),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            // Some file systems have no locks; a single agent needs none.
            Err(TryLockError::Error(error)) => {
                warn!(folder = %self.folder.display(), %error, "the folder of the state can't be locked");
                self.lock = Some(file);
            }
        }
        Ok(())
    }

    /// `Err` inside says why what was read can't be used.
    fn read(&self) -> io::Result<Result<State, String>> {
        let file = match File::open(self.folder.join(NAME)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(State::default())),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes)?;
        Ok(parse(&bytes))
    }

    fn set_aside(&self, why: &str) -> String {
        let stamp = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(':', "");
        let to = self.folder.join(format!("{SET_ASIDE}{stamp}"));
        match fs::rename(self.folder.join(NAME), &to) {
            Ok(()) => {
                self.remove_old();
                format!("{why}; it is {} now", to.display())
            }
            Err(error) => format!("{why}, and it can't be renamed: {error}"),
        }
    }

    /// Keeps the newest files that were set aside. Their names sort by date.
    fn remove_old(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut aside: Vec<String> = names.filter(|name| name.starts_with(SET_ASIDE)).collect();
        aside.sort_unstable();
        for name in aside.iter().rev().skip(KEPT) {
            // What stays takes up room and does no harm.
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    fn problem(&self, error: &io::Error) -> String {
        let advice = match error.kind() {
            io::ErrorKind::StorageFull => "; make room",
            io::ErrorKind::ReadOnlyFilesystem => "; remount it",
            io::ErrorKind::PermissionDenied => "; let the agent's user write there",
            io::ErrorKind::WouldBlock => "; another process uses it",
            _ => "; check the disk",
        };
        format!("{} can't be used ({error}){advice}", self.folder.display())
    }
}

fn parse(bytes: &[u8]) -> Result<State, String> {
    if bytes.len() as u64 > LARGEST {
        return Err(format!("{NAME} is larger than {LARGEST} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| format!("{NAME} isn't text: {error}"))?;
    let found: Found<'_> =
        serde_json::from_str(text).map_err(|error| format!("{NAME} can't be parsed: {error}"))?;
    if found.version != VERSION {
        return Err(format!("{NAME} has version {}, not {VERSION}", found.version));
    }
    let computed = crc32fast::hash(found.state.get().as_bytes());
    if computed != found.checksum {
        return Err(format!("{NAME} has checksum {}, and {computed} would be right", found.checksum));
    }
    serde_json::from_str(found.state.get()).map_err(|error| format!("{NAME} has another form: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use swansong_fault_model::Fault;

    fn state() -> State {
        let faults = vec![Fault::from_id("n.npu3.80E01801.1784000000000")];
        State { faults, ..State::default() }
    }

    fn text() -> String {
        serde_json::to_string(&state()).expect("serializes")
    }

    fn open(folder: &Path) -> (StateFile, Opened) {
        StateFile::open(folder, Duration::ZERO).expect("not in use")
    }

    fn aside(folder: &Path) -> usize {
        let names = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.to_string_lossy().starts_with(SET_ASIDE)).count()
    }

    #[test]
    fn state_outlives_the_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("made");
        let (mut file, opened) = open(&folder);
        assert_eq!(opened.state, State::default());
        file.write(&text()).expect("written");
        drop(file);
        let (_file, opened) = open(&folder);
        assert_eq!((opened.state, opened.problem, opened.set_aside), (state(), None, None));
    }

    #[test]
    fn damaged_file_is_set_aside() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut file, _) = open(folder.path());
        file.write(&text()).expect("written");
        drop(file);
        let path = folder.path().join(NAME);
        let sound = fs::read(&path).expect("read");
        for position in 0..sound.len() {
            let mut damaged = sound.clone();
            damaged[position] ^= 1;
            if let Ok(read) = parse(&damaged) {
                panic!("{} at {position} is read as {read:?}", String::from_utf8_lossy(&damaged));
            }
        }
        for content in [&sound[..sound.len() - 3], b"", b"\xff", br#"{"version":2,"checksum":0,"state":{}}"#]
        {
            fs::write(&path, content).expect("written");
            let (_file, opened) = open(folder.path());
            assert_eq!(opened.state, State::default());
            assert!(opened.set_aside.is_some());
            // Names are by the second; another second is another name.
            let old =
                fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
            for (number, path) in old.filter(|path| path.to_string_lossy().contains(SET_ASIDE)).enumerate() {
                fs::rename(&path, folder.path().join(format!("{SET_ASIDE}2020-{number}"))).expect("renamed");
            }
        }
        assert!(aside(folder.path()) <= KEPT);
    }

    #[test]
    fn folder_is_used_by_one_agent_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, _) = open(folder.path());
        assert!(StateFile::open(folder.path(), Duration::from_millis(10)).is_err());
        drop(first);
        open(folder.path());
    }

    #[test]
    fn disk_that_is_away_is_reported_and_used_when_it_is_there() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("disk");
        fs::write(&folder, "").expect("a file where the folder should be");
        let (mut file, opened) = open(&folder);
        assert!(opened.problem.expect("a problem").contains("check the disk"));
        assert!(file.write(&text()).is_err());
        fs::remove_file(&folder).expect("removed");
        file.write(&text()).expect("written");
        drop(file);
        assert_eq!(open(&folder).1.state, state());
    }
}

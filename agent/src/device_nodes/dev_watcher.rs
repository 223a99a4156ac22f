//! Notices changes in the host's `/dev`.
//!
//! The folder is watched, not the files: a watch on a file ends with it, and misses what replaces it. The watch is set again
//! before every inspection, so that a folder that was replaced is watched too, and no change is missed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::unix::AsyncFd;

use crate::host::Entry;

/// An inotify instance that watches one folder.
#[derive(Debug)]
pub(super) struct DevWatcher {
    events: AsyncFd<Descriptor>,
    watched: Mutex<Option<WatchDescriptor>>,
}

/// The descriptor that tokio waits for.
#[derive(Debug)]
struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl DevWatcher {
    /// Watches nothing yet.
    pub(super) fn new() -> io::Result<Self> {
        let instance = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, since it can't know that the descriptor stays ours; it does"
        )]
        let events = AsyncFd::new(Descriptor(instance))?;
        Ok(Self { events, watched: Mutex::default() })
    }

    /// Watches the folder, which may have been replaced.
    pub(super) fn watch(&self, folder: &Entry) -> io::Result<()> {
        let flags = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let instance = &self.events.get_ref().0;
        let set = instance.add_watch(&folder.proc_path(), flags)?;
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = watched.replace(set).filter(|before| *before != set) {
            // It fails if the folder has gone, and its watch with it.
            let _ = instance.rm_watch(before);
        }
        Ok(())
    }

    /// Waits for a relevant change.
    pub(super) async fn changed(&self) -> io::Result<()> {
        loop {
            if self
                .events
                .readable()
                .await?
                .try_io(|events| take(&events.get_ref().0))
                .unwrap_or(Ok(false))?
            {
                return Ok(());
            }
        }
    }

    /// Discards the changes so far.
    pub(super) fn drain(&self) {
        while take(&self.events.get_ref().0).is_ok() {}
    }
}

fn take(instance: &Inotify) -> io::Result<bool> {
    Ok(instance.read_events()?.iter().any(is_relevant))
}

/// Whether a device of the driver has changed, or changes were missed.
fn is_relevant(event: &InotifyEvent) -> bool {
    let lost = AddWatchFlags::IN_Q_OVERFLOW
        | AddWatchFlags::IN_IGNORED
        | AddWatchFlags::IN_UNMOUNT
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF;
    event.mask.intersects(lost) || event.name.as_deref().is_some_and(is_ours)
}

/// The driver's device nodes; a host's `/dev` has many others.
fn is_ours(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"davinci") || [b"hisi_hdc".as_slice(), b"devmm_svm", b"null"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostRoot;

    fn event(mask: AddWatchFlags, name: Option<&str>) -> InotifyEvent {
        let instance = Inotify::init(InitFlags::IN_CLOEXEC).expect("inotify");
        let folder = tempfile::tempdir().expect("a folder");
        let wd = instance.add_watch(folder.path(), AddWatchFlags::IN_CREATE).expect("watched");
        InotifyEvent { wd, mask, cookie: 0, name: name.map(Into::into) }
    }

    #[test]
    fn changes_of_the_driver_are_relevant() {
        for (mask, name, expected) in [
            (AddWatchFlags::IN_DELETE, Some("davinci3"), true),
            (AddWatchFlags::IN_CREATE, Some("davinci_manager"), true),
            (AddWatchFlags::IN_MOVED_FROM, Some("hisi_hdc"), true),
            (AddWatchFlags::IN_CREATE, Some("sda1"), false),
            (AddWatchFlags::IN_Q_OVERFLOW, None, true),
            (AddWatchFlags::IN_IGNORED, None, true),
            (AddWatchFlags::IN_UNMOUNT, None, true),
            (AddWatchFlags::IN_MOVE_SELF, None, true),
        ] {
            assert_eq!(is_relevant(&event(mask, name)), expected, "{mask:?} {name:?}");
        }
    }

    #[tokio::test]
    async fn replaced_folder_is_watched_again() {
        let host = tempfile::tempdir().expect("a folder");
        let dev = host.path().join("dev");
        std::fs::create_dir(&dev).expect("made");
        let root = HostRoot::open(host.path()).expect("a root");
        let watcher = DevWatcher::new().expect("inotify");
        let folder = || root.resolve("/dev").expect("there");
        watcher.watch(&folder()).expect("watched");
        watcher.watch(&folder()).expect("watched twice is watched once");
        std::fs::rename(&dev, host.path().join("old")).expect("renamed");
        watcher.changed().await.expect("noticed the move");
        std::fs::create_dir(&dev).expect("made");
        watcher.watch(&folder()).expect("watched");
        watcher.drain();
        // The old folder isn't watched any longer.
        std::fs::write(host.path().join("old/davinci1"), "").expect("made");
        std::fs::write(dev.join("davinci2"), "").expect("made");
        watcher.changed().await.expect("noticed the new file");
    }
}

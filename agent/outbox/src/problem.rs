//! What went wrong, in words that say what to do.

use std::io::{Error, ErrorKind};
use std::path::Path;

use crate::store::Failure;

const MEANWHILE: &str = "until then the outbox is in memory only and is lost if this process is killed";

/// `what` couldn't be done in `folder`.
pub(crate) fn text(what: &str, folder: &Path, failure: &Failure) -> String {
    let folder = folder.display();
    match failure {
        Failure::Disk(error) => {
            format!("can't {what} the outbox in {folder}: {error}; {}; {MEANWHILE}", advice(error))
        }
        Failure::Unsound(why) => {
            format!("can't {what} the outbox in {folder}: {why}; it is tried again; {MEANWHILE}")
        }
    }
}

/// Another process took the outbox over while this one had no disk.
pub(crate) fn held(folder: &Path) -> String {
    format!("another process uses the outbox in {}: end one of the two; {MEANWHILE}", folder.display())
}

fn advice(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "free space on that disk, or raise its limit"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "make that disk writable; a disk that became read-only by itself is failing"
        }
        ErrorKind::PermissionDenied => "let the user that this process runs as read and write that folder",
        ErrorKind::NotFound => "mount or make the folder above it",
        ErrorKind::NotADirectory => "a file is where a folder should be: move it away",
        _ => "look at that disk",
    }
}

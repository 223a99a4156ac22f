//! What the tests share.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod model;

use std::path::Path;
use std::time::Duration;

use swansong_outbox::{Entry, Kind, Limits, Opened, Outbox};
use tempfile::{TempDir, tempdir, tempdir_in};

/// A folder in memory if there is one: for tests that hang on no disk, and would wait for one thousands of times.
pub(crate) fn quick() -> TempDir {
    tempdir_in("/dev/shm").or_else(|_| tempdir()).expect("a folder")
}

pub(crate) fn entry(key: &str, id: &str, kind: Kind) -> Entry {
    Entry { key: key.to_owned(), id: id.to_owned(), kind, at: 1, body: id.as_bytes().to_vec() }
}

pub(crate) fn occur(key: &str, id: &str) -> Entry {
    entry(key, id, Kind::Occur)
}

pub(crate) fn recover(key: &str, id: &str) -> Entry {
    entry(key, id, Kind::Recover)
}

pub(crate) fn once(key: &str, id: &str) -> Entry {
    entry(key, id, Kind::Once)
}

pub(crate) fn open(folder: &Path) -> (Outbox, Opened) {
    open_with(folder, Limits::default())
}

pub(crate) fn open_with(folder: &Path, limits: Limits) -> (Outbox, Opened) {
    Outbox::open(folder, limits, Duration::ZERO).expect("nobody else has it")
}

/// What waits: places, ids and kinds.
pub(crate) fn pending(outbox: &Outbox) -> Vec<(u64, String, Kind)> {
    outbox.pending().map(|pending| (pending.seq, pending.entry.id.clone(), pending.entry.kind)).collect()
}

pub(crate) fn heads(outbox: &Outbox) -> Vec<String> {
    outbox.heads().map(|pending| pending.entry.id.clone()).collect()
}

pub(crate) fn standing(outbox: &Outbox) -> Vec<String> {
    outbox.standing().map(|standing| standing.id.clone()).collect()
}

//! Without a disk it goes on in memory, says so, and writes everything when there is a disk again.

mod common;

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::model::Model;
use common::{entry, heads, occur, once, open, pending, quick, recover, standing};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, geteuid, setuid};
use swansong_outbox::{Appended, Entry, Kind, Limits, OpenError, Outbox};
use tempfile::{TempDir, tempdir};

/// A disk of its own in memory.
struct Disk(TempDir);

impl Disk {
    /// Nothing where mounting isn't allowed.
    fn of(bytes: usize) -> Option<Self> {
        let folder = tempdir().expect("a folder");
        let options = format!("size={bytes}");
        match mount(Some("tmpfs"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str())) {
            Ok(()) => Some(Self(folder)),
            Err(Errno::EPERM) => {
                println!("SKIPPED: this user may not mount");
                None
            }
            Err(error) => panic!("no disk in memory: {error}"),
        }
    }

    fn writable(&self, writable: bool) {
        let flags = if writable { MsFlags::empty() } else { MsFlags::MS_RDONLY };
        mount(None::<&str>, self.0.path(), None::<&str>, MsFlags::MS_REMOUNT | flags, None::<&str>)
            .expect("mounted again");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount(self.0.path());
    }
}

/// Runs one test of this file in a process of its own that doesn't die of writing too much.
fn alone(test: &str) {
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env::current_exe().expect("this program"))
        .args([test, "--exact", "--ignored", "--nocapture"])
        .output()
        .expect("a shell");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

fn large(n: usize) -> Entry {
    Entry { body: vec![7; 8 << 10], ..occur(&format!("k{n}"), &format!("id{n}")) }
}

/// Closes the outbox, and finds what it held on disk.
fn is_all_on_disk(outbox: Outbox, folder: &Path) {
    let model = Model::of(&outbox);
    drop(outbox);
    assert_eq!(Model::of(&open(folder).0), model);
}

#[test]
fn a_full_disk() {
    let Some(disk) = Disk::of(512 << 10) else { return };
    let folder = disk.0.path().join("outbox");
    let (mut outbox, _) = open(&folder);
    let mut count = 0;
    while outbox.durable() {
        assert_eq!(outbox.append(large(count)), Appended::Stored(count as u64 + 1));
        count += 1;
        assert!(count < 100, "the disk takes 4 MiB at most");
    }
    let problem = outbox.problem().expect("a problem").to_owned();
    assert!(problem.contains("free space on that disk") && problem.contains("in memory only"), "{problem}");
    // It goes on, and keeps the rules.
    outbox.accept(&[1, 2, 3], 1);
    outbox.append_all([recover("k0", "id0"), once("k5", "o")]);
    assert!(!outbox.retry());
    assert_eq!(outbox.counts().pending, count - 3 + 2);

    mount(None::<&str>, disk.0.path(), None::<&str>, MsFlags::MS_REMOUNT, Some("size=16777216"))
        .expect("a larger disk");
    assert!(outbox.retry(), "{:?}", outbox.problem());
    assert_eq!(outbox.problem(), None);
    is_all_on_disk(outbox, &folder);
}

#[test]
fn a_disk_that_is_full_from_the_start() {
    let Some(disk) = Disk::of(256 << 10) else { return };
    let ballast = disk.0.path().join("ballast");
    let mut bytes = 512 << 10;
    while bytes > 0 && fs::write(&ballast, vec![1; bytes]).is_err() {
        bytes -= 4 << 10;
    }
    let folder = disk.0.path().join("outbox");
    let (mut outbox, opened) = open(&folder);
    assert!(!outbox.durable() && !opened.existed, "{opened:?}");
    outbox.append(occur("k", "a"));
    fs::remove_file(ballast).expect("removed");
    assert!(outbox.retry(), "{:?}", outbox.problem());
    outbox.append(recover("k", "a"));
    assert!(outbox.durable());
    is_all_on_disk(outbox, &folder);
}

#[test]
fn a_disk_that_becomes_read_only_and_is_so_at_the_next_start() {
    let Some(disk) = Disk::of(4 << 20) else { return };
    let folder = disk.0.path().join("outbox");
    let (mut outbox, _) = open(&folder);
    outbox.append_all([occur("k", "a"), occur("l", "b")]);
    outbox.accept(&[1], 1);
    // A disk with files open for writing can't be made read-only by hand; one that fails does that by itself.
    is_all_on_disk(outbox, &folder);
    disk.writable(false);

    let (mut outbox, opened) = open(&folder);
    assert!(!outbox.durable());
    assert_eq!((opened.pending, opened.standing), (1, 1), "what is there is known all the same");
    let problem = outbox.problem().expect("a problem");
    assert!(problem.contains("make that disk writable"), "{problem}");
    assert_eq!(outbox.append(recover("k", "a")), Appended::Stored(3));
    outbox.accept(&[2], 2);
    assert!(!outbox.retry());

    disk.writable(true);
    assert!(outbox.retry(), "{:?}", outbox.problem());
    assert_eq!(standing(&outbox), ["a", "b"]);
    assert_eq!(pending(&outbox), [(3, "a".to_owned(), Kind::Recover)], "and nothing that was over is back");
    is_all_on_disk(outbox, &folder);
}

#[test]
fn damage_on_a_read_only_disk_is_set_aside_once_that_can_be_done() {
    let Some(disk) = Disk::of(4 << 20) else { return };
    let folder = disk.0.path().join("outbox");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("outbox.redb"), b"garbage").expect("a file");
    disk.writable(false);
    let (mut outbox, opened) = open(&folder);
    assert!(!outbox.durable() && opened.existed && opened.set_aside.is_none());
    outbox.append(occur("k", "a"));
    assert_eq!(fs::read(folder.join("outbox.redb")).expect("a file"), b"garbage");
    disk.writable(true);
    assert!(outbox.retry(), "{:?}", outbox.problem());
    let aside = outbox.opened().set_aside.clone().expect("set aside");
    assert_eq!(fs::read(aside.moved_to).expect("a file"), b"garbage");
    is_all_on_disk(outbox, &folder);
}

#[test]
fn a_file_that_may_not_grow() {
    alone("child_whose_file_may_not_grow");
}

/// Every write beyond some place fails: a transaction is cut in its middle, at all places of it in time.
#[test]
#[ignore = "it limits the files of its process: run by another test"]
fn child_whose_file_may_not_grow() {
    let (_, most) = getrlimit(Resource::RLIMIT_FSIZE).expect("a limit");
    let limit = |bytes| setrlimit(Resource::RLIMIT_FSIZE, bytes, most).expect("a limit");
    for pages in 0..48 {
        let folder = tempdir().expect("a folder");
        let (mut outbox, _) = open(folder.path());
        outbox.append_all((0..8).map(large));
        outbox.accept(&[1, 2], 1);
        limit(pages * 4096 + 100);
        let mut count = 8;
        while outbox.durable() && count < 60 {
            outbox.append(large(count));
            count += 1;
        }
        assert!(!outbox.durable(), "{pages} pages are no room for {count} entries");
        outbox.append(recover("k0", "id0"));
        outbox.accept(&[3], 1);
        assert!(!outbox.retry());
        // What was on disk before is what a kill would leave, or what the cut transaction wanted.
        limit(most);
        let left = tempdir().expect("a folder");
        fs::copy(folder.path().join("outbox.redb"), left.path().join("outbox.redb")).expect("a copy");
        let (left, opened) = open(left.path());
        assert_eq!(opened.set_aside, None, "{pages} pages");
        assert!(left.pending().count() >= count - 3, "{pages} pages: {} of {count}", left.pending().count());

        assert!(outbox.retry(), "{:?}", outbox.problem());
        assert_eq!(standing(&outbox), ["id0", "id1", "id2"]);
        is_all_on_disk(outbox, folder.path());
    }
}

#[test]
fn a_folder_that_this_user_may_not_write_to() {
    alone("child_that_may_not_write");
}

#[test]
#[ignore = "it gives up root: run by another test"]
fn child_that_may_not_write() {
    let above = tempdir().expect("a folder");
    let folder = above.path().join("outbox");
    let (mut outbox, _) = open(&folder);
    outbox.append(occur("k", "a"));
    drop(outbox);
    let allow = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("allowed");
    if geteuid().is_root() {
        allow(above.path(), 0o755);
        allow(&folder, 0o755);
        setuid(Uid::from_raw(65_534)).expect("nobody");
    } else {
        allow(&folder, 0o500);
        allow(&folder.join("outbox.redb"), 0o000);
        allow(&folder.join("outbox.lock"), 0o400);
    }
    let (mut outbox, _) = open(&folder);
    assert!(!outbox.durable());
    let problem = outbox.problem().expect("a problem");
    assert!(problem.contains("let the user that this process runs as"), "{problem}");
    assert_eq!(outbox.append(occur("k", "b")), Appended::Stored(1 << 40));
    assert!(!outbox.retry());
}

#[test]
fn a_folder_whose_mount_is_not_there_yet_and_then_holds_an_outbox() {
    let above = tempdir().expect("a folder");
    let mounted = above.path().join("mounted");
    let folder = mounted.join("outbox");
    let (mut outbox, opened) = open(&folder);
    assert!(!outbox.durable() && !opened.existed && !mounted.exists());
    let problem = outbox.problem().expect("a problem");
    assert!(problem.contains("mount or make the folder above it"), "{problem}");
    let Appended::Stored(seq) = outbox.append(occur("npu0", "new")) else { panic!("there is room") };
    outbox.append_all([occur("npu1", "both"), occur("npu2", "gone"), recover("npu2", "gone")]);

    // Now it is, and it holds what nobody knew of.
    let before = above.path().join("before");
    fs::create_dir(&before).expect("a folder");
    let (mut older, _) = open(&before.join("outbox"));
    older.append_all([
        occur("npu0", "old"),
        recover("npu0", "old"),
        occur("npu1", "both"),
        occur("npu3", "stood"),
    ]);
    older.accept(&[4], 1);
    older.note("stood", b"note");
    drop(older);
    fs::rename(&before, &mounted).expect("mounted");

    assert!(outbox.retry(), "{:?}", outbox.problem());
    assert_eq!((outbox.opened().pending, outbox.opened().standing), (3, 1));
    let ids: Vec<String> = pending(&outbox).into_iter().map(|(_, id, _)| id).collect();
    assert_eq!(ids, ["old", "old", "new", "both", "gone", "gone"], "what is older goes first");
    assert_eq!(heads(&outbox), ["old", "both", "gone"]);
    assert_eq!(outbox.accept(&[seq], 2), [seq], "places that were given stay");
    assert_eq!(outbox.standing_of("stood").expect("it stands").note, b"note");
    is_all_on_disk(outbox, &folder);
}

#[test]
fn a_file_that_is_deleted_or_replaced_under_it() {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("outbox.redb");
    let (mut outbox, _) = open(folder.path());
    outbox.append(occur("k", "a"));
    fs::remove_file(&file).expect("deleted");
    outbox.append(occur("k", "b"));
    assert!(!outbox.durable(), "what is written to a deleted file is lost");
    assert!(outbox.problem().expect("a problem").contains("moved or deleted"));
    assert!(outbox.retry());

    // What took its place is taken in, and then replaced by all there is.
    let other = tempdir().expect("a folder");
    open(other.path()).0.append(occur("k", "other"));
    fs::rename(other.path().join("outbox.redb"), &file).expect("replaced");
    outbox.append(occur("k", "d"));
    assert!(!outbox.durable());
    assert!(outbox.retry(), "{:?}", outbox.problem());
    assert_eq!(outbox.opened().pending, 1);
    let ids: Vec<String> = pending(&outbox).into_iter().map(|(_, id, _)| id).collect();
    assert_eq!(ids, ["a", "b", "d", "other"], "no place is free before what came first");

    fs::remove_dir_all(folder.path()).expect("deleted");
    outbox.append(occur("k", "c"));
    assert!(!outbox.durable());
    assert!(outbox.retry(), "{:?}", outbox.problem());
    is_all_on_disk(outbox, folder.path());
}

#[test]
fn operations_try_the_disk_by_themselves() {
    let above = tempdir().expect("a folder");
    let folder = above.path().join("mounted/outbox");
    let (mut outbox, _) = open(&folder);
    outbox.append(occur("k", "a"));
    fs::create_dir(above.path().join("mounted")).expect("a folder");
    let begun = Instant::now();
    while !outbox.durable() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", outbox.problem());
        outbox.mark_offered(&[]);
        thread::yield_now();
    }
    is_all_on_disk(outbox, &folder);
}

#[test]
fn two_at_once_are_refused_and_one_after_the_other_waited_for() {
    let folder = tempdir().expect("a folder");
    let (mut outbox, _) = open(folder.path());
    outbox.append(occur("k", "a"));
    let again = Outbox::open(folder.path(), Limits::default(), Duration::from_millis(60));
    let Err(error @ OpenError::Held { .. }) = again else { panic!("there are two") };
    assert!(error.to_string().contains("two agents can't share one"), "{error}");

    let path: PathBuf = folder.path().to_owned();
    let next = thread::spawn(move || Outbox::open(&path, Limits::default(), Duration::from_mins(1)));
    outbox.append(occur("k", "b"));
    drop(outbox);
    let (outbox, opened) = next.join().expect("it ends").expect("it is free");
    assert_eq!((opened.pending, outbox.durable()), (2, true));
}

#[test]
fn many_keys_and_large_bodies() {
    let folder = tempdir().expect("a folder");
    let limits = Limits { entries: 200_000, bytes: 64 << 20, entry_bytes: 8 << 20, ..Limits::default() };
    let (mut outbox, _) = common::open_with(folder.path(), limits);
    outbox.append_all((0..20_000).map(|n| entry(&format!("key {n}"), &format!("id {n}"), Kind::Occur)));
    outbox.append(Entry { body: vec![9; 5 << 20], ..once("key 5", "huge") });
    assert!(outbox.durable());
    drop(outbox);
    let (mut outbox, _) = common::open_with(folder.path(), limits);
    assert_eq!(outbox.heads().count(), 20_000);
    assert_eq!(outbox.behind("key 5").next().expect("it waits").entry.body.len(), 5 << 20);
    let all: Vec<u64> = outbox.heads().map(|head| head.seq).collect();
    assert_eq!(outbox.accept(&all, 1).len(), 20_000);
    assert!(outbox.durable());
}

#[test]
fn a_file_stays_in_bounds_when_it_is_full_and_is_small_again_after_the_next_start() {
    let folder = quick();
    let limits = Limits { entry_bytes: 32 << 10, ..Limits::default() };
    let (mut outbox, _) = common::open_with(folder.path(), limits);
    let bytes = || fs::metadata(folder.path().join("outbox.redb")).expect("a file").len();
    for round in 0..8 {
        let mut number = 0;
        while let Appended::Stored(_) = outbox.append(large(round * 1000 + number)) {
            number += 1;
        }
        assert!(number > 500);
        // Pages are powers of two, and a transaction writes what it changes beside what is there.
        assert!(bytes() < 8 * limits.bytes as u64, "{}", bytes());
        let all: Vec<u64> = outbox.pending().map(|pending| pending.seq).collect();
        outbox.accept(&all, 1);
        assert!(bytes() < 8 * limits.bytes as u64, "{}", bytes());
        let ids: Vec<(String, String)> =
            outbox.standing().map(|standing| (standing.key.clone(), standing.id.clone())).collect();
        outbox.append_all(ids.iter().map(|(key, id)| recover(key, id)));
        let all: Vec<u64> = outbox.pending().map(|pending| pending.seq).collect();
        outbox.accept(&all, 2);
        assert_eq!(outbox.counts().standing, 0);
        println!("{} KiB", bytes() >> 10);
    }
    drop(outbox);
    let (outbox, _) = common::open_with(folder.path(), limits);
    println!("{} KiB", bytes() >> 10);
    assert!(outbox.durable() && bytes() < 1 << 20, "{}", bytes());
}

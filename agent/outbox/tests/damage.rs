//! A file that can't be used is set aside as it was, and what of it is sound is kept.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;

use common::model::Model;
use common::{occur, once, open, quick, recover};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use swansong_outbox::Opened;
use tempfile::tempdir;

const FORMAT: TableDefinition<&str, u64> = TableDefinition::new("swansong-outbox");
const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// The bytes of an outbox with something of everything, and what it holds.
fn sound() -> (Vec<u8>, Model) {
    let folder = quick();
    let (mut outbox, _) = open(folder.path());
    outbox.append_all((0..40).map(|n| occur(&format!("k{}", n % 8), &format!("id{n}"))));
    outbox.accept(&(1..10).collect::<Vec<_>>(), 5);
    outbox.append_all([recover("k0", "id0"), once("k1", "o"), once("k1", "p")]);
    outbox.refuse(43, "409", 7);
    outbox.mark_offered(&[12]);
    outbox.note("id3", b"note");
    let model = Model::of(&outbox);
    drop(outbox);
    (fs::read(folder.path().join("outbox.redb")).expect("a file"), model)
}

/// What was set aside, in order.
fn aside(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    let mut names: Vec<String> = names.filter(|name| name.contains("set-aside")).collect();
    names.sort();
    names
}

/// Opens a folder with `file`, and says what was found; whatever is not found must be set aside, unchanged,
/// and it must go on working.
fn opened(file: &[u8], whole: &Model) -> Opened {
    let folder = quick();
    fs::write(folder.path().join("outbox.redb"), file).expect("a file");
    let (mut outbox, opened) = open(folder.path());
    assert!(outbox.durable(), "{:?}", outbox.problem());
    if let Some(aside) = &opened.set_aside {
        assert!(!aside.why.is_empty());
        assert!(fs::read(&aside.moved_to).expect("what was set aside") == file, "it was changed: {aside:?}");
        let there = Model::of(&outbox);
        assert!(there.pending.iter().all(|pending| whole.pending.iter().any(|other| other == pending)));
        assert!(there.standing.iter().all(|standing| whole.standing.iter().any(|other| other == standing)));
    } else {
        assert_eq!(Model::of(&outbox), *whole, "something is lost and nobody says so");
    }
    outbox.append(once("after", "after"));
    let model = Model::of(&outbox);
    drop(outbox);
    assert_eq!(Model::of(&open(folder.path()).0), model);
    opened
}

#[test]
fn a_sound_file_is_restored() {
    let (file, model) = sound();
    let opened = opened(&file, &model);
    assert_eq!((opened.pending, opened.standing, opened.set_aside), (33, 9, None));
}

#[test]
fn a_file_cut_anywhere_is_set_aside() {
    let (file, model) = sound();
    let lengths = (0..file.len()).step_by(file.len() / 40).chain([1, 8, 9, 63, 320, 4095, 4096, 4097]);
    for length in lengths {
        let opened = opened(&file[..length], &model);
        assert!(opened.set_aside.is_some() && opened.existed, "cut at {length}");
    }
}

#[test]
fn a_bit_that_flips_anywhere_loses_nothing_unsaid() {
    let (file, model) = sound();
    let mut noticed = 0;
    // The header closely, the rest by steps that meet all places within a page in time.
    let places = (0..400).step_by(3).chain((400..file.len()).step_by(509));
    for (number, place) in places.enumerate() {
        let mut damaged = file.clone();
        damaged[place] ^= 1 << (number % 8);
        noticed += usize::from(opened(&damaged, &model).set_aside.is_some());
    }
    assert!(noticed > 50, "{noticed}");
}

#[test]
fn what_is_no_outbox_is_set_aside() {
    let (file, model) = sound();
    let mut random = fastrand::Rng::with_seed(1);
    let mut garbage = vec![0; 100_000];
    random.fill(&mut garbage);
    // As much of a header as makes redb go on.
    let mut headed = garbage.clone();
    headed[..4096].copy_from_slice(&file[..4096]);
    let zeros = vec![0; 73_728];
    for foreign in [&b"hello\n"[..], b"", &garbage, &headed, &zeros, b"SQLite format 3\0"] {
        assert!(opened(foreign, &model).set_aside.is_some());
    }
}

/// A file of redb that `change` was done to after it was an outbox.
fn changed(sound: &[u8], change: impl FnOnce(&Database)) -> Vec<u8> {
    let folder = quick();
    let path = folder.path().join("file");
    fs::write(&path, sound).expect("a file");
    let database = Database::open(&path).expect("a database");
    change(&database);
    drop(database);
    fs::read(path).expect("a file")
}

#[test]
fn a_file_of_a_newer_version_is_set_aside_and_it_says_so() {
    let (file, model) = sound();
    let newer = changed(&file, |database| {
        let write = database.begin_write().expect("a transaction");
        write.open_table(FORMAT).expect("a table").insert("version", 3).expect("written");
        write.commit().expect("written");
    });
    let why = opened(&newer, &model).set_aside.expect("set aside").why;
    assert_eq!(why, "its format is version 3 and this program knows 2 at most; a newer program can read it");
}

#[test]
fn a_foreign_database_is_set_aside() {
    let (file, model) = sound();
    let foreign = changed(&file, |database| {
        let write = database.begin_write().expect("a transaction");
        write.delete_table(FORMAT).expect("deleted");
        write.commit().expect("written");
    });
    let why = opened(&foreign, &model).set_aside.expect("set aside").why;
    assert_eq!(why, "it is a file of redb, but no outbox");
}

#[test]
fn a_damaged_record_that_the_store_does_not_notice_is_noticed_and_the_others_are_kept() {
    let (sound, model) = sound();
    let read = |database: &Database| -> Vec<(Vec<u8>, Vec<u8>)> {
        let records = database.begin_read().expect("a transaction").open_table(RECORDS).expect("a table");
        let all = records.iter().expect("records").map(|record| record.expect("a record"));
        all.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())).collect()
    };
    let mut all = Vec::new();
    changed(&sound, |database| all = read(database));
    assert_eq!(all.len(), 1 + 33 + 9 + 1);
    let mut random = fastrand::Rng::with_seed(2);
    for (key, value) in all {
        let mut wrong = value.clone();
        match random.u32(..3) {
            0 => wrong.truncate(random.usize(..wrong.len())),
            1 => wrong.push(0),
            _ => {
                let place = random.usize(..wrong.len());
                wrong[place] ^= 1 << random.u32(..8);
            }
        }
        let file = changed(&sound, |database| {
            let write = database.begin_write().expect("a transaction");
            write.open_table(RECORDS).expect("a table").insert(&key[..], &wrong[..]).expect("written");
            write.commit().expect("written");
        });
        let opened = opened(&file, &model);
        let why = opened.set_aside.expect("set aside").why;
        assert!(why.starts_with("1 of its records are damaged, the first: record "), "{why}");
        let lost = 42 - opened.pending - opened.standing;
        assert_eq!(lost, usize::from(matches!(key[0], b'p' | b's')), "{why}");
    }
}

#[test]
fn a_record_under_another_key_is_noticed() {
    let (sound, model) = sound();
    let file = changed(&sound, |database| {
        let write = database.begin_write().expect("a transaction");
        {
            let mut records = write.open_table(RECORDS).expect("a table");
            let from = [&b"p"[..], &12_u64.to_be_bytes()].concat();
            let to = [&b"p"[..], &77_u64.to_be_bytes()].concat();
            let value = records.get(&from[..]).expect("read").expect("a record").value().to_vec();
            records.insert(&to[..], &value[..]).expect("written");
            records.insert(&b"strange"[..], &value[..]).expect("written");
            records.insert(&b""[..], &value[..]).expect("written");
        }
        write.commit().expect("written");
    });
    let opened = opened(&file, &model);
    assert_eq!((opened.pending, opened.standing), (33, 9));
    assert!(opened.set_aside.expect("set aside").why.starts_with("3 of its records"));
}

#[test]
fn what_is_in_the_place_of_the_file_is_moved_and_never_followed() {
    let elsewhere = tempdir().expect("a folder");
    let precious = elsewhere.path().join("precious");
    fs::write(&precious, b"precious").expect("a file");
    let place = |make: &dyn Fn(&Path)| {
        let folder = tempdir().expect("a folder");
        let file = folder.path().join("outbox.redb");
        make(&file);
        let (mut outbox, opened) = open(folder.path());
        outbox.append(occur("k", "a"));
        assert!(outbox.durable() && fs::symlink_metadata(&file).expect("a file").is_file());
        let aside = opened.set_aside.expect("set aside");
        (folder, aside.moved_to, aside.why)
    };
    let (_folder, moved, why) = place(&|file| {
        fs::create_dir(file).expect("a folder");
        fs::write(file.join("inside"), b"kept").expect("a file");
    });
    assert_eq!(why, "it is a folder");
    assert_eq!(fs::read(moved.join("inside")).expect("a file"), b"kept");
    let (_folder, moved, why) = place(&|file| symlink(&precious, file).expect("a link"));
    assert_eq!(why, "it is a symbolic link");
    assert_eq!(fs::read_link(moved).expect("a link"), precious);
    let (_folder, moved, why) = place(&|file| mkfifo(file, Mode::S_IRWXU).expect("a pipe"));
    assert_eq!(why, "it is neither file nor folder");
    assert!(fs::symlink_metadata(moved).expect("a pipe").file_type().is_fifo());
    assert_eq!(fs::read(&precious).expect("a file"), b"precious");
}

#[test]
fn the_first_and_the_last_three_that_were_set_aside_are_kept_and_no_folder_goes() {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("outbox.redb");
    for number in 0..9 {
        if number == 1 {
            fs::create_dir(&file).expect("a folder");
        } else {
            fs::write(&file, format!("garbage {number}")).expect("a file");
        }
        let (outbox, opened) = open(folder.path());
        assert!(outbox.durable() && opened.set_aside.is_some());
        drop(outbox);
        fs::remove_file(&file).expect("removed");
    }
    let numbers: Vec<String> = aside(folder.path())
        .into_iter()
        .map(|name| {
            name.trim_start_matches("outbox.redb.set-aside-").split('-').next().expect("a number").to_owned()
        })
        .collect();
    assert_eq!(numbers, ["000001", "000002", "000007", "000008", "000009"]);
}

#[test]
fn what_is_left_of_an_outbox_in_the_making_is_replaced() {
    let folder = tempdir().expect("a folder");
    fs::write(folder.path().join("outbox.redb.new"), b"half").expect("a file");
    let (outbox, opened) = open(folder.path());
    assert!(outbox.durable() && !opened.existed && opened.set_aside.is_none());
    let mode =
        File::open(folder.path().join("outbox.redb")).and_then(|file| file.metadata()).expect("a file");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
}

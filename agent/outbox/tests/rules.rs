//! What becomes of entries.

mod common;

use common::{entry, heads, occur, once, open, open_with, pending, recover, standing};
use swansong_outbox::{Appended, Entry, Kind, Limits, Offered, Refused, Unfit};
use tempfile::tempdir;

/// No places.
const NONE: [u64; 0] = [];

#[test]
fn an_episode_waits_stands_and_ends() {
    let folder = tempdir().expect("a folder");
    let (mut outbox, opened) = open(folder.path());
    assert!(!opened.existed && outbox.durable() && outbox.problem().is_none());
    assert_eq!(outbox.append(occur("npu0", "a")), Appended::Stored(1));
    assert_eq!(outbox.append(occur("npu0", "a")), Appended::Pending(1));
    assert_eq!(outbox.mark_offered(&[1]), [1]);
    assert_eq!(outbox.accept(&[1], 7), [1]);
    assert_eq!(outbox.accept(&[1], 7), NONE);
    assert_eq!(outbox.append(occur("npu0", "a")), Appended::Standing);
    let stands = outbox.standing_of("a").expect("it stands").clone();
    assert_eq!((stands.at, stands.accepted_at, stands.certain), (1, 7, true));
    assert!(outbox.note("a", b"seen") && !outbox.note("b", b"seen"));
    assert_eq!(outbox.append(recover("npu0", "a")), Appended::Stored(2));
    assert_eq!(outbox.append(recover("npu0", "a")), Appended::Pending(2));
    assert_eq!(outbox.append(occur("npu0", "a")), Appended::Over);
    assert_eq!(standing(&outbox), ["a"]);
    drop(outbox);

    let (mut outbox, opened) = open(folder.path());
    assert_eq!((opened.pending, opened.standing, opened.existed), (1, 1, true));
    assert_eq!(outbox.standing_of("a").expect("it stands").note, b"seen");
    assert_eq!(outbox.accept(&[2], 9), [2]);
    assert_eq!(standing(&outbox), Vec::<String>::new());
    assert_eq!(outbox.append(recover("npu0", "a")), Appended::Unknown);
    assert_eq!(outbox.append(occur("npu0", "a")), Appended::Stored(3), "a place is never given twice");
    drop(outbox);
    assert_eq!(pending(&open(folder.path()).0), [(3, "a".to_owned(), Kind::Occur)]);
}

#[test]
fn only_the_first_of_a_key_may_go() {
    let folder = tempdir().expect("a folder");
    let (mut outbox, _) = open(folder.path());
    outbox.append_all([
        occur("npu0", "a"),
        occur("npu1", "b"),
        recover("npu0", "a"),
        once("npu0", "c"),
        recover("npu1", "b"),
    ]);
    assert_eq!(heads(&outbox), ["a", "b"]);
    let behind: Vec<u64> = outbox.behind("npu0").map(|pending| pending.seq).collect();
    assert_eq!(behind, [3, 4]);
    assert_eq!(outbox.behind("npu7").count(), 0);
    outbox.accept(&[1], 1);
    let heads: Vec<u64> = outbox.heads().map(|pending| pending.seq).collect();
    assert_eq!(heads, [2, 3]);
}

#[test]
fn what_was_never_offered_is_withdrawn_and_nothing_else() {
    let folder = tempdir().expect("a folder");
    let (mut outbox, _) = open(folder.path());
    outbox.append_all([
        occur("k", "a"),
        recover("k", "a"),
        occur("k", "b"),
        recover("k", "b"),
        once("k", "c"),
    ]);
    assert_eq!(outbox.mark_offered(&[3, 99]), [3]);
    assert_eq!(outbox.withdraw(&[2, 3, 4, 5, 99]), [1, 2, 5]);
    assert_eq!(pending(&outbox), [(3, "b".to_owned(), Kind::Occur), (4, "b".to_owned(), Kind::Recover)]);
    // The mark is what tells it after a restart.
    drop(outbox);
    let (mut outbox, _) = open(folder.path());
    assert_eq!(outbox.withdraw(&[3, 4]), NONE);
    outbox.accept(&[3], 1);
    assert_eq!(outbox.withdraw(&[4]), NONE, "the receiver has it: only a recovery takes it back");
}

#[test]
fn a_refused_beginning_takes_its_recovery_along_only_if_the_receiver_cannot_have_it() {
    let folder = tempdir().expect("a folder");
    let (mut outbox, _) = open(folder.path());
    outbox.append_all([occur("k", "a"), recover("k", "a"), occur("k", "b"), recover("k", "b")]);
    outbox.mark_offered(&[1]);
    assert_eq!(outbox.refuse(1, "409", 5), Refused::Dead { recovery: Some(2) });
    assert_eq!(outbox.append(recover("k", "a")), Appended::Unknown);

    outbox.mark_offered(&[3]);
    outbox.mark_offered(&[3]);
    outbox.mark_offered(&[3]);
    assert_eq!(outbox.pending().next().expect("it waits").offered, Offered::Again);
    assert_eq!(outbox.refuse(3, "409", 6), Refused::Doubtful);
    assert!(!outbox.standing_of("b").expect("it may stand").certain);
    assert_eq!(outbox.refuse(3, "409", 6), Refused::Missing);
    assert_eq!(outbox.refuse(4, "409", 7), Refused::Stands);
    assert_eq!(outbox.append(recover("k", "b")), Appended::Stored(5), "it is tried again");
    drop(outbox);

    let (outbox, _) = open(folder.path());
    let dead: Vec<_> =
        outbox.dead_letters().map(|dead| (dead.seq, dead.why.as_str(), dead.refused_at)).collect();
    assert_eq!(dead, [(1, "409", 5), (3, "409", 6), (4, "409", 7)]);
}

#[test]
fn dead_letters_are_bounded_and_the_oldest_go_first() {
    let folder = tempdir().expect("a folder");
    let limits = Limits { dead_letters: 2, ..Limits::default() };
    let (mut outbox, _) = open_with(folder.path(), limits);
    for id in ["a", "b", "c"] {
        let Appended::Stored(seq) = outbox.append(once("k", id)) else { panic!("there is room") };
        outbox.refuse(seq, &"é".repeat(1000), 1);
    }
    drop(outbox);
    let (outbox, _) = open_with(folder.path(), limits);
    let dead: Vec<_> = outbox.dead_letters().map(|dead| (dead.entry.id.as_str(), dead.why.len())).collect();
    assert_eq!(dead, [("b", 1024), ("c", 1024)]);
}

#[test]
fn b71_an_outbox_full_of_faults_takes_a_recovery_and_delivers_it() {
    let folder = tempdir().expect("a folder");
    let limits = Limits { entries: 64, ..Limits::default() };
    let (mut outbox, _) = open_with(folder.path(), limits);
    let ids: Vec<String> = (0..100).map(|n| format!("fault-{n}")).collect();
    let appended = outbox.append_all(ids.iter().map(|id| occur(id, id)));
    let full = appended.iter().filter(|appended| **appended == Appended::Full).count();
    assert_eq!((full, outbox.counts().full), (36, 36));

    // One of them stands, and all others may have been sent: nothing can make room.
    outbox.accept(&[1], 1);
    let waiting: Vec<u64> = outbox.pending().map(|pending| pending.seq).collect();
    outbox.mark_offered(&waiting);
    assert_eq!(outbox.append(occur("one more", "one more")), Appended::Full);
    assert_eq!(outbox.append(recover("fault-0", "fault-0")), Appended::Stored(65));
    assert_eq!(outbox.append(recover("fault-1", "fault-1")), Appended::Stored(66));
    drop(outbox);

    let (mut outbox, _) = open_with(folder.path(), limits);
    assert!(outbox.heads().any(|head| head.entry.id == "fault-0" && head.entry.kind == Kind::Recover));
    outbox.accept(&[65, 2, 66], 2);
    assert_eq!(standing(&outbox), Vec::<String>::new());
    assert_eq!(outbox.append(occur("one more", "one more")), Appended::Stored(67), "there is room again");
}

#[test]
fn room_is_made_of_episodes_that_are_over_and_untold_of_the_same_key_first() {
    let folder = tempdir().expect("a folder");
    let limits = Limits { entries: 3, ..Limits::default() };
    let (mut outbox, _) = open_with(folder.path(), limits);
    outbox.append_all([
        occur("x", "a"),
        recover("x", "a"),
        occur("y", "b"),
        recover("y", "b"),
        occur("z", "c"),
    ]);
    outbox.append(occur("y", "d"));
    let ids: Vec<String> = pending(&outbox).into_iter().map(|(_, id, _)| id).collect();
    assert_eq!(ids, ["a", "a", "c", "d"]);
    outbox.append(occur("y", "e"));
    let ids: Vec<String> = pending(&outbox).into_iter().map(|(_, id, _)| id).collect();
    assert_eq!(ids, ["c", "d", "e"]);
    assert_eq!(outbox.counts().coalesced, 2);
    assert_eq!(outbox.append(once("y", "f")), Appended::Full);
}

#[test]
fn bytes_are_bounded_too() {
    let folder = tempdir().expect("a folder");
    let limits = Limits { bytes: 100, entry_bytes: 60, ..Limits::default() };
    let (mut outbox, _) = open_with(folder.path(), limits);
    let large = |id: &str, bytes| Entry { body: vec![0xff; bytes], ..occur("k", id) };
    assert_eq!(outbox.append(large("a", 58)), Appended::Stored(1));
    assert_eq!(outbox.append(large("b", 59)), Appended::Unfit(Unfit::TooLarge { bytes: 61, limit: 60 }));
    assert_eq!(outbox.append(large("b", 58)), Appended::Full);
    assert_eq!(outbox.append(large("b", 38)), Appended::Stored(2));
    assert_eq!(outbox.counts().bytes, 100);
    let recovery = Entry { kind: Kind::Recover, ..large("a", 70) };
    assert_eq!(outbox.append(recovery), Appended::Stored(3), "a recovery may say a little more");
    outbox.accept(&[1], 1);
    assert!(!outbox.note("a", &[0; 61]));
    assert!(outbox.note("a", &[0; 60]));
    assert_eq!(outbox.counts().bytes, 160);
    outbox.accept(&[3], 1);
    assert_eq!(outbox.counts().bytes, 40);
}

#[test]
fn entries_that_cannot_be_kept_are_told() {
    let folder = tempdir().expect("a folder");
    let (mut outbox, _) = open(folder.path());
    outbox.append_all([occur("k", "a"), once("k", "o")]);
    let other = || Appended::Unfit(Unfit::OtherKey { key: "k".to_owned() });
    for (entry, appended) in [
        (occur("", "b"), Appended::Unfit(Unfit::Empty)),
        (occur("k", ""), Appended::Unfit(Unfit::Empty)),
        (occur("l", "a"), other()),
        (recover("l", "a"), other()),
        (once("l", "o"), other()),
        (once("k", "a"), Appended::Unfit(Unfit::OtherKind)),
        (occur("k", "o"), Appended::Unfit(Unfit::OtherKind)),
        (recover("k", "o"), Appended::Unfit(Unfit::OtherKind)),
        (recover("k", "nobody"), Appended::Unknown),
    ] {
        assert_eq!(outbox.append(entry.clone()), appended, "{entry:?}");
    }
    outbox.accept(&[1], 1);
    assert_eq!(outbox.append(recover("l", "a")), other());
}

#[test]
fn a_clock_that_jumps_changes_no_order() {
    let folder = tempdir().expect("a folder");
    let (mut outbox, _) = open(folder.path());
    let times = [u64::MAX, 0, 1_700_000_000_000, 5];
    for (n, at) in times.into_iter().enumerate() {
        outbox.append(Entry { at, ..entry("k", &n.to_string(), Kind::Once) });
    }
    drop(outbox);
    let (outbox, _) = open(folder.path());
    let kept: Vec<u64> = outbox.pending().map(|pending| pending.entry.at).collect();
    assert_eq!(kept, times);
}

#[test]
fn it_can_be_handed_to_the_thread_that_may_wait_for_the_disk() {
    fn hand_over<T: Send + 'static>(_: &T) {}
    let folder = tempdir().expect("a folder");
    hand_over(&open(folder.path()).0);
}

//! What holds for any sequence of operations, with the outbox closed and opened in between.

mod common;

use common::model::{Model, Step};
use common::{entry, open, open_with, quick};
use proptest::prelude::*;
use swansong_outbox::{Appended, Kind, Limits, Offered, Outbox, Unfit};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn an_outbox_does_what_the_plain_model_says(seed: u64, steps in 1..60_usize, reopen in 1..10_usize) {
        let folder = quick();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::default();
        let (mut outbox, _) = open(folder.path());
        for number in 0..steps {
            let step = Step::random(&mut random, &model, &number.to_string());
            step.take(&mut outbox);
            model.take(&step);
            prop_assert_eq!(&Model::of(&outbox), &model, "{:?}", step);
            let heads: Vec<u64> = outbox.heads().map(|head| head.seq).collect();
            let mut expected = model.heads();
            expected.sort_unstable();
            prop_assert_eq!(heads, expected);
            if number % reopen == 0 {
                drop(outbox);
                outbox = open(folder.path()).0;
                prop_assert_eq!(&Model::of(&outbox), &model);
            }
        }
        prop_assert!(outbox.durable());
    }

    #[test]
    fn limits_hold_and_no_recovery_is_refused(seed: u64, steps in 1..200_usize, entries in 1..12_usize) {
        let folder = quick();
        let limits = Limits { entries, bytes: entries * 30, entry_bytes: 40, dead_letters: 3 };
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut outbox, _) = open_with(folder.path(), limits);
        for number in 0..steps {
            let before = Model::of(&outbox);
            let step = Step::random(&mut random, &before, &number.to_string());
            if let Step::Append(appended) = step {
                for (key, id, kind) in appended {
                    append(&mut outbox, &key, &id, kind)?;
                }
            } else if !matches!(step, Step::Note(..)) {
                step.take(&mut outbox);
            }
            bounded(&outbox, limits)?;
        }
        let model = Model::of(&outbox);
        drop(outbox);
        prop_assert_eq!(Model::of(&open_with(folder.path(), limits).0), model);
    }
}

fn append(outbox: &mut Outbox, key: &str, id: &str, kind: Kind) -> Result<(), TestCaseError> {
    let before = Model::of(outbox);
    let appended = outbox.append(entry(key, id, kind));
    let after = Model::of(outbox);
    let known = before.standing.contains_key(id)
        || before.pending.values().any(|(_, other, kind, _)| other == id && *kind == Kind::Occur);
    if kind == Kind::Recover && known {
        let taken = matches!(appended, Appended::Stored(_) | Appended::Pending(_));
        prop_assert!(taken || matches!(appended, Appended::Unfit(Unfit::OtherKey { .. })), "{:?}", appended);
    }
    // Only whole episodes that nobody was told of make room, and only for what isn't a recovery.
    let gone: Vec<_> = before.pending.iter().filter(|(seq, _)| !after.pending.contains_key(seq)).collect();
    for (_, (_, id, kind, offered)) in &gone {
        prop_assert_eq!(gone.iter().filter(|(_, (_, other, ..))| other == id).count(), 2);
        prop_assert!(*kind == Kind::Recover || (*kind == Kind::Occur && *offered == Offered::Never));
    }
    prop_assert!(gone.is_empty() || kind != Kind::Recover);
    prop_assert_eq!(before.standing, after.standing);
    Ok(())
}

fn bounded(outbox: &Outbox, limits: Limits) -> Result<(), TestCaseError> {
    let recoveries = outbox.pending().filter(|pending| pending.entry.kind == Kind::Recover).count();
    let counts = outbox.counts();
    let others = counts.pending - recoveries + counts.standing;
    prop_assert!(others <= limits.entries && recoveries <= others, "{:?}", counts);
    prop_assert!(counts.bytes <= limits.bytes && counts.dead_letters <= limits.dead_letters);
    Ok(())
}

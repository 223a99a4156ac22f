//! Everything between the sources and ClusterD but tasks and network: days of faults, a ClusterD that refuses, hangs and
//! restarts, an agent that is killed at any point, a disk that is away. The state file is the real one.

mod universe;

use proptest::prelude::*;
use swansong_fault_model::{Handling, Level};

use self::universe::{Action, CODES, Mood, NPUS, Universe};

fn action() -> impl Strategy<Value = Action> {
    let fault = || (0..NPUS, 0..CODES.len());
    prop_oneof![
        5 => fault().prop_map(|(npu, code)| Action::Toggle(npu, code)),
        2 => fault().prop_map(|(npu, code)| Action::Unnoticed(npu, code)),
        2 => Just(Action::Poll),
        6 => prop_oneof![0..2_000u64, 0..20_000u64, 0..300_000u64].prop_map(Action::Pass),
        3 => prop_oneof![Just(Mood::Normal), Just(Mood::TooMany), Just(Mood::Away), Just(Mood::Mute)]
            .prop_map(Action::Behave),
        3 => Just(Action::Kill),
        1 => Just(Action::KillInFlight),
        1 => any::<bool>().prop_map(Action::Disk),
        1 => Just(Action::RestartClusterd),
        2 => fault().prop_map(|(npu, code)| Action::Withdraw(npu, code)),
        1 => (-7200..7200i64).prop_map(Action::Jump),
        1 => prop_oneof![Just(Level::SeparateNPU), Just(Level::SubHealthFault)].prop_map(Action::Classify),
    ]
}

/// As many runs as `SWANSONG_SIMULATIONS` says; a few otherwise.
fn cases() -> u32 {
    std::env::var("SWANSONG_SIMULATIONS").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn clusterd_ends_with_the_active_faults(actions in prop::collection::vec(action(), 1..60)) {
        let mut universe = Universe::new();
        for action in &actions {
            universe.apply(action);
        }
        universe.heal();
        universe.check();
    }
}

/// After an hour without ClusterD it gets every fault that is still active, and none that has ended.
#[test]
fn an_hour_without_clusterd() {
    for mood in [Mood::TooMany, Mood::Away, Mood::Mute] {
        let mut universe = Universe::new();
        universe.apply(&Action::Behave(mood));
        for minute in 0..60u32 {
            universe.apply(&Action::Toggle(minute % NPUS, (minute % 2) as usize));
            universe.apply(&Action::Pass(60_000));
            let open = universe.process().tracker.faults().count();
            assert!(open <= 2 * (NPUS as usize) * CODES.len(), "bounded: {open}");
        }
        // Less than twice a minute.
        assert!(universe.batches < 130, "{mood:?}: {} batches", universe.batches);
        assert!(universe.process().reconciler.trouble().is_some());
        universe.heal();
        universe.check();
    }
}

/// A restart of ClusterD brings back a fault whose end it had accepted and not carried out.
#[test]
fn fault_that_a_restart_of_clusterd_brings_back_is_withdrawn() {
    let mut universe = Universe::new();
    universe.apply(&Action::Toggle(0, 0));
    universe.apply(&Action::Pass(30_000));
    universe.apply(&Action::Toggle(0, 0));
    universe.apply(&Action::RestartClusterd);
    universe.heal();
    universe.check();
    assert!(universe.observed().faults.is_empty());
}

/// The state is lost while a fault is active: ClusterD keeps it under its id, and ends no ranks a second time.
#[test]
fn active_fault_is_adopted_after_the_state_is_lost() {
    let mut universe = Universe::new();
    universe.apply(&Action::Toggle(0, 0));
    universe.apply(&Action::Toggle(1, 0));
    universe.apply(&Action::Pass(30_000));
    let before = universe.observed();
    universe.process.take();
    std::fs::write(universe.path.join("state.json"), "damaged").expect("written");
    // One of them ends meanwhile.
    universe.toggle(1, 0);
    universe.kill();
    universe.heal();
    universe.check();
    let after = universe.observed();
    assert_eq!(after.faults.len(), 1);
    assert!(
        after.faults.iter().all(|(id, handling)| {
            before.faults.contains_key(id) && *handling == Some(Handling::EndRanks)
        })
    );
    assert_eq!(universe.clusterd.ledger().kills.len(), 2, "one for each device");
}

/// The outcome of its jobs withdraws the fault, and neither that nor a restart names the lost device again.
#[test]
fn lost_device_is_named_once() {
    let mut universe = Universe::new();
    universe.apply(&Action::Toggle(0, 0));
    universe.apply(&Action::Toggle(1, 1));
    universe.apply(&Action::Pass(30_000));
    assert_eq!(universe.lost.len(), 1, "only one of the codes is the loss of a device");
    universe.apply(&Action::RestartClusterd);
    universe.apply(&Action::Kill);
    universe.apply(&Action::Withdraw(1, 1));
    universe.heal();
    universe.check();
    assert_eq!((universe.lost.len(), universe.observed().faults.len()), (1, 1));
}

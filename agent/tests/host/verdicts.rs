//! Verdicts on containers, from processes as they may be seen.

use std::time::Duration;

use proptest::prelude::*;
use swansong_agent::preload::{Environment, FileFact, Library, Observed, Outcome, Role, Why, judge};

const GRACE: Duration = Duration::from_secs(30);
const TASKD: &str = "/t/libtaskd.so";
const MSPTI: &str = "/c/libmspti.so";

fn library(path: &str, environment: Environment, mapped: bool, file: Option<FileFact>) -> Library {
    let named = (environment == Environment::Preload).then(|| path.to_owned());
    Library { path: path.to_owned(), environment, named, mapped, file }
}

fn live(path: &str) -> Library {
    library(path, Environment::Preload, true, None)
}

fn gone(path: &str) -> Library {
    library(path, Environment::Without, false, None)
}

fn overwritten(path: &str) -> Library {
    Library { named: None, ..library(path, Environment::Preload, false, None) }
}

fn broken(path: &str, file: FileFact) -> Library {
    library(path, Environment::Preload, false, Some(file))
}

fn process(pid: i32, name: &str, role: Role, libraries: &[Library]) -> Observed {
    Observed {
        pid,
        started: u64::from(pid.unsigned_abs()),
        age: Duration::from_mins(1),
        name: name.to_owned(),
        role,
        libraries: Some(libraries.to_vec()),
    }
}

fn python(pid: i32, libraries: &[Library]) -> Observed {
    process(pid, "python3.10", Role::Python, libraries)
}

fn bash(libraries: &[Library]) -> Observed {
    process(1, "bash", Role::Helper, libraries)
}

fn young(process: Observed) -> Observed {
    Observed { age: Duration::from_secs(29), ..process }
}

fn unseen(process: Observed) -> Observed {
    Observed { libraries: None, ..process }
}

type Row = (&'static str, Vec<Observed>, Outcome, Why);

fn check<const N: usize>(rows: [Row; N]) {
    for (name, processes, outcome, reason) in rows {
        let verdict = judge(&processes, GRACE);
        assert_eq!((verdict.outcome, verdict.reason), (outcome, reason), "{name}: {verdict:?}");
    }
}

#[test]
fn what_the_processes_show() {
    let both = [live(MSPTI), live(TASKD)];
    let none = [gone(MSPTI), gone(TASKD)];
    let other = [overwritten(MSPTI), overwritten(TASKD)];
    let missing = |fact| [broken(MSPTI, fact), broken(TASKD, fact)];
    let dlopened =
        [library(MSPTI, Environment::Without, false, None), library(TASKD, Environment::Without, true, None)];
    let trainer = |libraries: &[Library]| process(7, "trainer", Role::Other, libraries);
    check([
        (
            "all as it should be",
            vec![bash(&both), python(2, &both), python(3, &both)],
            Outcome::Live,
            Why::PreloadLive,
        ),
        ("a program that isn't Python", vec![bash(&both), trainer(&both)], Outcome::Live, Why::PreloadLive),
        ("never there", vec![bash(&none), python(2, &none)], Outcome::NotLive, Why::NotInEnvironment),
        ("python is the first", vec![python(1, &none)], Outcome::NotLive, Why::NotInEnvironment),
        (
            "unset by the script",
            vec![bash(&both), python(2, &none)],
            Outcome::NotLive,
            Why::ClearedByEntrypoint,
        ),
        ("exported anew", vec![bash(&both), python(2, &other)], Outcome::NotLive, Why::Overwritten),
        (
            "one of two exported",
            vec![bash(&both), python(2, &[live(MSPTI), overwritten(TASKD)])],
            Outcome::PartlyLive,
            Why::Overwritten,
        ),
        (
            "the launcher has it, a worker not",
            vec![python(1, &both), python(2, &none)],
            Outcome::PartlyLive,
            Why::ClearedByEntrypoint,
        ),
        (
            "no file",
            vec![bash(&missing(FileFact::Missing)), python(2, &missing(FileFact::Missing))],
            Outcome::NotLive,
            Why::FileMissing,
        ),
        (
            "one file",
            vec![python(2, &[live(MSPTI), broken(TASKD, FileFact::Missing)])],
            Outcome::PartlyLive,
            Why::FileMissing,
        ),
        (
            "the other processor's",
            vec![python(2, &missing(FileFact::WrongMachine))],
            Outcome::NotLive,
            Why::WrongArchitecture,
        ),
        ("no library", vec![python(2, &missing(FileFact::NotALibrary))], Outcome::NotLive, Why::NotALibrary),
        (
            "the shell has it, python not",
            vec![bash(&both), python(2, &missing(FileFact::Sound))],
            Outcome::NotLive,
            Why::MappedInShellOnly,
        ),
        (
            "nobody has it",
            vec![bash(&missing(FileFact::Sound)), python(2, &missing(FileFact::Sound))],
            Outcome::NotLive,
            Why::NotMapped,
        ),
        ("opened by TaskD itself", vec![python(2, &dlopened)], Outcome::NotLive, Why::NotInEnvironment),
    ]);
}

#[test]
fn what_they_hide_and_what_is_too_early() {
    let both = [live(MSPTI), live(TASKD)];
    let none = [gone(MSPTI), gone(TASKD)];
    let missing = |fact| [broken(MSPTI, fact), broken(TASKD, fact)];
    let hidden =
        [library(MSPTI, Environment::Hidden, true, None), library(TASKD, Environment::Hidden, true, None)];
    check([
        ("setproctitle", vec![python(2, &hidden)], Outcome::Unknown, Why::EnvironmentHidden),
        (
            "setproctitle in the workers",
            vec![python(1, &both), python(2, &hidden)],
            Outcome::Live,
            Why::PreloadLive,
        ),
        ("nothing runs", vec![], Outcome::Unknown, Why::NoProcess),
        ("just started", vec![young(python(2, &none))], Outcome::Unknown, Why::TooYoung),
        (
            "a short-lived child",
            vec![bash(&both), python(2, &both), young(python(3, &none))],
            Outcome::Live,
            Why::PreloadLive,
        ),
        (
            "a short-lived child of the script",
            vec![bash(&both), young(python(3, &none))],
            Outcome::Unknown,
            Why::TooYoung,
        ),
        ("still preparing", vec![bash(&both)], Outcome::Unknown, Why::NoTrainingProcess),
        (
            "preparing, and already lost",
            vec![bash(&missing(FileFact::Missing))],
            Outcome::NotLive,
            Why::FileMissing,
        ),
        (
            "preparing in an image of the other processor",
            vec![bash(&missing(FileFact::WrongMachine)), young(python(2, &both))],
            Outcome::NotLive,
            Why::WrongArchitecture,
        ),
        (
            "not allowed",
            vec![unseen(bash(&both)), unseen(python(2, &both))],
            Outcome::Unknown,
            Why::NoPermission,
        ),
        ("not allowed to see the shell", vec![unseen(bash(&both))], Outcome::Unknown, Why::NoPermission),
        (
            "not allowed to see one of two",
            vec![python(1, &both), unseen(python(2, &both))],
            Outcome::Unknown,
            Why::NoPermission,
        ),
        (
            "not allowed to see one, the other is bad",
            vec![python(1, &none), unseen(python(2, &both))],
            Outcome::NotLive,
            Why::NotInEnvironment,
        ),
        (
            "not allowed to see the image",
            vec![python(1, &missing(FileFact::NotSeen))],
            Outcome::Unknown,
            Why::NoPermission,
        ),
    ]);
}

#[test]
fn a_verdict_names_an_example_and_what_to_do() {
    let verdict = judge(&[python(42, &[live(MSPTI), broken(TASKD, FileFact::Missing)])], GRACE);
    assert_eq!(
        verdict.message,
        "LD_PRELOAD names a file that isn't in the image: /t/libtaskd.so in process 42 (python3.10); install the TaskD wheel and CANN in the image, or give the right path by the annotations swansong.dev/libtaskd and swansong.dev/libmspti"
    );
    let json = serde_json::to_value(&verdict).expect("serialised");
    assert_eq!(json["outcome"], "PartlyLive");
    assert_eq!(json["shortfalls"][0]["why"], "FileMissing");
}

#[test]
fn shortfalls_are_bounded() {
    let many: Vec<Observed> = (1..200).map(|pid| python(pid, &[gone(MSPTI), gone(TASKD)])).collect();
    let verdict = judge(&many, GRACE);
    assert_eq!((verdict.judged, verdict.shortfalls.len()), (199, 16));
}

fn any_library() -> impl Strategy<Value = Library> {
    let environment =
        prop_oneof![Just(Environment::Preload), Just(Environment::Without), Just(Environment::Hidden)];
    let fact = prop_oneof![
        Just(FileFact::Sound),
        Just(FileFact::Missing),
        Just(FileFact::NotALibrary),
        Just(FileFact::WrongMachine),
        Just(FileFact::NotSeen)
    ];
    let path = prop_oneof![Just(MSPTI), Just(TASKD)];
    (path, environment, any::<bool>(), proptest::option::of(fact))
        .prop_map(|(path, environment, mapped, fact)| library(path, environment, mapped, fact))
}

fn any_process() -> impl Strategy<Value = Observed> {
    let role = prop_oneof![Just(Role::Python), Just(Role::Helper), Just(Role::Other)];
    let libraries = proptest::option::of(prop::collection::vec(any_library(), 0..3));
    (1..50_i32, role, libraries, 0..60_u64).prop_map(|(pid, role, libraries, age)| Observed {
        age: Duration::from_secs(age),
        libraries,
        ..process(pid, "p", role, &[])
    })
}

proptest! {
    /// Live is said only if every judged process was seen, and only with a reason that fits.
    #[test]
    fn live_is_never_a_guess(processes in prop::collection::vec(any_process(), 0..8)) {
        let verdict = judge(&processes, GRACE);
        prop_assert!(verdict.outcome.fits(verdict.reason), "{:?}", verdict);
        if verdict.outcome == Outcome::Live {
            let settled = processes.iter().filter(|process| process.age >= GRACE);
            let pythons: Vec<_> = settled.clone().filter(|process| process.role == Role::Python).collect();
            let workers = if pythons.is_empty() {
                settled.filter(|process| process.role == Role::Other).collect()
            } else {
                pythons
            };
            prop_assert!(!workers.is_empty());
            for worker in workers {
                for library in worker.libraries.as_ref().expect("seen") {
                    prop_assert!(library.mapped);
                }
            }
        }
    }
}

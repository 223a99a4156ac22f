//! Verdicts on containers by their processes.

use std::time::Duration;

use proptest::prelude::*;
use swansong_agent::preload::{
    Environment, FileState, Library, ObservedProcess, Outcome, PreloadReason, Role, judge,
};

const GRACE: Duration = Duration::from_secs(30);
const TASKD: &str = "/t/libtaskd.so";
const MSPTI: &str = "/c/libmspti.so";

fn library(path: &str, environment: Environment, mapped: bool, file: Option<FileState>) -> Library {
    let entry = (environment == Environment::WithPreload).then(|| path.to_owned());
    Library { path: path.to_owned(), environment, entry, mapped, file }
}

fn live(path: &str) -> Library {
    library(path, Environment::WithPreload, true, None)
}

fn gone(path: &str) -> Library {
    library(path, Environment::WithoutPreload, false, None)
}

fn overwritten(path: &str) -> Library {
    Library { entry: None, ..library(path, Environment::WithPreload, false, None) }
}

fn broken(path: &str, file: FileState) -> Library {
    library(path, Environment::WithPreload, false, Some(file))
}

fn process(pid: i32, name: &str, role: Role, libraries: &[Library]) -> ObservedProcess {
    ObservedProcess {
        python: None,
        training: None,
        pid,
        started: u64::from(pid.unsigned_abs()),
        age: Duration::from_mins(1),
        name: name.to_owned(),
        role,
        libraries: Some(libraries.to_vec()),
    }
}

fn python(pid: i32, libraries: &[Library]) -> ObservedProcess {
    process(pid, "python3.10", Role::Python, libraries)
}

fn bash(libraries: &[Library]) -> ObservedProcess {
    process(1, "bash", Role::Helper, libraries)
}

fn young(process: ObservedProcess) -> ObservedProcess {
    ObservedProcess { age: Duration::from_secs(29), ..process }
}

fn unreadable(process: ObservedProcess) -> ObservedProcess {
    ObservedProcess { libraries: None, ..process }
}

type Row = (&'static str, Vec<ObservedProcess>, Outcome, PreloadReason);

fn check<const N: usize>(rows: [Row; N]) {
    for (name, processes, outcome, reason) in rows {
        let verdict = judge(&processes, GRACE);
        assert_eq!((verdict.outcome, verdict.reason), (outcome, reason), "{name}: {verdict:?}");
    }
}

#[test]
fn judges_training_processes() {
    let both = [live(MSPTI), live(TASKD)];
    let none = [gone(MSPTI), gone(TASKD)];
    let other = [overwritten(MSPTI), overwritten(TASKD)];
    let missing = |fact| [broken(MSPTI, fact), broken(TASKD, fact)];
    let dlopened = [
        library(MSPTI, Environment::WithoutPreload, false, None),
        library(TASKD, Environment::WithoutPreload, true, None),
    ];
    let trainer = |libraries: &[Library]| process(7, "trainer", Role::Other, libraries);
    check([
        (
            "all live",
            vec![bash(&both), python(2, &both), python(3, &both)],
            Outcome::Live,
            PreloadReason::PreloadLive,
        ),
        (
            "a program that isn't Python",
            vec![bash(&both), trainer(&both)],
            Outcome::Live,
            PreloadReason::PreloadLive,
        ),
        (
            "never there",
            vec![bash(&none), python(2, &none)],
            Outcome::NotLive,
            PreloadReason::NotInEnvironment,
        ),
        ("python is the first", vec![python(1, &none)], Outcome::NotLive, PreloadReason::NotInEnvironment),
        (
            "unset by the script",
            vec![bash(&both), python(2, &none)],
            Outcome::NotLive,
            PreloadReason::ClearedByEntrypoint,
        ),
        (
            "exported again",
            vec![bash(&both), python(2, &other)],
            Outcome::NotLive,
            PreloadReason::Overwritten,
        ),
        (
            "one of two exported",
            vec![bash(&both), python(2, &[live(MSPTI), overwritten(TASKD)])],
            Outcome::PartlyLive,
            PreloadReason::Overwritten,
        ),
        (
            "the launcher has it, a worker not",
            vec![python(1, &both), python(2, &none)],
            Outcome::PartlyLive,
            PreloadReason::ClearedByEntrypoint,
        ),
        (
            "no file",
            vec![bash(&missing(FileState::Missing)), python(2, &missing(FileState::Missing))],
            Outcome::NotLive,
            PreloadReason::FileMissing,
        ),
        (
            "one file",
            vec![python(2, &[live(MSPTI), broken(TASKD, FileState::Missing)])],
            Outcome::PartlyLive,
            PreloadReason::FileMissing,
        ),
        (
            "the other processor's",
            vec![python(2, &missing(FileState::WrongMachine))],
            Outcome::NotLive,
            PreloadReason::WrongArchitecture,
        ),
        (
            "no library",
            vec![python(2, &missing(FileState::NotALibrary))],
            Outcome::NotLive,
            PreloadReason::NotALibrary,
        ),
        (
            "the shell has it, python not",
            vec![bash(&both), python(2, &missing(FileState::Valid))],
            Outcome::NotLive,
            PreloadReason::MappedInShellOnly,
        ),
        (
            "no process has it",
            vec![bash(&missing(FileState::Valid)), python(2, &missing(FileState::Valid))],
            Outcome::NotLive,
            PreloadReason::NotMapped,
        ),
        (
            "opened by TaskD itself",
            vec![python(2, &dlopened)],
            Outcome::NotLive,
            PreloadReason::NotInEnvironment,
        ),
    ]);
}

#[test]
fn judges_hidden_and_young_processes() {
    let both = [live(MSPTI), live(TASKD)];
    let none = [gone(MSPTI), gone(TASKD)];
    let missing = |fact| [broken(MSPTI, fact), broken(TASKD, fact)];
    let hidden =
        [library(MSPTI, Environment::Hidden, true, None), library(TASKD, Environment::Hidden, true, None)];
    check([
        ("setproctitle", vec![python(2, &hidden)], Outcome::Unknown, PreloadReason::EnvironmentHidden),
        (
            "setproctitle in the workers",
            vec![python(1, &both), python(2, &hidden)],
            Outcome::Live,
            PreloadReason::PreloadLive,
        ),
        ("nothing runs", vec![], Outcome::Unknown, PreloadReason::NoProcess),
        ("just started", vec![young(python(2, &none))], Outcome::Unknown, PreloadReason::TooYoung),
        (
            "a short-lived child",
            vec![bash(&both), python(2, &both), young(python(3, &none))],
            Outcome::Live,
            PreloadReason::PreloadLive,
        ),
        (
            "a short-lived child of the script",
            vec![bash(&both), young(python(3, &none))],
            Outcome::Unknown,
            PreloadReason::TooYoung,
        ),
        ("still preparing", vec![bash(&both)], Outcome::Unknown, PreloadReason::NoTrainingProcess),
        (
            "preparing, and already lost",
            vec![bash(&missing(FileState::Missing))],
            Outcome::NotLive,
            PreloadReason::FileMissing,
        ),
        (
            "preparing in an image of the other processor",
            vec![bash(&missing(FileState::WrongMachine)), young(python(2, &both))],
            Outcome::NotLive,
            PreloadReason::WrongArchitecture,
        ),
        (
            "not allowed",
            vec![unreadable(bash(&both)), unreadable(python(2, &both))],
            Outcome::Unknown,
            PreloadReason::NoPermission,
        ),
        (
            "not allowed to see the shell",
            vec![unreadable(bash(&both))],
            Outcome::Unknown,
            PreloadReason::NoPermission,
        ),
        (
            "not allowed to see one of two",
            vec![python(1, &both), unreadable(python(2, &both))],
            Outcome::Unknown,
            PreloadReason::NoPermission,
        ),
        (
            "not allowed to see one, the other is bad",
            vec![python(1, &none), unreadable(python(2, &both))],
            Outcome::NotLive,
            PreloadReason::NotInEnvironment,
        ),
        (
            "not allowed to see the image",
            vec![python(1, &missing(FileState::NotReadable))],
            Outcome::Unknown,
            PreloadReason::NoPermission,
        ),
    ]);
}

#[test]
fn a_verdict_names_an_example_and_a_remedy() {
    let verdict = judge(&[python(42, &[live(MSPTI), broken(TASKD, FileState::Missing)])], GRACE);
    assert_eq!(
        verdict.message,
        "LD_PRELOAD lists a file that isn't in the image: /t/libtaskd.so in process 42 (python3.10). Install the TaskD wheel and CANN in the image, or set the path by the annotations swansong.dev/libtaskd and swansong.dev/libmspti"
    );
    let json = serde_json::to_value(&verdict).expect("serialised");
    assert_eq!(json["outcome"], "PartlyLive");
    assert_eq!(json["missing"][0]["reason"], "FileMissing");
}

#[test]
fn the_list_of_missing_libraries_is_bounded() {
    let many: Vec<ObservedProcess> = (1..200).map(|pid| python(pid, &[gone(MSPTI), gone(TASKD)])).collect();
    let verdict = judge(&many, GRACE);
    assert_eq!((verdict.judged, verdict.missing.len()), (199, 16));
}

fn any_library() -> impl Strategy<Value = Library> {
    let environment = prop_oneof![
        Just(Environment::WithPreload),
        Just(Environment::WithoutPreload),
        Just(Environment::Hidden)
    ];
    let fact = prop_oneof![
        Just(FileState::Valid),
        Just(FileState::Missing),
        Just(FileState::NotALibrary),
        Just(FileState::WrongMachine),
        Just(FileState::NotReadable)
    ];
    let path = prop_oneof![Just(MSPTI), Just(TASKD)];
    (path, environment, any::<bool>(), proptest::option::of(fact))
        .prop_map(|(path, environment, mapped, fact)| library(path, environment, mapped, fact))
}

fn any_process() -> impl Strategy<Value = ObservedProcess> {
    let role = prop_oneof![Just(Role::Python), Just(Role::Helper), Just(Role::Other)];
    let libraries = proptest::option::of(prop::collection::vec(any_library(), 0..3));
    (1..50_i32, role, libraries, 0..60_u64).prop_map(|(pid, role, libraries, age)| ObservedProcess {
        age: Duration::from_secs(age),
        libraries,
        ..process(pid, "p", role, &[])
    })
}

proptest! {
    /// Live means that every judged process was inspected, and each outcome has a matching reason.
    #[test]
    fn live_is_never_guessed(processes in prop::collection::vec(any_process(), 0..8)) {
        let verdict = judge(&processes, GRACE);
        prop_assert!(verdict.reason.is_reason_of(verdict.outcome), "{:?}", verdict);
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

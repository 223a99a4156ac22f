//! Courses of faults.

use k8s_openapi::api::core::v1::Event;
use serde_json::json;

use super::{AgentView, Course, Evidence, LogLine, LogSource, MEANINGS, Outcome, Stage, Text};

const FAULT: &str = "npu-a.npu3.40F84E00.1796000000000";

fn event(reason: &str, second: u32, message: &str) -> Event {
    let event = json!({
        "metadata": {"name": reason, "annotations": {"swansong.dev/fault-id": FAULT}},
        "involvedObject": {"kind": "AscendJob", "name": "bert"},
        "reason": reason, "message": message, "source": {"component": "swansong-agent", "host": "npu-a"},
        "lastTimestamp": format!("2026-11-30T10:00:{second:02}Z"),
    });
    serde_json::from_value(event).expect("an Event")
}

fn lines(log: &str) -> Vec<LogLine> {
    let source = LogSource { pod: "bert-master-0".to_owned(), container: "ascend".to_owned() };
    LogLine::of(&source, log)
}

fn course(events: Vec<Event>, log: &str) -> Course {
    let job = "ml/bert".to_owned();
    Course::new(Evidence { job, events, lines: lines(log), ..Evidence::default() })
}

const SAVED: &str = "\
2026-11-30T10:00:26.100000000Z [INFO] status error, rank:3, data_aval: 1, diff_time : 9488
2026-11-30T10:00:26.200000000Z [INFO] wait Mindx notify stop train...
2026-11-30T10:00:26.500000000Z [INFO] mindx calling notify to dump!
2026-11-30T10:00:26.600000000Z [INFO] selected error ranks: [3], step: 120
an unrelated line
";

#[test]
fn course_of_a_saved_checkpoint_is_by_time_and_names_no_cause() {
    let course = course(
        vec![
            event("DumpSucceeded", 37, "the job has saved its dying checkpoint"),
            event("DeviceFault", 0, "NPU 3 is lost"),
            event("FaultRelayed", 5, "ClusterD ends the ranks. The checkpoint may be lost: no hook"),
        ],
        SAVED,
    );
    assert_eq!((course.outcome, course.fault.as_deref()), (Outcome::Saved, Some(FAULT)));
    let stages: Vec<Stage> = course.steps.iter().map(|step| step.stage).collect();
    let expected =
        [Stage::Fault, Stage::Sent, Stage::Ranks, Stage::Order, Stage::Order, Stage::Ranks, Stage::Outcome];
    assert_eq!(stages, expected);
    assert_eq!(course.lost_ranks.as_deref(), Some("3"));
    assert_eq!((course.causes, course.unknown), (vec![], vec![]));
}

#[test]
fn cause_of_each_loss_is_named() {
    let fault = || event("DeviceFault", 0, "NPU 3 is lost");
    let sent = || event("FaultRelayed", 5, "ClusterD ends the ranks");
    let failed = || event("DumpFailed", 59, "the job couldn't save");
    for (events, log, outcome, causes) in [
        (
            vec![fault(), event("FaultBlocked", 6, "ResetConfigMissing: x")],
            "",
            Outcome::Unknown,
            vec!["ResetConfigMissing: x"],
        ),
        // What held it first doesn't matter once it was sent.
        (
            vec![fault(), event("FaultBlocked", 2, "JobNotRunning: x"), sent(), failed()],
            "",
            Outcome::NotSaved,
            vec![],
        ),
        (vec![fault(), event("FaultRefused", 6, "409")], "", Outcome::Unknown, vec!["409"]),
        (
            vec![
                fault(),
                event("FaultRelayed", 5, "it ends ranks. The checkpoint may be lost: no launcher hook"),
                failed(),
            ],
            "",
            Outcome::NotSaved,
            vec!["no launcher hook"],
        ),
        (
            vec![fault(), sent(), failed()],
            "x wait mindx wake up action ret:110\n",
            Outcome::NotSaved,
            vec!["no order to save came in time"],
        ),
        (
            vec![fault(), sent(), event("DumpOutcomeUnknown", 59, "x")],
            "ProcessInner failed after reply error retry. opCode: ACTION_OP_SAVECKPT\n",
            Outcome::Unknown,
            vec!["the save took longer than MindIO allows"],
        ),
        (vec![], "", Outcome::Unknown, vec![]),
    ] {
        let course = course(events, log);
        let found: Vec<&str> = course.causes.iter().map(|cause| cause.what.as_str()).collect();
        assert_eq!((course.outcome, found), (outcome, causes), "{course:?}");
        assert!(course.causes.iter().all(|cause| cause.remedy.ends_with('.')), "{course:?}");
    }
}

#[test]
fn status_of_the_pod_group_counts_only_after_an_order() {
    let with = |status: &str, log: &str| {
        let recover_status = Some(status.to_owned());
        let evidence = Evidence { recover_status, lines: lines(log), ..Evidence::default() };
        Course::new(evidence).outcome
    };
    assert_eq!(with("dump-success", SAVED), Outcome::Saved);
    assert_eq!(with("dump-failed", SAVED), Outcome::NotSaved);
    assert_eq!(with("dump-success", ""), Outcome::Unknown, "it may be that of an earlier dump");
}

#[test]
fn agent_that_still_waits_makes_the_outcome_pending() {
    let agent = AgentView { node: "npu-a".to_owned(), phase: Some("confirmed".to_owned()), is_awaited: true };
    let course = Course::new(Evidence { agent: Some(agent), ..Evidence::default() });
    assert_eq!(course.outcome, Outcome::Pending);
    assert!(course.unknown.iter().any(|why| why.contains("npu-a still waits")), "{course:?}");
}

#[test]
fn every_line_is_recognised_and_says_what_to_do() {
    for meaning in &MEANINGS {
        let line = format!("[2026] {} and more", meaning.texts.join(" 7 "));
        let found = lines(&line);
        assert_eq!(found.len(), 1, "{line}");
        assert_eq!(found[0].meaning, meaning, "{line}");
        assert!(meaning.remedy.is_empty() || meaning.remedy.ends_with('.'), "{meaning:?}");
    }
    assert_eq!(lines("Trying to connect to 10.0.0.1 errno:110\nall is well\n"), vec![]);
}

#[test]
fn text_is_short_and_without_control_characters() {
    let log = "2026-11-30T10:00:26.6Z wait mindx wake up action ret:110 \u{1b}[2J\n";
    let course = course(vec![event("DeviceFault", 0, "NPU 3 is lost"), event("DumpFailed", 59, "x")], log);
    let expected = "\
job ml/bert: no checkpoint was saved
fault npu-a.npu3.40F84E00.1796000000000
2026-11-30; times are UTC and relative to the first step
10:00:00 +0.0 s        fault    DeviceFault: NPU 3 is lost
                                agent of npu-a
10:00:26 +26.6 s       order    no order to save came in time (wait mindx wake up action ret:110 \\u{1b}[2J)
                                log of bert-master-0/ascend
10:00:59 +59.0 s       outcome  DumpFailed: x
                                agent of npu-a

possible causes
  × no order to save came in time (log of bert-master-0/ascend)
      See reset-config, recovery-enabled and job-summary in swansong doctor, and ClusterD's log.
";
    assert_eq!(Text(&course).to_string(), expected);
}

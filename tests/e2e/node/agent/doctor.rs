//! `swansong doctor` on a node that runs Pods: what the real agent sees of real processes, and real logs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use swansong_demo::python_image;
use swansong_demo::training::{Job, Training};
use swansong_testcluster::eventually;

use super::dump::{Stage, TWO_PODS, fault_to_outcome};
use super::faults::HBM;
use super::rig::{TIMEOUT, alone};

/// Its Manager is killed.
const WITHOUT_MANAGER: Job = Job { name: "no-manager", first_npu: 4, ..TWO_PODS };
const HEALTHY: Job = Job { name: "watched", ..TWO_PODS };

/// The links that only an agent sees.
const SEEN_BY_AGENTS: [&str; 7] = [
    "agent-answers",
    "launcher-hook-active",
    "manager-listening",
    "manager-environment",
    "controller-listening",
    "processors-connected",
    "controller-address",
];

/// Image and training program are fakes, which lack what the real ones have.
const OF_THE_REAL_IMAGE: [&str; 2] = ["image", "trainer"];

fn doctor(stage: &Stage, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swansong"));
    command.arg("doctor").args(arguments).env("KUBECONFIG", stage.cluster.kubeconfig());
    command.output().unwrap()
}

/// The names of the job's checks with these statuses, and all checks.
fn checks(stage: &Stage, job: &Training, statuses: &[&str]) -> (BTreeSet<String>, String) {
    let output = doctor(stage, &[job.job.name, "-n", &job.namespace, "-o", "json"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let all = report["checks"].as_array().unwrap();
    let of_job = all.iter().filter(|check| check["area"] == "pods" || check["check"] == "agent-answers");
    let of_job = of_job.filter(|check| !OF_THE_REAL_IMAGE.contains(&check["check"].as_str().unwrap()));
    let named = of_job.filter(|check| statuses.contains(&check["status"].as_str().unwrap()));
    (named.map(|check| check["check"].as_str().unwrap().to_owned()).collect(), format!("{all:#?}"))
}

/// Waits until exactly these checks of the installation fail.
async fn expect_installation(stage: &Stage, expected: &[&str]) {
    eventually(&format!("the installation: {expected:?}"), TIMEOUT, || async {
        let output = doctor(stage, &["-o", "json"]);
        let report: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let all = report["checks"].as_array().unwrap();
        let bad = all.iter().filter(|check| check["area"] == "installation" && check["status"] == "fail");
        let bad: Vec<&str> = bad.map(|check| check["check"].as_str().unwrap()).collect();
        if bad == expected { Ok(()) } else { Err(format!("{bad:?} of {all:#?}")) }
    })
    .await
    .unwrap();
}

async fn scale_webhook(stage: &Stage, replicas: u32) {
    let replicas = format!("--replicas={replicas}");
    let scale = ["--namespace=swansong-system", "scale", "deployment/swansong-webhook", &replicas];
    stage.cluster.kubectl(&scale).await.unwrap();
}

/// Waits until `swansong status` shows the Pods of the job, and that the only obstacle is this machine's lack of a driver.
async fn expect_status(stage: &Stage, job: &Training) {
    let path = stage.cluster.kubeconfig();
    eventually("status shows the job", TIMEOUT, || async {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swansong"));
        command.args(["status", "-o", "json", "-n", &job.namespace]).env("KUBECONFIG", path);
        let output = command.output().unwrap();
        let table: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let row = &table["jobs"][0];
        let why: Vec<&Value> = row["why"].as_array().into_iter().flatten().map(|why| &why["check"]).collect();
        let is_right = row["name"] == job.job.name && row["runningPods"] == 2 && why == ["dump-ready"];
        if is_right { Ok(()) } else { Err(format!("{table:#}")) }
    })
    .await
    .unwrap();
}

/// Waits until exactly these checks of the job fail: the agent inspects processes from time to time.
async fn expect_failures(stage: &Stage, job: &Training, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&name| name.to_owned()).collect();
    eventually(&format!("{}: {expected:?}", job.job.name), TIMEOUT, || async {
        let (failed, all) = checks(stage, job, &["fail"]);
        if failed == expected { Ok(()) } else { Err(format!("{failed:?} fail of {all}")) }
    })
    .await
    .unwrap();
}

/// The processes of the job's TaskD Manager.
fn manager_of(job: &Training) -> Vec<Pid> {
    let processes = procfs::process::all_processes().unwrap().flatten();
    let is_manager = |process: &procfs::process::Process| {
        let environment = process.environ().unwrap_or_default();
        let is_of_job =
            environment.get(OsStr::new("MINDX_TASK_ID")).is_some_and(|id| id.to_str() == Some(&job.uid));
        let arguments = process.cmdline().unwrap_or_default();
        is_of_job && arguments.iter().any(|argument| argument.ends_with("manager.py"))
    };
    processes.filter(is_manager).map(|process| Pid::from_raw(process.pid)).collect()
}

#[tokio::test]
async fn links_seen_by_the_agent_and_the_course_of_a_real_fault() {
    let Some((_turn, cluster)) = alone().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::start(cluster, &python_image::build(folder.path()).unwrap()).await;
    let mut jobs = Vec::new();
    for job in [HEALTHY, WITHOUT_MANAGER] {
        jobs.push(Training::start(cluster, &stage.leader, folder.path(), job).await.unwrap());
    }
    let [watched, without_manager] = jobs.as_slice() else { unreachable!("two jobs") };

    expect_failures(&stage, watched, &[]).await;
    eventually("every link is seen", TIMEOUT, || async {
        let (passed, all) = checks(&stage, watched, &["pass"]);
        let missing: Vec<&str> = SEEN_BY_AGENTS.into_iter().filter(|link| !passed.contains(*link)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} of {all}")) }
    })
    .await
    .unwrap();

    expect_status(&stage, watched).await;

    expect_installation(&stage, &[]).await;
    scale_webhook(&stage, 0).await;
    expect_installation(&stage, &["webhook-replicas"]).await;
    scale_webhook(&stage, 2).await;
    expect_installation(&stage, &[]).await;

    let managers = manager_of(without_manager);
    assert!(!managers.is_empty(), "no Manager");
    for manager in managers {
        kill(manager, Signal::SIGKILL).unwrap();
    }
    expect_failures(&stage, without_manager, &["manager-listening"]).await;
    expect_failures(&stage, watched, &[]).await;

    stage.script.event(watched.job.lost_npu().try_into().unwrap(), HBM, 3, 1, "a fault");
    fault_to_outcome(cluster, &stage.clusterd, &stage.leader, watched).await;
    stage.expect(watched, true, &["DumpSucceeded"]).await;
    let output = doctor(&stage, &["--last-fault", watched.job.name, "-n", &watched.namespace, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let course: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stages: BTreeSet<&str> =
        course["steps"].as_array().unwrap().iter().map(|step| step["stage"].as_str().unwrap()).collect();
    for stage in ["fault", "sent", "ranks", "order", "outcome"] {
        assert!(stages.contains(stage), "{stage}: {course:#}");
    }
    assert_eq!((&course["outcome"], &course["lostRanks"]), (&"saved".into(), &"0".into()), "{course:#}");

    let bundle = folder.path().join("bundle.tar.gz");
    let path = bundle.to_str().unwrap();
    let output = doctor(&stage, &[watched.job.name, "-n", &watched.namespace, "--bundle", path]);
    assert!(output.status.success(), "{output:?}");
    let mut timeline = String::new();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(&bundle).unwrap()));
    let mut files = archive.entries().unwrap().map(Result::unwrap);
    files
        .find(|file| file.path().unwrap().ends_with("timeline.txt"))
        .unwrap()
        .read_to_string(&mut timeline)
        .unwrap();
    assert!(
        timeline.contains("mindx calling notify to dump!") && timeline.contains("DumpSucceeded"),
        "{timeline}"
    );
    stage.stop(&jobs).await;
}

//! Tables of what was observed.

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{Observed, Ready, Table, Text, table};
use crate::snapshot::{JobKind, JobObject, Seen};

/// The time of all tests, 2026-11-30T10:00:00Z.
const NOW: u64 = 1_796_032_800_000;

fn of<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("an object")
}

fn job(name: &str) -> JobObject {
    let replica = json!({"replicas": 1, "template": {"spec": {"containers": [
        {"name": "ascend", "ports": [{"containerPort": 8000}, {"containerPort": 9601}]},
    ]}}});
    let object = json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": name, "namespace": "ml", "uid": name, "annotations": {"recover-strategy": "dump"}},
        "spec": {"replicaSpecs": {"Master": replica, "Worker": replica}},
    });
    JobObject { kind: JobKind::AscendJob, object: of(&object) }
}

fn pod(job: &str, rank: usize, node: &str) -> Value {
    let env = json!([
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "TTP_PORT", "value": "8000"},
        {"name": "TTP_NORMAL_ACTION_TIME_LIMIT", "value": "1800"},
        {"name": "HIGH_AVAILABILITY", "value": "dump"},
        {"name": "PROCESS_RECOVER", "value": "on"},
        {"name": "MASTER_ADDR", "value": "10.0.0.1"},
    ]);
    let configuration = json!({"devices": [{"device_id": "0"}]}).to_string();
    json!({
        "metadata": {
            "name": format!("{job}-{rank}"), "namespace": "ml", "uid": format!("{job}-{rank}"),
            "ownerReferences": [{"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": job, "uid": job}],
            "annotations": {
                "swansong.dev/injected": "{}", "hccl/rankIndex": rank.to_string(),
                "scheduling.k8s.io/group-name": format!("{job}-group"),
                "ascend.kubectl.kubernetes.io/ascend-910-configuration": configuration,
            },
        },
        "spec": {
            "nodeName": node, "restartPolicy": "Never",
            "containers": [{
                "name": "ascend", "env": env, "ports": [{"containerPort": 8000}, {"containerPort": 9601}],
                "resources": {"limits": {"huawei.com/Ascend910": "1"}},
            }],
        },
        "status": {"phase": "Running"},
    })
}

fn group(job: &str) -> DynamicObject {
    of(&json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {
            "name": format!("{job}-group"), "namespace": "ml", "labels": {"process-recover-enable": "on"},
            "annotations": {"recover-strategy": "dump"},
        },
    }))
}

fn node(name: &str, status: &str, reason: &str) -> Node {
    of(&json!({
        "metadata": {"name": name},
        "status": {"conditions": [
            {"type": "DumpReady", "status": status, "reason": reason, "lastHeartbeatTime": "2026-11-30T09:58:00Z"},
            {"type": "FaultsRelayed", "status": "True", "reason": "AllRelayed"},
        ]},
    }))
}

fn event(uid: &str, reason: &str, time: &str) -> Event {
    of(&json!({
        "metadata": {"name": format!("{uid}-{reason}"), "annotations": {"swansong.dev/fault-id": "f"}},
        "involvedObject": {"uid": uid}, "reason": reason, "message": "m",
        "source": {"host": "npu-a"}, "lastTimestamp": format!("2026-11-30T{time}Z"),
    }))
}

fn healthy() -> Observed {
    let pods = [pod("bert", 0, "npu-a"), pod("bert", 1, "npu-b")];
    Observed {
        now: NOW,
        jobs: vec![Seen::Read(vec![job("bert")]), Seen::Absent],
        groups: Seen::Read(vec![group("bert")]),
        pods: Seen::Read(pods.iter().map(of).collect()),
        nodes: Seen::Read(vec![
            node("npu-b", "True", "ChecksPass"),
            node("npu-a", "True", "ChecksPass"),
            of(&json!({"metadata": {"name": "control-plane"}})),
        ]),
        events: Seen::Read(Vec::new()),
        interrupted: None,
    }
}

/// The state of the only job, and the checks that it names.
fn of_job(table: &Table) -> (Ready, Vec<&str>) {
    let row = &table.jobs[0];
    (row.ready, row.why.iter().map(|reason| reason.check.as_str()).collect())
}

fn change_pod(observed: &mut Observed, rank: usize, change: impl FnOnce(&mut Value)) {
    let Seen::Read(pods) = &mut observed.pods else { panic!("Pods") };
    let mut pod = serde_json::to_value(&pods[rank]).expect("JSON");
    change(&mut pod);
    pods[rank] = of(&pod);
}

#[test]
fn healthy_job_and_its_nodes_are_ready() {
    let table = table(&healthy());
    assert_eq!(of_job(&table), (Ready::Yes, vec![]));
    let row = &table.jobs[0];
    assert_eq!((row.running_pods, row.wanted_pods), (Some(2), 2));
    let nodes: Vec<(&str, Ready, usize)> =
        table.nodes.iter().map(|row| (row.name.as_str(), row.ready, row.pods)).collect();
    assert_eq!(nodes, [("npu-a", Ready::Yes, 1), ("npu-b", Ready::Yes, 1)]);
    assert_eq!(table.problems, Vec::<String>::new());
}

#[test]
fn what_keeps_a_job_from_a_dump_is_named() {
    type Break = fn(&mut Observed);
    let rows: [(Break, Ready, &[&str]); 10] = [
        (
            |all| change_pod(all, 1, |pod| pod["status"]["phase"] = "Pending".into()),
            Ready::No,
            &["pods-running"],
        ),
        (|all| all.groups = Seen::Read(Vec::new()), Ready::No, &["pod-group"]),
        (
            |all| {
                let mut group = group("bert");
                group.metadata.labels = None;
                all.groups = Seen::Read(vec![group]);
            },
            Ready::No,
            &["recovery-enabled"],
        ),
        (
            |all| {
                change_pod(all, 1, |pod| {
                    drop(
                        pod["metadata"]["annotations"]
                            .as_object_mut()
                            .map(|all| all.remove("swansong.dev/injected")),
                    );
                    pod["spec"]["containers"][0]["env"] = json!([
                        {"name": "HIGH_AVAILABILITY", "value": "dump"}, {"name": "PROCESS_RECOVER", "value": "on"},
                        {"name": "MASTER_ADDR", "value": "10.0.0.1"},
                    ]);
                });
            },
            Ready::No,
            &["admitted"],
        ),
        (
            |all| {
                all.nodes =
                    Seen::Read(vec![node("npu-a", "True", "x"), node("npu-b", "False", "DevicesMissing")]);
            },
            Ready::No,
            &["dump-ready"],
        ),
        (|all| all.nodes = Seen::Read(vec![node("npu-a", "True", "x")]), Ready::Unknown, &["dump-ready"]),
        (|all| all.nodes = Seen::Forbidden("no".to_owned()), Ready::Unknown, &["dump-ready", "dump-ready"]),
        (
            |all| all.pods = Seen::Failed("no answer".to_owned()),
            Ready::Unknown,
            &["pod-group", "pods-running"],
        ),
        (|all| all.groups = Seen::Forbidden("no".to_owned()), Ready::Unknown, &["pod-group"]),
        // The heartbeat is old.
        (|all| all.now += 60 * 60 * 1000, Ready::Unknown, &["dump-ready", "dump-ready"]),
    ];
    for (number, (break_it, ready, why)) in rows.into_iter().enumerate() {
        let mut observed = healthy();
        break_it(&mut observed);
        assert_eq!(of_job(&table(&observed)), (ready, why.to_vec()), "row {number}");
    }
}

#[test]
fn last_fault_and_its_outcome_are_shown() {
    let row = |events: Vec<Event>| {
        let mut observed = healthy();
        observed.events = Seen::Read(events);
        let table = table(&observed);
        let reason = |happening: &Option<crate::fault_course::Happening>| {
            happening.as_ref().map(|happening| happening.reason.clone()).unwrap_or_default()
        };
        (reason(&table.jobs[0].last_fault), reason(&table.jobs[0].outcome))
    };
    let text = |fault: &str, outcome: &str| (fault.to_owned(), outcome.to_owned());
    assert_eq!(row(vec![]), text("", ""));
    assert_eq!(row(vec![event("other", "FaultRelayed", "09:50:00")]), text("", ""));
    assert_eq!(
        row(vec![event("bert-1", "DeviceFault", "09:50:00"), event("bert", "FaultRelayed", "09:50:05")]),
        text("FaultRelayed", "")
    );
    assert_eq!(
        row(vec![event("bert", "FaultRelayed", "09:50:05"), event("bert", "DumpSucceeded", "09:50:40")]),
        text("FaultRelayed", "DumpSucceeded")
    );
    // The outcome is that of an earlier fault.
    assert_eq!(
        row(vec![event("bert", "FaultBlocked", "09:55:00"), event("bert", "DumpSucceeded", "09:50:40")]),
        text("FaultBlocked", "")
    );
}

#[test]
fn job_that_has_ended_is_shown_only_with_its_outcome() {
    let mut observed = healthy();
    for rank in 0..2 {
        change_pod(&mut observed, rank, |pod| pod["status"]["phase"] = "Failed".into());
    }
    assert_eq!(table(&observed).jobs, vec![]);
    observed.events = Seen::Read(vec![event("bert", "DumpSucceeded", "09:50:40")]);
    assert_eq!(of_job(&table(&observed)), (Ready::Ended, vec![]));
}

#[test]
fn what_could_not_be_read_is_said() {
    let mut observed = healthy();
    observed.jobs[1] = Seen::Forbidden("jobs.batch.volcano.sh is forbidden".to_owned());
    observed.events = Seen::Failed("no answer".to_owned());
    observed.interrupted = Some("connection refused".to_owned());
    assert_eq!(
        table(&observed).problems,
        [
            "Events: couldn't be read: no answer",
            "a watch is interrupted: connection refused",
            "jobs: may not be read: jobs.batch.volcano.sh is forbidden",
        ]
    );
}

#[test]
fn tables_are_aligned_and_leave_out_what_is_ready_if_they_are_long() {
    let mut observed = healthy();
    change_pod(&mut observed, 1, |pod| pod["status"]["phase"] = "Pending".into());
    observed.events = Seen::Read(vec![
        event("bert", "FaultRelayed", "09:50:05"),
        event("npu-a", "DeviceFault", "09:50:00"),
    ]);
    let shown = table(&observed);
    let text = |table: &Table, is_verbose: bool| Text { table, now: NOW, is_verbose }.to_string();
    let expected = "\
JOB      PODS  READY  LAST FAULT                        OUTCOME  WHY
ml/bert  1/2   no     FaultRelayed on npu-a, 9 min ago  -        pods-running: Pod bert-1 is Pending

NODE   PODS  READY  FAULTS      LAST FAULT                        WHY
npu-a  1     yes    AllRelayed  DeviceFault on npu-a, 10 min ago
npu-b  1     yes    AllRelayed  -
";
    assert_eq!(text(&shown, false), expected);

    let mut many = shown.clone();
    many.nodes =
        (0..1000).map(|n| super::NodeRow { name: format!("npu-{n}"), ..shown.nodes[1].clone() }).collect();
    many.nodes[7].ready = Ready::No;
    assert_eq!(text(&many, false).lines().count(), 6);
    assert!(text(&many, false).ends_with("999 other nodes are ready\n"));
    assert!(text(&many, true).lines().count() > 1000);
}

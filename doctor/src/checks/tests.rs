//! Checks of snapshots that a test cluster doesn't show.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{Check, Link, Status, run};
use crate::snapshot::{
    Cluster, Installation, Job, JobKind, JobObject, NodeSnapshot, Replica, Seen, Snapshot,
};

const NOW: u64 = 1_796_000_000_000;

fn job_object(replicas: &Value) -> JobObject {
    let job = json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": "bert", "namespace": "ml", "annotations": {"recover-strategy": "dump"}},
        "spec": {"replicaSpecs": replicas},
    });
    let object: DynamicObject = serde_json::from_value(job).expect("a job");
    JobObject { kind: JobKind::AscendJob, object }
}

/// A snapshot in which only the job's own object was read; of everything else reading had this result.
fn unread<T>(result: &Seen<()>) -> Seen<T> {
    match result {
        Seen::Read(()) | Seen::Absent => Seen::Absent,
        Seen::Forbidden(message) => Seen::Forbidden(message.clone()),
        Seen::Failed(message) => Seen::Failed(message.clone()),
        Seen::NotAsked => Seen::NotAsked,
    }
}

fn snapshot(result: &Seen<()>, job: JobObject) -> Snapshot {
    Snapshot {
        taken_at: NOW,
        installation: Some(Installation {
            configuration: unread(result),
            deployment: unread(result),
            endpoints: unread(result),
            service_answer: unread(result),
            replicas: unread(result),
            policies: unread(result),
            agents: unread(result),
        }),
        cluster: Some(Cluster {
            namespaces: unread(result),
            clusterd: unread(result),
            clusterd_images: unread(result),
            cluster_info: unread(result),
            queues: unread(result),
        }),
        jobs: vec![Job {
            namespace: "ml".to_owned(),
            name: "bert".to_owned(),
            object: Seen::Read(job),
            pods: unread(result),
            group: unread(result),
            reset_config: unread(result),
            summary: unread(result),
            service: unread(result),
            endpoints: unread(result),
        }],
        nodes: vec![NodeSnapshot {
            name: "npu-a".to_owned(),
            node: unread(result),
            device_info: unread(result),
            agent: unread(result),
            status: unread(result),
        }],
    }
}

fn two_pods() -> Value {
    let container = json!({"name": "ascend", "ports": [{"containerPort": 8000}, {"containerPort": 9601}]});
    let replica = json!({"replicas": 1, "template": {"spec": {"containers": [container]}}});
    json!({"Master": replica, "Worker": replica})
}

fn of(checks: &[Check], link: Link) -> Option<&Check> {
    checks.iter().find(|check| check.link == link)
}

#[test]
fn what_was_not_read_never_passes() {
    // These are read from the job's own object.
    const OF_THE_JOB: [Link; 5] =
        [Link::Strategy, Link::TemplatePorts, Link::CleanPodPolicy, Link::FaultScheduling, Link::OtherPods];
    let unseen =
        [Seen::Forbidden("no right".to_owned()), Seen::Failed("no answer".to_owned()), Seen::NotAsked];
    for result in unseen {
        let checks = run(&snapshot(&result, job_object(&two_pods())));
        assert!(checks.len() > 20, "{}", checks.len());
        for check in &checks {
            let is_of_job = OF_THE_JOB.contains(&check.link);
            let is_failure_of_asking = matches!(
                (&result, check.link),
                (Seen::Failed(_), Link::WebhookReachable | Link::AgentAnswers)
            );
            let is_expected = match check.status {
                Status::Pass => is_of_job,
                Status::Fail => is_failure_of_asking,
                Status::Unknown => !is_of_job,
                Status::Warn => false,
            };
            assert!(is_expected, "{result:?}: {check:?}");
        }
    }
}

#[test]
fn what_does_not_exist_fails_or_warns() {
    let checks = run(&snapshot(&Seen::Absent, job_object(&two_pods())));
    for link in [
        Link::WebhookConfiguration,
        Link::WebhookReplicas,
        Link::Clusterd,
        Link::ClusterInfo,
        Link::PodGroup,
        Link::ServicePorts,
        Link::ResetConfig,
        Link::JobSummary,
        Link::AgentAnswers,
        Link::DevicePlugin,
    ] {
        assert_eq!(of(&checks, link).map(|check| check.status), Some(Status::Fail), "{link:?}");
    }
}

#[test]
fn namespaces_of_clusterd_are_named() {
    for (found, status) in [
        (vec!["cluster-system", "mindx-dl"], Status::Pass),
        (vec!["mindx-dl"], Status::Fail),
        (vec![], Status::Fail),
    ] {
        let mut snapshot = snapshot(&Seen::NotAsked, job_object(&two_pods()));
        if let Some(cluster) = &mut snapshot.cluster {
            cluster.namespaces = Seen::Read(found.iter().map(|name| (*name).to_owned()).collect());
        }
        let checks = run(&snapshot);
        let check = of(&checks, Link::Namespaces).expect("checked");
        assert_eq!(check.status, status, "{check:?}");
        assert!(found.len() != 1 || check.seen.contains("cluster-system"), "{check:?}");
    }
}

#[test]
fn job_with_one_pod_is_warned_about() {
    let alone = json!({"Master": two_pods()["Master"]});
    let checks = run(&snapshot(&Seen::NotAsked, job_object(&alone)));
    assert_eq!(of(&checks, Link::OtherPods).map(|check| check.status), Some(Status::Warn));
}

#[test]
fn versions_of_replicas_are_compared() {
    let replica = |version: Seen<Option<String>>| Replica {
        name: "a".to_owned(),
        version,
        certificate: Seen::NotAsked,
    };
    let version = |text: &str| Seen::Read(Some(text.to_owned()));
    for (versions, status) in [
        (vec![version("0.1.0"), version("0.1.0")], Status::Pass),
        (vec![version("0.1.0"), version("0.2.0")], Status::Warn),
        (vec![version("0.1.0"), Seen::Read(None)], Status::Warn),
        (vec![Seen::Read(None)], Status::Unknown),
        (vec![version("0.1.0"), Seen::Forbidden("no".to_owned())], Status::Unknown),
        (vec![], Status::Unknown),
    ] {
        let mut snapshot = snapshot(&Seen::NotAsked, job_object(&two_pods()));
        if let Some(installation) = &mut snapshot.installation {
            installation.replicas = Seen::Read(versions.into_iter().map(replica).collect());
        }
        assert_eq!(of(&run(&snapshot), Link::Versions).map(|check| check.status), Some(status));
    }
}

/// A MindSpore Pod; `others` are added to its environment.
fn mindspore(name: &str, others: &[(&str, &str)]) -> Pod {
    let mut env = vec![
        json!({"name": "MS_ENABLE_TFT", "value": "{TTP:1}"}),
        json!({"name": "MS_SCHED_HOST", "value": "10.96.0.7"}),
        json!({"name": "TTP_PORT", "value": "18000"}),
    ];
    env.extend(others.iter().map(|(name, value)| json!({"name": name, "value": value})));
    let pod = json!({
        "metadata": {"name": name, "uid": name, "annotations": {"swansong.dev/injected": "{}"}, "labels": {"replica-type": "worker"}},
        "spec": {"containers": [{"name": "ascend", "env": env}]},
        "status": {"phase": "Running"},
    });
    serde_json::from_value(pod).expect("a Pod")
}

#[test]
fn mindspore_needs_address_and_port() {
    let address = ("MS_TFT_IP", "$(MS_SCHED_HOST)");
    for (env, status) in [
        (vec![address, ("MS_TFT_PORT", "$(TTP_PORT)")], Status::Pass),
        (vec![address, ("MS_TFT_PORT", "18000")], Status::Pass),
        (vec![address, ("MS_TFT_PORT", "8000")], Status::Fail),
        (vec![address], Status::Fail),
        (vec![("MS_TFT_PORT", "18000")], Status::Fail),
        (vec![("MS_TFT_IP", "$(LATER)"), ("MS_TFT_PORT", "18000"), ("LATER", "10.96.0.7")], Status::Fail),
        (vec![("MS_TFT_IP", "10.9.9.9"), ("MS_TFT_PORT", "18000")], Status::Fail),
        (vec![("LOCAL_PROXY_ENABLE", "on")], Status::Pass),
    ] {
        let mut snapshot = snapshot(&Seen::NotAsked, job_object(&two_pods()));
        let service = json!({"spec": {"clusterIP": "10.96.0.7"}});
        snapshot.jobs[0].service = Seen::Read(serde_json::from_value(service).expect("a Service"));
        snapshot.jobs[0].pods = Seen::Read(vec![mindspore("bert-worker-0", &env)]);
        let checks = run(&snapshot);
        let check = of(&checks, Link::ControllerAddress).expect("checked");
        assert_eq!(check.status, status, "{env:?}: {check:?}");
        assert_eq!(
            of(&checks, Link::TtpPort).map(|check| check.status),
            Some(Status::Pass),
            "MindSpore reads it"
        );
    }
}

#[test]
fn forced_deletion_and_host_network_exclude_each_other() {
    let mut job = job_object(&two_pods());
    job.object.metadata.labels = Some(BTreeMap::from([("fault-scheduling".to_owned(), "force".to_owned())]));
    let mut snapshot = snapshot(&Seen::NotAsked, job);
    let mut pod = mindspore("bert-worker-0", &[]);
    pod.spec.as_mut().expect("a spec").host_network = Some(true);
    snapshot.jobs[0].pods = Seen::Read(vec![pod]);
    let checks = run(&snapshot);
    assert_eq!(of(&checks, Link::HostNetwork).map(|check| check.status), Some(Status::Warn));
    assert_eq!(of(&checks, Link::FaultScheduling).map(|check| check.status), Some(Status::Warn));
}

/// A running Pod of a node whose agent says this of it.
fn seen_by_agent(pod: &Value, verdict: &Value, status: &Value) -> Snapshot {
    let mut snapshot = snapshot(&Seen::NotAsked, job_object(&two_pods()));
    let node = &mut snapshot.nodes[0];
    node.agent = Seen::Read(Pod::default());
    let agent = json!({"version": "0.1.0", "preload": [verdict], "pods": [status]});
    node.status = Seen::Read(serde_json::from_value(agent).expect("a status"));
    snapshot.jobs[0].pods = Seen::Read(vec![serde_json::from_value(pod.clone()).expect("a Pod")]);
    snapshot
}

fn injected_pod(phase: &str) -> Value {
    json!({
        "metadata": {"name": "bert-worker-0", "uid": "u", "annotations": {"swansong.dev/injected": "{}"}},
        "spec": {
            "nodeName": "npu-a",
            "initContainers": [{"name": "swansong-libraries"}],
            "containers": [{"name": "ascend", "resources": {"limits": {"huawei.com/Ascend910": "1"}}}],
            "volumes": [{"name": "swansong-launcher-hook"}],
        },
        "status": {"phase": phase},
    })
}

#[test]
fn search_for_libraries_is_judged_and_explains_a_pod_that_does_not_start() {
    for (reason, phase, status, running) in [
        ("LibrariesFound", "Running", Status::Pass, Status::Fail),
        ("LibrariesNotFound", "Running", Status::Warn, Status::Fail),
        ("LibraryIsLink", "Running", Status::Fail, Status::Fail),
        ("LibrariesNotSearched", "Pending", Status::Fail, Status::Unknown),
        ("LibrariesNotSearched", "Failed", Status::Fail, Status::Unknown),
        ("Other", "Running", Status::Unknown, Status::Fail),
        ("", "Running", Status::Unknown, Status::Fail),
    ] {
        let discovery =
            if reason.is_empty() { Value::Null } else { json!({"reason": reason, "message": "m"}) };
        let verdict = json!({"uid": "u", "discovery": discovery});
        let checks = run(&seen_by_agent(&injected_pod(phase), &verdict, &json!({})));
        assert_eq!(of(&checks, Link::LibrariesFound).map(|check| check.status), Some(status), "{reason}");
        // One of two Pods is there; the reason why it doesn't start has a separate check.
        assert_eq!(of(&checks, Link::PodsRunning).map(|check| check.status), Some(running), "{reason}");
    }
}

#[test]
fn image_is_judged_by_what_a_dump_needs() {
    let finding = |check: &str, status: &str| json!({"check": check, "status": status, "message": "m"});
    let patched = "import swansong; swansong.start(240, True)";
    for (findings, pth, status) in [
        (vec![finding("taskd", "ok"), finding("launcher", "ok")], "", Status::Pass),
        (vec![finding("mindio", "missing"), finding("launcher", "warning")], "", Status::Fail),
        (vec![finding("launcher", "warning")], "", Status::Warn),
        (vec![finding("launcher", "warning"), finding("taskd", "ok")], patched, Status::Pass),
        (vec![finding("launcher", "missing")], patched, Status::Fail),
        (vec![finding("libmspti", "warning"), finding("shell", "warning")], "", Status::Pass),
        (vec![], "", Status::Unknown),
    ] {
        let mut pod = injected_pod("Running");
        if !pth.is_empty() {
            pod["metadata"]["annotations"]["swansong.dev/launcher-hook.py"] = "x".into();
            pod["metadata"]["annotations"]["swansong.dev/launcher-hook.pth"] = pth.into();
        }
        let containers = json!([{"name": "other"}, {"name": "ascend", "image": {"findings": findings}}]);
        let verdict = json!({"uid": "u", "containers": containers});
        let checks = run(&seen_by_agent(&pod, &verdict, &json!({})));
        let check = of(&checks, Link::Image).expect("checked");
        assert_eq!(check.status, status, "{findings:?} {pth}: {check:?}");
    }
}

#[test]
fn trainer_is_judged_by_the_agents_verdict() {
    for (trainer, status) in [
        (json!({"verdict": "can", "message": "m"}), Status::Pass),
        (json!({"verdict": "can't", "message": "m"}), Status::Fail),
        (json!({"verdict": "can't tell", "message": "m"}), Status::Unknown),
        (Value::Null, Status::Unknown),
    ] {
        let observed = json!({"uid": "u", "trainer": trainer});
        let checks =
            run(&seen_by_agent(&injected_pod("Running"), &json!({"uid": "u", "containers": []}), &observed));
        assert_eq!(of(&checks, Link::Trainer).map(|check| check.status), Some(status), "{trainer}");
    }
}

#[test]
fn launcher_hook_is_judged_by_the_agents_verdict() {
    for (hook, status) in [
        (json!({"isActive": true, "reason": "HookActive", "message": "m"}), Status::Pass),
        (json!({"isActive": false, "reason": "SiteDisabled", "message": "m"}), Status::Fail),
        (json!({"isActive": null, "reason": "NoPermission", "message": "m"}), Status::Unknown),
        (Value::Null, Status::Unknown),
    ] {
        let verdict = json!({"uid": "u", "containers": [{"name": "ascend", "launcherHook": hook}]});
        let mut pod = injected_pod("Running");
        pod["metadata"]["annotations"]["swansong.dev/launcher-hook.py"] = "x".into();
        let checks = run(&seen_by_agent(&pod, &verdict, &json!({})));
        let check = of(&checks, Link::LauncherHookActive).expect("checked");
        assert_eq!(check.status, status, "{hook}: {check:?}");
    }
}

#[test]
fn manager_and_training_have_time_to_start() {
    for (seconds, manager, controller, processors) in [
        (30, Status::Unknown, Status::Unknown, Status::Unknown),
        (120, Status::Fail, Status::Unknown, Status::Unknown),
        (600, Status::Fail, Status::Unknown, Status::Unknown),
    ] {
        let mut pod = injected_pod("Running");
        let devices = json!({"devices": [{"device_id": "0"}]}).to_string();
        pod["metadata"]["annotations"]["ascend.kubectl.kubernetes.io/ascend-910-configuration"] =
            devices.into();
        pod["metadata"]["annotations"]["hccl/rankIndex"] = "0".into();
        let started = i64::try_from(NOW / 1000).expect("a time") - seconds;
        let started = k8s_openapi::jiff::Timestamp::from_second(started).expect("a time").to_string();
        // The image was pulled for an hour.
        pod["status"]["startTime"] = "2026-11-01T00:00:00Z".into();
        pod["status"]["containerStatuses"] = json!([{
            "name": "ascend", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": started}},
        }]);
        let observed = json!({"uid": "u", "listening": [], "connected": 0});
        let checks = run(&seen_by_agent(&pod, &json!({"uid": "u", "containers": []}), &observed));
        for (link, status) in [
            (Link::ManagerListening, manager),
            // What depends on the Manager isn't named beside it.
            (Link::ControllerListening, controller),
            (Link::ProcessorsConnected, processors),
        ] {
            assert_eq!(
                of(&checks, link).map(|check| check.status),
                Some(status),
                "{link:?} after {seconds} s"
            );
        }
    }
}

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

fn addresses() -> Addresses {
    Addresses { rank_zero: "10.0.0.222".to_owned(), rank_zero_port: 2222, clusterd: None }
}

fn template() -> Value {
    let npus = json!({ "huawei.com/Ascend910": 8 });
    json!({
        "metadata": { "labels": { "ring-controller.atlas": "ascend-910b" } },
        "spec": { "containers": [{
            "name": "ascend",
            "image": "localhost/train:1",
            "command": ["/bin/bash", "-c"],
            "args": ["torchrun x.py"],
            "resources": { "limits": npus, "requests": npus },
        }] },
    })
}

fn job(framework: &str, strategy: Option<&str>) -> Value {
    let first = if framework == "mindspore" { "Scheduler" } else { "Master" };
    let replica = json!({ "replicas": 1, "restartPolicy": "Never", "template": template() });
    let mut job = json!({
        "metadata": { "name": "dump2", "namespace": "trjob", "uid": "a25c", "labels": { "framework": framework } },
        // Workers first: nothing may depend on the order.
        "spec": { "replicaSpecs": { "Worker": replica, first: replica } },
    });
    if let Some(strategy) = strategy {
        job["metadata"]["annotations"] = json!({ "recover-strategy": strategy });
    }
    job
}

fn env(pod: &Value) -> Vec<(String, String)> {
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let value = |entry: &Value| match entry["value"].as_str() {
        Some(value) => value.to_owned(),
        None => entry["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap().to_owned(),
    };
    env.iter().map(|entry| (entry["name"].as_str().unwrap().to_owned(), value(entry))).collect()
}

fn value(pod: &Value, name: &str) -> Option<String> {
    env(pod).into_iter().rev().find(|(entry, _)| entry == name).map(|(_, value)| value)
}

#[test]
fn the_service_has_the_named_ports_of_the_jobs_template() {
    let mut job = job("pytorch", Some("dump"));
    let service = rank_zero_service(&job).unwrap().unwrap();
    assert_eq!(service["metadata"]["name"], "dump2-master-0");
    assert_eq!(service["spec"]["ports"], json!([{ "name": "ascendjob-port", "port": 2222 }]));

    job["spec"]["replicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["ports"] = json!([{ "name": "ttp-port", "containerPort": 8000 }, { "name": "taskd-port", "containerPort": 9601 }]);
    let service = rank_zero_service(&job).unwrap().unwrap();
    let ports = service["spec"]["ports"].as_array().unwrap();
    let ports: BTreeSet<_> = ports.iter().map(|port| port["port"].as_u64().unwrap()).collect();
    assert_eq!(ports, BTreeSet::from([2222, 8000, 9601]));
}

#[test]
fn the_service_selects_rank_zero_and_no_other_pod() {
    for framework in ["pytorch", "mindspore"] {
        let job = job(framework, Some("dump"));
        let service = rank_zero_service(&job).unwrap().unwrap();
        let pods = pods(&job, &addresses()).unwrap();
        let selected = pods.iter().filter(|pod| {
            let mut selector = service["spec"]["selector"].as_object().unwrap().iter();
            selector.all(|(key, value)| &pod["metadata"]["labels"][key] == value)
        });
        let names: Vec<_> = selected.map(|pod| &pod["metadata"]["name"]).collect();
        assert_eq!(names, [&service["metadata"]["name"]]);
    }
}

#[test]
fn annotations_of_the_job_are_not_copied_but_those_of_the_template_are() {
    let mut job = job("pytorch", Some("dump"));
    job["spec"]["replicaSpecs"]["Worker"]["template"]["metadata"]["annotations"] = json!({ "own": "1" });
    let pods = pods(&job, &addresses()).unwrap();
    let keys =
        |pod: &Value| pod["metadata"]["annotations"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let operators = ["hccl/rankIndex", "scheduling.k8s.io/group-name", "volcano.sh/task-spec"];
    assert_eq!(keys(&pods[0]), operators);
    assert_eq!(keys(&pods[1]), ["own"].into_iter().chain(operators).collect::<Vec<_>>());
}

#[test]
fn what_is_already_there_stays_and_comes_first() {
    let mut job = job("pytorch", Some("dump"));
    let container = &mut job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{ "name": "PROCESS_RECOVER", "value": "off" }]);
    let pods = pods(&job, &addresses()).unwrap();
    let env = env(&pods[1]);
    assert_eq!(env[0], ("PROCESS_RECOVER".to_owned(), "off".to_owned()));
    assert_eq!(
        env.iter().filter(|(name, _)| name == "PROCESS_RECOVER").count(),
        2,
        "the operator doesn't check"
    );
}

#[test]
fn strategies_become_variables_token_by_token_without_trimming() {
    let cases = [
        ("pytorch", "dump", "HIGH_AVAILABILITY", Some("dump")),
        ("pytorch", "recover,dump", "HIGH_AVAILABILITY", Some("dump,recover")),
        ("pytorch", "recover, dump", "HIGH_AVAILABILITY", Some("recover")),
        ("pytorch", "exit", "HIGH_AVAILABILITY", Some("recover")),
        ("pytorch", "nothing", "HIGH_AVAILABILITY", Some("")),
        ("pytorch", "nothing", "PROCESS_RECOVER", None),
        ("pytorch", "elastic-training", "ELASTIC_PROCESS_RECOVER_ENABLE", None),
        ("pytorch", "recover-in-place", "ENABLE_RESTART_FAULT_PROCESS", Some("on")),
        ("pytorch", "", "HIGH_AVAILABILITY", None),
        ("mindspore", "dump", "MS_ENABLE_TFT", Some("{TTP:1}")),
        ("mindspore", "retry,recover,dump,exit", "MS_ENABLE_TFT", Some("{ARF:1,HCCE:1,TTP:1,UCE:1}")),
        ("mindspore", "nothing", "MS_ENABLE_TFT", Some("{}")),
        ("tensorflow", "dump", "PROCESS_RECOVER", None),
    ];
    for (framework, strategy, name, expected) in cases {
        let pods = pods(&job(framework, Some(strategy)), &addresses()).unwrap();
        assert_eq!(value(&pods[0], name).as_deref(), expected, "{framework} {strategy:?} {name}");
    }
}

#[test]
fn labels_of_the_job_change_the_variables() {
    let mut job = job("mindspore", Some("dump"));
    job["metadata"]["labels"]["pod-rescheduling"] = "on".into();
    assert_eq!(
        value(&pods(&job, &addresses()).unwrap()[0], "MS_ENABLE_TFT").as_deref(),
        Some("{RSC:1,TTP:1}")
    );
    job["metadata"]["labels"]["subHealthyStrategy"] = "hotSwitch".into();
    let pods = pods(&job, &addresses()).unwrap();
    assert_eq!(value(&pods[0], "MS_ENABLE_TFT").as_deref(), Some("{ARF:1,RSC:1,TTP:1}"));
    assert_eq!(env(&pods[0]).iter().filter(|(name, _)| name == "PROCESS_RECOVER").count(), 1);
}

#[test]
fn pods_of_one_job_differ_in_the_order_of_the_variables() {
    let pods = pods(&job("pytorch", Some("dump")), &addresses()).unwrap();
    let names = |pod: &Value| env(pod).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let (mut master, mut worker) = (names(&pods[0]), names(&pods[1]));
    assert_ne!(master, worker);
    master.sort();
    worker.sort();
    assert_eq!(master, worker);
}

#[test]
fn jobs_that_nothing_can_be_made_of_are_refused() {
    let mut job = job("pytorch", None);
    job["metadata"]["labels"] = Value::Null;
    assert_eq!(pods(&job, &addresses()).unwrap_err(), JobError::Framework(None));
    job["spec"] = Value::Null;
    assert_eq!(rank_zero_service(&job).unwrap_err(), JobError::Missing("spec.replicaSpecs"));
}

/// A Pod that the real operator made, from the folder beside the repository that holds real input.
fn captured(name: &str) -> Option<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/inputs/pods").join(name);
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// Where real Pods are available, these are the same but for what the API server adds.
#[test]
fn pods_are_those_of_the_real_operator() {
    let cases = [
        ("pod-pytorch-master.json", "pytorch", "dump", 0, false),
        ("pod-pytorch-worker.json", "pytorch", "dump", 1, false),
        ("pod-ms-scheduler-0.json", "mindspore", "dump", 0, false),
        ("pod-ms-worker-0.json", "mindspore", "dump", 1, false),
        ("pod-pthost-master-0.json", "pytorch", "recover,dump", 0, true),
        ("pod-pthost-worker-0.json", "pytorch", "recover,dump", 1, true),
    ];
    for (file, framework, strategy, index, host_network) in cases {
        let Some(real) = captured(file) else { continue };
        let mut job = job(framework, Some(strategy));
        let owner = &real["metadata"]["ownerReferences"][0];
        for key in ["name", "uid"] {
            job["metadata"][key] = owner[key].clone();
        }
        if host_network {
            for (_, replica) in job["spec"]["replicaSpecs"].as_object_mut().unwrap() {
                replica["template"]["spec"]["hostNetwork"] = true.into();
            }
        }
        let mut addresses = addresses();
        if let Some(address) = value(&real, "MASTER_ADDR").or(value(&real, "MS_SCHED_HOST")) {
            addresses.rank_zero = address;
        }
        let ours = pods(&job, &addresses).unwrap().remove(index);
        for key in ["name", "labels", "annotations", "ownerReferences"] {
            assert_eq!(ours["metadata"][key], real["metadata"][key], "{file}: {key}");
        }
        for key in ["restartPolicy", "schedulerName", "hostNetwork"] {
            assert_eq!(ours["spec"][key], real["spec"][key], "{file}: {key}");
        }
        let (ours_env, real_env) = (env(&ours), env(&real));
        let sorted = |mut env: Vec<(String, String)>| {
            env.sort();
            env
        };
        assert_eq!(sorted(ours_env.clone()), sorted(real_env.clone()), "{file}");
        // Only the last part has no order.
        let ordered =
            real_env.iter().position(|(name, _)| matches!(name.as_str(), "RANK" | "NPU_POD")).unwrap();
        assert_eq!(ours_env[..=ordered], real_env[..=ordered], "{file}");
        let numbers = |pod: &Value| {
            let ports = pod["spec"]["containers"][0]["ports"].as_array().cloned().unwrap_or_default();
            ports.iter().map(|port| port["containerPort"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&ours), numbers(&real), "{file}");
    }
}

//! Runs one case so many times, for a count of instructions: `instructions CASE TIMES`.
//!
//! `tests/benches/instructions.py` runs it below callgrind with two different numbers; the difference is what the case costs
//! without the start of the process. Without arguments it lists the cases.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use serde_json::{Value, json};
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::workload::WorkloadKind;
use swansong_webhook::config::Config;
use swansong_webhook::ready_nodes::ReadyNodes;
use swansong_webhook::review;

/// A review as the API server sends it, of a Pod as ascend-operator creates it.
const REVIEW: &str = include_str!("../../tests/benches/load/review.json");

const CASES: [&str; 6] = ["review", "skipped_review", "pod", "injected_pod", "large_pod", "ascendjob"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [case, times] = &arguments[..] else {
        println!("{}", CASES.join("\n"));
        return;
    };
    let mut case = prepare(case);
    for _ in 0..times.parse().expect("a number of times") {
        case();
    }
}

fn prepare(name: &str) -> Box<dyn FnMut()> {
    match name {
        "review" => review(REVIEW.to_owned()),
        "skipped_review" => {
            // Without annotation and marker it doesn't ask for a dump.
            review(REVIEW.replace("recover-strategy", "another-one").replace("HIGH_AVAILABILITY", "OTHER"))
        }
        "pod" => injection(WorkloadKind::Pod, &pod(60)),
        "injected_pod" => {
            let mut pod = pod(60);
            let outcome = inject(WorkloadKind::Pod, &pod.to_string(), &Policy::default()).unwrap();
            let patch = serde_json::to_value(&outcome.operations).unwrap();
            let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
            json_patch::patch(&mut pod, &patch).unwrap();
            injection(WorkloadKind::Pod, &pod)
        }
        "large_pod" => injection(WorkloadKind::Pod, &pod(22_000)),
        "ascendjob" => {
            let template = json!({"spec": pod(30)["spec"]});
            let replica = |replicas| json!({"replicas": replicas, "template": template});
            let job = json!({
                "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
                "metadata": {"name": "bench", "annotations": {"recover-strategy": "dump"}},
                "spec": {"replicaSpecs": {"Master": replica(1), "Worker": replica(7)}},
            });
            injection(WorkloadKind::AscendJob, &job)
        }
        _ => panic!("no case {name}; there are: {}", CASES.join(" ")),
    }
}

fn review(body: String) -> Box<dyn FnMut()> {
    let config = Config::default();
    Box::new(move || {
        let answer = review::answer(black_box(body.as_bytes()), &config, ReadyNodes::default());
        black_box(answer.unwrap().body);
    })
}

fn injection(kind: WorkloadKind, object: &Value) -> Box<dyn FnMut()> {
    let (json, policy) = (object.to_string(), Policy::default());
    Box::new(move || {
        black_box(inject(kind, black_box(&json), &policy).unwrap());
    })
}

/// A marked Pod with so many further environment variables; 60 are 4 KB, 22,000 are 1.4 MB.
fn pod(variables: usize) -> Value {
    let mut env =
        vec![json!({"name": "HIGH_AVAILABILITY", "value": "dump"}), json!({"name": "RANK", "value": "0"})];
    env.extend(
        (0..variables)
            .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "some text of middling length"})),
    );
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "bench", "labels": {"training.kubeflow.org/job-role": "master"}},
        "spec": {"containers": [{
            "name": "ascend", "image": "registry.example/train:1", "env": env,
            "ports": [{"name": "ascendjob-port", "containerPort": 2222, "protocol": "TCP"}],
            "resources": {"limits": {"huawei.com/Ascend910": "8"}},
        }]},
    })
}

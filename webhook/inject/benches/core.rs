//! The injection core alone: a Pod as ascend-operator makes it, and one of 1.5 MB.
#![allow(clippy::unwrap_used)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::workload::WorkloadKind;

/// A marked Pod with so many further environment variables.
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

fn injection(criterion: &mut Criterion) {
    let policy = Policy::default();
    let mut group = criterion.benchmark_group("inject");
    for variables in [16, 60, 22_000] {
        let json = pod(variables).to_string();
        group.throughput(Throughput::Bytes(json.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(json.len()), &json, |bencher, json| {
            bencher.iter(|| inject(WorkloadKind::Pod, json, &policy).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, injection);
criterion_main!(benches);

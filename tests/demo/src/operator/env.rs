//! The environment variables that ascend-operator appends to the training container.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::job::{Framework, Job, Replica};
use super::objects::Addresses;

/// The Service of ClusterD, by name.
const CLUSTERD: &str = "clusterd-grpc-svc.mindx-dl.svc.cluster.local";

/// Which pod of a job.
#[derive(Clone, Copy)]
pub(super) struct Place<'j, 'a> {
    pub(super) job: &'j Job<'a>,
    pub(super) replica: &'j Replica<'a>,
    pub(super) rank: u32,
    pub(super) addresses: &'j Addresses,
}

/// All that is appended, in order.
pub(super) fn appended(place: Place) -> Vec<Value> {
    let mut env = common(place);
    let framework = place.job.framework;
    let worker_alone = place.job.replicas.len() == 1 && !place.replica.is_rank_zero();
    if place.job.npus_per_pod() == 0 || (framework == Framework::MindSpore && worker_alone) {
        return env;
    }
    match framework {
        Framework::PyTorch => env.extend(pytorch(place)),
        Framework::MindSpore => env.extend(mindspore(place)),
        Framework::TensorFlow => return env,
    }
    let recovery: Vec<_> =
        recovery(place.job).into_iter().map(|(name, value)| variable(name, &value)).collect();
    env.extend(any_order(recovery, place.rank));
    hot_switch(place.job, &mut env);
    env
}

fn common(place: Place) -> Vec<Value> {
    let Place { job, replica, addresses, .. } = place;
    let mut env = Vec::new();
    if let Some((resource, _)) = replica.npu_resource() {
        env.push(field("ASCEND_VISIBLE_DEVICES", &format!("metadata.annotations['{resource}']")));
    }
    let host_network = replica.template["spec"]["hostNetwork"].as_bool().unwrap_or_default();
    env.push(variable("MINDX_TASK_ID", job.uid));
    env.push(variable("MINDX_SERVER_IP", addresses.clusterd.as_deref().unwrap_or(CLUSTERD)));
    env.push(variable("MINDX_SERVER_DOMAIN", CLUSTERD));
    env.push(variable("HostNetwork", &host_network.to_string()));
    if replica.npus() > 0 {
        // Jobs that span super pods aren't imitated.
        env.push(variable("HCCL_LOGIC_SUPERPOD_ID", "0"));
    }
    env.push(variable("REPLICA_TYPE", replica.kind));
    env
}

fn pytorch(place: Place) -> Vec<Value> {
    let Place { job, rank, addresses, .. } = place;
    let local = job.npus_per_pod();
    let ranks: Vec<_> = (0..local).map(|rank| rank.to_string()).collect();
    vec![
        variable("LOCAL_WORLD_SIZE", &local.to_string()),
        variable("WORLD_SIZE", &(local * u64::from(job.npu_pods())).to_string()),
        variable("LOCAL_RANK", &ranks.join(",")),
        variable("MASTER_ADDR", &addresses.rank_zero),
        variable("MASTER_PORT", &addresses.rank_zero_port.to_string()),
        variable("RANK", &rank.to_string()),
    ]
}

fn mindspore(place: Place) -> Vec<Value> {
    let Place { job, replica, rank, addresses } = place;
    let scheduler = replica.is_rank_zero();
    let local = job.npus_per_pod();
    vec![
        if scheduler {
            field("MS_SCHED_HOST", "status.podIP")
        } else {
            variable("MS_SCHED_HOST", &addresses.rank_zero)
        },
        variable("MS_LOCAL_WORKER", &local.to_string()),
        variable("MS_WORKER_NUM", &(local * u64::from(job.npu_pods())).to_string()),
        variable("MS_NODE_RANK", &rank.to_string()),
        variable("MS_SCHED_PORT", &addresses.rank_zero_port.to_string()),
        variable("MS_SERVER_NUM", "0"),
        variable("MS_ROLE", if scheduler { "MS_SCHED" } else { "MS_WORKER" }),
        variable("NPU_POD", &(replica.npus() > 0).to_string()),
    ]
}

/// The strategies that `recover-strategy` enables. Tokens are compared as they are, blanks included: that is
/// how `"recover, dump"` loses its dump.
fn recovery(job: &Job) -> BTreeMap<&'static str, String> {
    let reschedules_pods = job.label("pod-rescheduling") == Some("on");
    let mut env = BTreeMap::new();
    let strategies = job.annotation("recover-strategy").unwrap_or_default();
    if strategies.is_empty() {
        if reschedules_pods && job.framework == Framework::MindSpore {
            env.insert("MS_ENABLE_TFT", "{RSC:1}".to_owned());
        }
        return env;
    }
    let mut abilities = BTreeSet::new();
    for strategy in strategies.split(',') {
        let (pytorch, mindspore): (&str, &[&str]) = match strategy {
            "dump" => ("dump", &["TTP:1"]),
            "recover" | "recover-in-place" | "exit" => ("recover", &["ARF:1"]),
            "retry" => ("retry", &["UCE:1", "HCCE:1"]),
            "elastic-training" => ("elastic-training", &[]),
            _ => continue,
        };
        env.insert("PROCESS_RECOVER", "on".to_owned());
        if strategy != "elastic-training" {
            env.insert("ELASTIC_PROCESS_RECOVER_ENABLE", "1".to_owned());
        }
        if strategy == "recover-in-place" {
            env.insert("ENABLE_RESTART_FAULT_PROCESS", "on".to_owned());
        }
        match job.framework {
            Framework::MindSpore => abilities.extend(mindspore),
            Framework::PyTorch | Framework::TensorFlow => {
                abilities.insert(pytorch);
            }
        }
    }
    if job.framework == Framework::MindSpore {
        if reschedules_pods {
            abilities.insert("RSC:1");
        }
        let abilities: Vec<_> = abilities.into_iter().collect();
        env.insert("MS_ENABLE_TFT", format!("{{{}}}", abilities.join(",")));
        env.insert("MINDIO_FOR_MINDSPORE", "1".to_owned());
        env.insert("MS_ENABLE_THM", "{HCCL_WATCHDOG:0}".to_owned());
    } else {
        let abilities: Vec<_> = abilities.into_iter().collect();
        env.insert("HIGH_AVAILABILITY", abilities.join(","));
        env.insert("HCCL_ASYNC_ERROR_HANDLING", "0".to_owned());
    }
    env
}

/// The sub-health strategy `hotSwitch` needs what `recover` needs. Only here the operator checks
/// before it appends.
fn hot_switch(job: &Job, env: &mut Vec<Value>) {
    if job.label("subHealthyStrategy") != Some("hotSwitch") {
        return;
    }
    let (list, ability) = match job.framework {
        Framework::MindSpore => ("MS_ENABLE_TFT", "ARF:1"),
        Framework::PyTorch | Framework::TensorFlow => ("HIGH_AVAILABILITY", "recover"),
    };
    for (name, value) in [("PROCESS_RECOVER", "on"), ("ELASTIC_PROCESS_RECOVER_ENABLE", "1")] {
        if !env.iter().any(|entry| entry["name"] == name) {
            env.push(variable(name, value));
        }
    }
    let braces = |text: &str| if list == "MS_ENABLE_TFT" { format!("{{{text}}}") } else { text.to_owned() };
    let Some(entry) = env.iter_mut().find(|entry| entry["name"] == list) else {
        env.push(variable(list, &braces(ability)));
        return;
    };
    let present = entry["value"].as_str().unwrap_or_default().trim_matches(['{', '}']).to_owned();
    let mut abilities: BTreeSet<_> = present.split(',').filter(|ability| !ability.is_empty()).collect();
    abilities.insert(ability);
    entry["value"] = braces(&abilities.into_iter().collect::<Vec<_>>().join(",")).into();
}

/// The real operator emits these in the order of a Go map, which differs from pod to pod. Turning
/// them by the rank does, too, and the same job gives the same pods.
fn any_order(mut env: Vec<Value>, rank: u32) -> Vec<Value> {
    if !env.is_empty() {
        let places = rank as usize % env.len();
        env.rotate_left(places);
    }
    env
}

fn variable(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": value })
}

fn field(name: &str, path: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
}

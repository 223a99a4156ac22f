//! Generated Pods, jobs and policies, with unexpected values in every place that an injection reads.

use proptest::prelude::*;
use serde_json::{Value, json};
use swansong_inject::policy::{
    DumpPolicy, ManagerPolicy, Policy, PreloadOrder, PreloadValueFrom, ResetConfigMount,
};
use swansong_inject::workload::WorkloadKind;

use crate::affinity;
use crate::support::{MSPTI, TASKD};

/// Any JSON, for unknown fields.
pub(super) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        "[ -~é世]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z/~]{1,6}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Sets `key` to one of: absent, null, a value.
pub(super) fn put(object: &mut Value, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[key] = value;
    }
}

pub(super) fn maybe(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(Value::Null)), 6 => value.prop_map(Some)]
}

pub(super) fn env_entry() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("LD_PRELOAD"),
        Just("TTP_PORT"),
        Just("POD_IP"),
        Just("TASKD_PROCESS_ENABLE"),
        Just("LIBDIR"),
        Just("A"),
        Just("HIGH_AVAILABILITY"),
        Just("RANK"),
        Just("MASTER_ADDR"),
        Just("MS_SCHED_HOST"),
        Just("TTP_ADDR"),
        Just("TTP_NORMAL_ACTION_TIME_LIMIT"),
    ];
    let value = prop_oneof![
        Just(json!("")),
        Just(json!("8000")),
        Just(json!("9601")),
        Just(json!("off")),
        Just(json!("$(POD_IP)")),
        Just(json!("$(LD_PRELOAD)")),
        Just(json!("$(TTP_ADDR)")),
        Just(json!("/a.so:/b.so")),
        Just(json!(" /a.so  $(LIBDIR)/c.so:")),
        Just(json!(TASKD)),
        Just(json!(format!("{TASKD}:{MSPTI}"))),
        Just(json!("dump")),
        Just(Value::Null),
    ];
    let source = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
    (
        name,
        prop_oneof![4 => value.prop_map(|value| ("value", value)), 1 => Just(("valueFrom", source))],
        maybe(any_json()),
    )
        .prop_map(|(name, (key, value), future)| {
            let mut entry = json!({"name": name});
            entry[key] = value;
            put(&mut entry, "futureField", future);
            entry
        })
}

fn port() -> impl Strategy<Value = Value> {
    (
        prop_oneof![Just(8000), Just(9601), Just(2222), 1..65536],
        maybe(prop_oneof![Just(json!("ttp-port")), Just(json!("taskd-port")), Just(json!("http"))]),
        maybe(prop_oneof![Just(json!("TCP")), Just(json!("UDP"))]),
        maybe(any_json()),
    )
        .prop_map(|(number, name, protocol, future)| {
            let mut port = json!({"containerPort": number});
            put(&mut port, "name", name);
            put(&mut port, "protocol", protocol);
            put(&mut port, "futureField", future);
            port
        })
}

fn mount() -> impl Strategy<Value = Value> {
    let site = TASKD.split("/taskd/").next().unwrap();
    let path = prop_oneof![
        4 => Just("/data".to_owned()),
        1 => Just(site.to_owned()),
        1 => Just(format!("{site}/swansong_launcher_hook.py")),
        1 => Just("/opt".to_owned()),
    ];
    let name =
        prop_oneof![4 => Just("data"), 1 => Just("swansong-launcher-hook"), 1 => Just("swansong-libraries")];
    (name, path, maybe(any_json())).prop_map(|(name, path, future)| {
        let mut mount = json!({"name": name, "mountPath": path});
        put(&mut mount, "futureField", future);
        mount
    })
}

fn volume() -> impl Strategy<Value = Value> {
    let name =
        prop_oneof![4 => Just("data"), 1 => Just("swansong-launcher-hook"), 1 => Just("swansong-libraries")];
    (name, maybe(any_json())).prop_map(|(name, future)| {
        let mut volume = json!({"name": name, "emptyDir": {}});
        put(&mut volume, "futureField", future);
        volume
    })
}

fn list(item: impl Strategy<Value = Value>, max: usize) -> impl Strategy<Value = Option<Value>> {
    maybe(prop::collection::vec(item, 0..max).prop_map(Value::from))
}

pub(super) fn container(index: usize) -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("ascend".to_owned()), Just(format!("c{index}"))];
    let resources = json!({"limits": {"huawei.com/Ascend910": "8", "cpu": "1.5"}});
    (
        name,
        list(env_entry(), 6),
        list(port(), 4),
        maybe(Just(resources)),
        list(Just(json!({"configMapRef": {}})), 2),
        list(mount(), 3),
        maybe(any_json()),
        prop_oneof![3 => Just(None), 1 => Just(Some(json!("Always")))],
    )
        .prop_map(move |(name, env, ports, resources, env_from, mounts, future, restart_policy)| {
            let mut container = json!({"name": format!("{name}-{index}").replace("ascend-0", "ascend")});
            for (key, value) in [
                ("env", env),
                ("ports", ports),
                ("resources", resources),
                ("envFrom", env_from),
                ("volumeMounts", mounts),
                ("futureField", future),
                ("restartPolicy", restart_policy.filter(|_| index == 9)),
            ] {
                put(&mut container, key, value);
            }
            container
        })
}

pub(super) fn annotations(trigger: bool) -> impl Strategy<Value = Option<Value>> {
    let strategy = if trigger {
        prop_oneof![Just("dump"), Just("recover, dump"), Just(" dump ,exit,, "), Just("retry,dump,oops")]
            .boxed()
    } else {
        prop_oneof![Just("recover"), Just("dump")].boxed()
    };
    let options = prop::collection::vec(
        prop_oneof![
            Just(("swansong.dev/containers", "ascend,c1-1")),
            Just(("swansong.dev/skip-preload", "*")),
            Just(("swansong.dev/skip-preload", "ascend")),
            Just(("swansong.dev/libtaskd", "/opt/libtaskd.so")),
            Just(("swansong.dev/libtaskd", "relative.so")),
            Just(("swansong.dev/inject", "false")),
            Just(("swansong.dev/protect-dump", "false")),
            Just(("swansong.dev/protect-dump", "true")),
            Just(("swansong.dev/libraries", "discover")),
            Just(("swansong.dev/manager", "sidecar")),
            Just(("swansong.dev/reset-config", "configMap")),
            Just(("other", "kept")),
        ],
        0..2,
    );
    (strategy, options).prop_map(move |(strategy, options)| {
        let mut map = json!({"recover-strategy": strategy});
        for (key, value) in options {
            map[key] = json!(value);
        }
        Some(map)
    })
}

pub(super) fn metadata(annotations: impl Strategy<Value = Option<Value>>) -> impl Strategy<Value = Value> {
    let labels = prop_oneof![
        Just(json!({})),
        Just(json!({"training.kubeflow.org/job-role": "master"})),
        Just(json!({"replica-type": "worker", "x": "y"})),
        Just(json!({"process-recover-enable": "off"})),
    ];
    (annotations, maybe(labels), maybe(any_json())).prop_map(|(annotations, labels, future)| {
        let mut metadata = json!({"generateName": "x-"});
        put(&mut metadata, "annotations", annotations);
        put(&mut metadata, "labels", labels);
        put(&mut metadata, "futureField", future);
        metadata
    })
}

// Boxed: strategies nest by value and would fill a test's stack.
pub(super) fn spec() -> BoxedStrategy<Value> {
    let containers = (1..4usize).prop_flat_map(|count| (0..count).map(container).collect::<Vec<_>>());
    let nodes = (maybe(affinity::affinity()), maybe(affinity::node_selector()), affinity::node_name());
    let grace = maybe(prop_oneof![Just(json!(30)), Just(json!(3600))]);
    let flags = (maybe(any::<bool>().prop_map(Value::from)), maybe(any_json()), grace);
    (containers, flags, list(volume(), 2), list(container(9), 2), nodes)
        .prop_map(
            |(
                containers,
                (host_network, future, grace),
                volumes,
                init,
                (affinity, node_selector, node_name),
            )| {
                let mut spec = json!({"containers": containers});
                put(&mut spec, "affinity", affinity);
                put(&mut spec, "nodeSelector", node_selector);
                put(&mut spec, "nodeName", node_name);
                put(&mut spec, "hostNetwork", host_network);
                put(&mut spec, "futureField", future);
                put(&mut spec, "initContainers", init);
                put(&mut spec, "volumes", volumes);
                put(&mut spec, "terminationGracePeriodSeconds", grace);
                spec
            },
        )
        .boxed()
}

pub(super) fn a_pod() -> impl Strategy<Value = (WorkloadKind, Value)> {
    (metadata(annotations(true)), spec()).prop_map(|(metadata, spec)| {
        (WorkloadKind::Pod, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    })
}

pub(super) fn template() -> impl Strategy<Value = Value> {
    let own = prop_oneof![3 => Just(None), 1 => Just(Some(Value::Null)), 1 => Just(Some(json!({}))), 1 => annotations(false)];
    (maybe(metadata(own)), spec()).prop_map(|(metadata, spec)| {
        let mut template = json!({"spec": spec});
        put(&mut template, "metadata", metadata);
        template
    })
}

pub(super) fn a_job() -> impl Strategy<Value = (WorkloadKind, Value)> {
    let job = (metadata(annotations(true)), template(), template());
    (job, 0..4usize).prop_map(|((metadata, one, two), kind)| match kind {
        0 => (
            WorkloadKind::AscendJob,
            json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "metadata": metadata,
                   "spec": {"replicaSpecs": {"Master": {"template": one}, "Worker": {"template": two, "replicas": 3}}}}),
        ),
        1 => (
            WorkloadKind::VolcanoJob,
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata,
                   "spec": {"tasks": [{"name": "a", "template": one}, {"name": "b", "template": two}]}}),
        ),
        2 => (
            WorkloadKind::Deployment,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": one}}),
        ),
        _ => (
            WorkloadKind::CronJob,
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata,
                   "spec": {"jobTemplate": {"spec": {"template": one}}}}),
        ),
    })
}

pub(super) fn an_object() -> impl Strategy<Value = (WorkloadKind, Value)> {
    prop_oneof![a_pod(), a_job()]
}

pub(super) fn a_policy() -> impl Strategy<Value = Policy> {
    let zero_touch = (any::<bool>(), any::<bool>(), any::<bool>());
    (any::<bool>(), any::<bool>(), any::<bool>(), affinity::node_readiness(), zero_touch).prop_map(
        |(last, skip, extra, node_readiness, (discover_libraries, sidecar, reset_config))| Policy {
            node_readiness,
            discover_libraries,
            manager: ManagerPolicy { sidecar, ..ManagerPolicy::default() },
            reset_config: reset_config.then_some(ResetConfigMount::ConfigMap),
            preload_order: if last { PreloadOrder::Last } else { PreloadOrder::First },
            preload_value_from: if skip { PreloadValueFrom::Skip } else { PreloadValueFrom::Reference },
            dump: DumpPolicy { launcher_hook: !skip, ..DumpPolicy::default() },
            extra_env: if extra {
                vec![("A".to_owned(), "1".to_owned()), ("Z".to_owned(), "2".to_owned())]
            } else {
                vec![]
            },
            ..Policy::default()
        },
    )
}

/// A Pod template whose annotations are empty.
pub(super) fn template_without_strategy() -> impl Strategy<Value = Value> {
    (metadata(Just(Some(json!({})))), spec())
        .prop_map(|(metadata, spec)| json!({"metadata": metadata, "spec": spec}))
}

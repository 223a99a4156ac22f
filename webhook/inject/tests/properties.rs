//! Properties of the injection of generated objects.
#![allow(clippy::unwrap_used)]

#[path = "properties/affinity.rs"]
mod affinity;
mod support;

use proptest::prelude::*;
use serde_json::{Value, json};
use support::{MSPTI, TASKD, apply, run, undone};
use swansong_inject::policy::{
    DumpPolicy, ManagerPolicy, NodeReadiness, Policy, PreloadOrder, PreloadValueFrom, ResetConfigMount,
};
use swansong_inject::workload::WorkloadKind;
use swansong_inject::{inject, undo};

/// Any JSON, for unknown fields.
fn any_json() -> impl Strategy<Value = Value> {
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
fn put(object: &mut Value, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[key] = value;
    }
}

fn maybe(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(Value::Null)), 6 => value.prop_map(Some)]
}

fn env_entry() -> impl Strategy<Value = Value> {
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

fn container(index: usize) -> impl Strategy<Value = Value> {
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

fn annotations(trigger: bool) -> impl Strategy<Value = Option<Value>> {
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

fn metadata(annotations: impl Strategy<Value = Option<Value>>) -> impl Strategy<Value = Value> {
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
fn spec() -> BoxedStrategy<Value> {
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

fn a_pod() -> impl Strategy<Value = (WorkloadKind, Value)> {
    (metadata(annotations(true)), spec()).prop_map(|(metadata, spec)| {
        (WorkloadKind::Pod, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    })
}

fn template() -> impl Strategy<Value = Value> {
    let own = prop_oneof![3 => Just(None), 1 => Just(Some(Value::Null)), 1 => Just(Some(json!({}))), 1 => annotations(false)];
    (maybe(metadata(own)), spec()).prop_map(|(metadata, spec)| {
        let mut template = json!({"spec": spec});
        put(&mut template, "metadata", metadata);
        template
    })
}

fn a_job() -> impl Strategy<Value = (WorkloadKind, Value)> {
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

fn an_object() -> impl Strategy<Value = (WorkloadKind, Value)> {
    prop_oneof![a_pod(), a_job()]
}

fn a_policy() -> impl Strategy<Value = Policy> {
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

/// The user's own preloads that a container ends up with.
fn effective_preload(container: &Value) -> Vec<String> {
    let value = support::env_of(container, "LD_PRELOAD").and_then(Value::as_str).unwrap_or_default();
    swansong_api::preload::entries(value)
        .map(str::to_owned)
        .filter(|token| ![MSPTI, TASKD, "/opt/libtaskd.so"].contains(&token.as_str()))
        .filter(|token| !token.starts_with("/opt/swansong/"))
        .collect()
}

fn template_without_strategy() -> impl Strategy<Value = Value> {
    (metadata(Just(Some(json!({})))), spec())
        .prop_map(|(metadata, spec)| json!({"metadata": metadata, "spec": spec}))
}

/// The Pod that ascend-operator creates of a job's only template.
fn operator_pod(job: &Value, replica: &str) -> Value {
    let mut pod = job["spec"]["replicaSpecs"][replica]["template"].clone();
    pod["kind"] = json!("Pod");
    pod["metadata"]["labels"] = json!({"replica-type": replica.to_lowercase()});
    for container in pod["spec"]["containers"].as_array_mut().unwrap() {
        if container["env"].is_null() {
            container["env"] = json!([]);
        }
        container["env"].as_array_mut().unwrap().push(json!({"name": "MASTER_ADDR", "value": "10.0.0.1"}));
    }
    pod
}

/// Copies what an injection copies from a job.
fn copy_annotations(job: &Value, template: &mut Value) {
    for (key, value) in job["metadata"]["annotations"].as_object().into_iter().flatten() {
        if key == "recover-strategy" {
            let raw = value.as_str().unwrap();
            let normalised = swansong_api::strategy::Strategies::parse(raw).normalised();
            template["metadata"]["annotations"][key] = json!(normalised);
        } else if key.starts_with("swansong.dev/") {
            template["metadata"]["annotations"][key] = value.clone();
        }
    }
}

/// The spec of a Pod with its variables by name, and the launcher hook.
fn comparable(mut pod: Value) -> Value {
    let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.retain(|key, _| key.starts_with("swansong.dev/launcher-hook"));
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            if let Some(env) = container["env"].as_array_mut() {
                env.sort_by_key(|entry| entry["name"].to_string());
            }
        }
    }
    pod
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_second_injection_changes_nothing_in_any_object((kind, object) in an_object(), policy in a_policy()) {
        let first = run(kind, &object, &policy);
        let second = run(kind, &first.object, &policy);
        prop_assert!(second.outcome.operations.is_empty(), "{:#?}", second.outcome.operations);
        prop_assert_eq!(first.outcome.skip, second.outcome.skip);
    }

    #[test]
    fn the_undo_is_exact((kind, object) in an_object(), policy in a_policy()) {
        let injected = run(kind, &object, &policy);
        prop_assert_eq!(undone(kind, &injected.object), object);
    }

    #[test]
    fn only_swansongs_fields_are_changed((kind, object) in an_object(), policy in a_policy()) {
        for path in run(kind, &object, &policy).paths() {
            let lists = ["/env", "/ports", "/volumeMounts"];
            let ours = path.contains("/containers/") && lists.iter().any(|list| path.contains(list))
                || path.contains("/spec/volumes")
                || path.contains("/spec/initContainers")
                || path.ends_with("/spec/terminationGracePeriodSeconds")
                || path.ends_with("/metadata")
                || path.contains("/metadata/annotations")
                || path.ends_with("/spec/affinity")
                || path.contains("/spec/affinity/nodeAffinity")
                || path.starts_with("/metadata/labels");
            prop_assert!(ours, "{path}");
        }
    }

    /// A template injected under one configuration, and its Pods under the next.
    #[test]
    fn the_undo_is_exact_after_the_configuration_changed(
        (kind, object) in an_object(),
        policy in a_policy(),
        later in affinity::node_readiness(),
    ) {
        let injected = run(kind, &object, &policy).object;
        let later = Policy { node_readiness: later, ..policy };
        let again = run(kind, &injected, &later).object;
        prop_assert_eq!(undone(kind, &again), object);
    }

    #[test]
    fn affinity_restricts_a_pod_to_ready_nodes_only_if_required(
        (kind, object) in a_pod(),
        policy in a_policy(),
        node in affinity::node(),
    ) {
        let injected = run(kind, &object, &policy);
        let before = affinity::may_run_on(&object["spec"], &node);
        let after = affinity::may_run_on(&injected.object["spec"], &node);
        let asked = injected.outcome.operations.iter().any(|operation| operation.path.contains("/affinity"));
        if policy.node_readiness == NodeReadiness::Require && asked && !affinity::has_readiness_term(&object) {
            prop_assert_eq!(after, before && node["labels"]["swansong.dev/dump-ready"] == "true");
        } else if policy.node_readiness == NodeReadiness::Require {
            prop_assert!(before || !after, "a node the user excluded");
        } else {
            prop_assert_eq!(after, before);
        }
    }

    /// A Pod that got a part from its job's template is the same as one that got everything in its own review.
    #[test]
    fn pods_of_injected_jobs_equal_injected_pods(
        template in template_without_strategy(),
        job in metadata(annotations(true)),
        replica in prop_oneof![Just("Master"), Just("Worker")],
        policy in a_policy(),
    ) {
        let job = json!({"kind": "AscendJob", "metadata": job, "spec": {"replicaSpecs": {replica: {"template": template}}}});
        let injected = run(WorkloadKind::AscendJob, &job, &policy);
        if injected.outcome.operations.is_empty() {
            // For example, the job names containers that the template doesn't have. Its Pods don't get the annotation.
            return Ok(());
        }
        let pod_of = |job: &Value| operator_pod(job, replica);
        let by_job = run(WorkloadKind::Pod, &pod_of(&injected.object), &policy).object;
        let mut copied = job.clone();
        copy_annotations(&job, &mut copied["spec"]["replicaSpecs"][replica]["template"]);
        let directly = run(WorkloadKind::Pod, &pod_of(&copied), &policy).object;
        prop_assert_eq!(comparable(by_job), comparable(directly));
    }

    #[test]
    fn preloads_of_the_user_keep_their_order((kind, object) in a_pod(), policy in a_policy()) {
        let injected = run(kind, &object, &policy).object;
        let (before, after) = (&object["spec"]["containers"], &injected["spec"]["containers"]);
        for (before, after) in before.as_array().unwrap().iter().zip(after.as_array().unwrap()) {
            let former = support::env_of(before, "LD_PRELOAD");
            if former.is_some_and(Value::is_object) {
                let kept = support::env_of(after, "SWANSONG_ORIGINAL_LD_PRELOAD");
                prop_assert!(support::env_of(after, "LD_PRELOAD") == former || kept == former);
            } else {
                prop_assert_eq!(effective_preload(before), effective_preload(after));
            }
        }
    }

    #[test]
    fn additions_are_valid_to_the_api_server((kind, object) in a_pod(), policy in a_policy()) {
        let injected = run(kind, &object, &policy);
        for operation in injected.outcome.operations.iter().filter(|operation| operation.path.contains("/env/")) {
            if let Some(value) = &operation.value {
                let entry: Value = serde_json::from_str(value.get()).unwrap();
                prop_assert!(!(entry.is_object() && entry.get("value").is_some() && entry.get("valueFrom").is_some()));
            }
        }
        let host_network = object["spec"]["hostNetwork"] == true;
        let ports = |object: &Value| -> Vec<Value> {
            let containers = object["spec"]["containers"].as_array().unwrap();
            let all = containers.iter().filter_map(|container| container["ports"].as_array()).flatten();
            all.filter(|port| port["protocol"] != "UDP").map(|port| port["containerPort"].clone()).collect()
        };
        if host_network {
            let (before, after) = (ports(&object), ports(&injected.object));
            for (index, port) in after.iter().enumerate() {
                let known = before.iter().filter(|other| *other == port).count();
                let now = after.iter().filter(|other| *other == port).count();
                prop_assert!(now <= known.max(1), "port {port} at {index} is declared twice");
            }
        }
    }

    #[test]
    fn no_json_panics(object in any_json(), kind in 0..7usize) {
        let kinds = [WorkloadKind::Pod, WorkloadKind::AscendJob, WorkloadKind::VolcanoJob, WorkloadKind::Deployment,
                     WorkloadKind::StatefulSet, WorkloadKind::Job, WorkloadKind::CronJob];
        let _ = inject(kinds[kind], &object.to_string(), &Policy::default());
        let _ = undo::uninject(kinds[kind], &object.to_string());
    }

    /// Any one field of a good object replaced by anything: a valid patch or an error that names the field.
    #[test]
    fn a_wrong_type_anywhere_never_panics((kind, object) in an_object(), at in any::<prop::sample::Index>(), wrong in any_json()) {
        let mut pointers = Vec::new();
        collect_pointers(&object, String::new(), &mut pointers);
        let mut broken = object;
        *broken.pointer_mut(at.get(pointers.as_slice()).as_str()).unwrap() = wrong;
        match inject(kind, &broken.to_string(), &Policy::default()) {
            Ok(outcome) => { apply(&broken, &outcome.operations); }
            Err(error) => prop_assert!(!error.field.is_empty() && !error.message.is_empty()),
        }
        if let Ok(undo::Undo { operations, .. }) = undo::uninject(kind, &broken.to_string()) {
            apply(&broken, &operations);
        }
    }

    #[test]
    fn broken_text_never_panics(text in ".{0,200}") {
        let _ = inject(WorkloadKind::Pod, &text, &Policy::default());
        let _ = inject(WorkloadKind::AscendJob, &text, &Policy::default());
    }
}

fn collect_pointers(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let token = swansong_inject::operation::escape(key);
                collect_pointers(member, format!("{pointer}/{token}"), pointers);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_pointers(item, format!("{pointer}/{index}"), pointers);
            }
        }
        _ => {}
    }
    pointers.push(pointer);
}

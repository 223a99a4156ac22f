//! Properties of the injection of generated objects.
#![allow(clippy::unwrap_used)]

#[path = "properties/affinity.rs"]
mod affinity;
#[path = "properties/generators.rs"]
mod generators;
mod support;

use generators::{a_pod, a_policy, an_object, annotations, any_json, metadata, template_without_strategy};
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{MSPTI, TASKD, apply, run, undone};
use swansong_inject::policy::{NodeReadiness, Policy};
use swansong_inject::workload::WorkloadKind;
use swansong_inject::{inject, undo};

/// The user's own preloads that a container ends up with.
fn effective_preload(container: &Value) -> Vec<String> {
    let value = support::env_of(container, "LD_PRELOAD").and_then(Value::as_str).unwrap_or_default();
    swansong_api::preload::entries(value)
        .map(str::to_owned)
        .filter(|token| ![MSPTI, TASKD, "/opt/libtaskd.so"].contains(&token.as_str()))
        .filter(|token| !token.starts_with("/opt/swansong/"))
        .collect()
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

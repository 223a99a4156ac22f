//! What the controller's account may do.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use swansong_reset_config::config_map;
use swansong_reset_config::job::{Job, JobKind};
use swansong_testcluster::eventually;

use super::{COMPONENT, NAMESPACE, STOLEN, TIMEOUT, rig};
use crate::support::REPOSITORY;

/// A deviation from what the controller creates.
type Change<'c> = &'c dyn Fn(&mut Value);

/// Resources and verbs of each rule of the controller's role.
pub(super) fn granted_rules() -> Vec<(Vec<String>, Vec<String>)> {
    let file = Path::new(REPOSITORY).join("manifests/base/reset-config.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap();
    let role = documents.into_iter().find(|document| document["kind"] == "ClusterRole").unwrap();
    let texts = |list: &Value| serde_json::from_value(list.clone()).unwrap();
    role["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (texts(&rule["resources"]), texts(&rule["verbs"])))
        .collect()
}

/// RBAC grants `create` of all ConfigMaps; the policy restricts it.
#[tokio::test]
async fn stolen_token_creates_nothing_but_what_the_controller_does() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace(STOLEN).await.unwrap();
    let thief = rig.cluster.client_as(NAMESPACE, "swansong-webhook").await.unwrap();
    let job: ObjectMeta =
        serde_json::from_value(json!({"name": "j", "namespace": namespace, "uid": "u"})).unwrap();
    let job = Job { kind: JobKind::AscendJob, metadata: &job, is_finished: false };
    let allowed = serde_json::to_value(config_map::new(&job)).unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(thief.clone(), &namespace);
    let attempt = async |change: Change<'_>| {
        let mut object = allowed.clone();
        change(&mut object);
        let object: ConfigMap = serde_json::from_value(object).unwrap();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        config_maps.create(&dry_run, &object).await.map(drop).map_err(|error| error.to_string())
    };
    eventually("the policy to be in force", TIMEOUT, || async {
        let refused = attempt(&|object| object["metadata"]["name"] = json!("thief")).await;
        if refused.is_err() { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await
    .unwrap();
    attempt(&|_| ()).await.expect("what the controller creates");
    let changes: [(&str, Change<'_>); 13] = [
        ("another name", &|object| object["metadata"]["name"] = json!("kube-root-ca.crt")),
        ("another job's", &|object| object["metadata"]["name"] = json!("reset-config-k")),
        ("no owner", &|object| object["metadata"]["ownerReferences"] = json!([])),
        ("a second owner", &|object| {
            let mut owner = object["metadata"]["ownerReferences"][0].clone();
            owner["uid"] = json!("v");
            object["metadata"]["ownerReferences"].as_array_mut().unwrap().push(owner);
        }),
        ("another kind's", &|object| object["metadata"]["ownerReferences"][0]["kind"] = json!("Pod")),
        ("a controller", &|object| object["metadata"]["ownerReferences"][0]["controller"] = json!(true)),
        ("no label", &|object| object["metadata"]["labels"] = json!({})),
        ("a label", &|object| object["metadata"]["labels"]["mc-consumer-publicfault"] = json!("true")),
        ("another annotation", &|object| object["metadata"]["annotations"]["a"] = json!("b")),
        ("no annotation", &|object| object["metadata"]["annotations"] = json!({})),
        ("a finalizer", &|object| object["metadata"]["finalizers"] = json!(["example.com/f"])),
        ("further data", &|object| object["data"]["config.yaml"] = json!("x")),
        ("other data", &|object| object["data"]["reset.json"] = json!("{}")),
    ];
    for (what, change) in changes {
        let message = attempt(change).await.expect_err(what);
        assert!(message.contains(COMPONENT) && message.contains("reset-config-<job>"), "{what}: {message}");
    }

    let event = |component: &str, about: Value| -> Event {
        let event = json!({
            "metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "message": "m", "type": "Normal",
            "source": {"component": component},
        });
        serde_json::from_value(event).unwrap()
    };
    let job = json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "j", "namespace": namespace});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "j", "namespace": namespace});
    let events: Api<Event> = Api::namespaced(thief, &namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    events.create(&dry_run, &event(COMPONENT, job.clone())).await.expect("an Event of the controller");
    for (what, event) in [("of the kubelet", event("kubelet", job)), ("about a Pod", event(COMPONENT, pod))] {
        let message = events.create(&dry_run, &event).await.expect_err(what).to_string();
        assert!(message.contains("no Events but its own"), "{what}: {message}");
    }
    // RBAC denies the rest.
    for (what, refusal) in [
        (
            "changing",
            config_maps.patch("x", &PatchParams::default(), &Patch::Merge(json!({}))).await.map(drop),
        ),
        ("deleting", config_maps.delete("x", &DeleteParams::default()).await.map(drop)),
        ("reading Events", events.list(&ListParams::default()).await.map(drop)),
    ] {
        let message = refusal.expect_err(what).to_string();
        assert!(message.contains("cannot"), "{what}: {message}");
    }
}

//! The RBAC rules of the manifests are exactly those that the webhook uses, by the audit log.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use swansong_clusterd::reset_config::name_for;
use swansong_demo::definitions;
use swansong_testcluster::{AuditEvent, eventually};

use crate::site::{NAMESPACE, SECRET, Site, TIMEOUT, bundles, manifests, site};

const ACCOUNT: &str = "system:serviceaccount:swansong-system:swansong-webhook";

/// Namespace (empty for cluster-scoped), verb, group and resource, and name (empty if the rule has none).
type Right = (String, String, String, String);

fn right(namespace: &str, verb: &str, group: &str, resource: &str, name: &str) -> Right {
    // The authorizer doesn't receive the name of an object that is created.
    let name = if verb == "create" { "" } else { name };
    (namespace.to_owned(), verb.to_owned(), format!("{group}/{resource}"), name.to_owned())
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The rights that the manifests grant.
async fn granted(site: &Site<'_>) -> BTreeSet<Right> {
    let folder = manifests("base");
    let rendered = site.cluster.kubectl(&["kustomize".as_ref(), folder.path().as_os_str()]).await.unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let mut rights = BTreeSet::new();
    for role in objects.iter().filter(|object| object["kind"] == "Role" || object["kind"] == "ClusterRole") {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            let names: Vec<&str> = texts(&rule["resourceNames"]).collect();
            let names = if names.is_empty() { vec![""] } else { names };
            for verb in texts(&rule["verbs"]) {
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        rights.extend(names.iter().map(|name| right(namespace, verb, group, resource, name)));
                    }
                }
            }
        }
    }
    rights
}

/// All requests of Swansong so far.
fn requests(site: &Site<'_>) -> Vec<AuditEvent> {
    let events = site.cluster.audit_events().unwrap().map(Result::unwrap);
    events.filter(|event| event.user.username == ACCOUNT).collect()
}

fn used(event: &AuditEvent) -> Option<Right> {
    let object = event.object_ref.as_ref()?;
    assert_eq!(object.subresource, "", "{event:?}");
    // The reset-config controller reads the whole cluster.
    if ["ascendjobs", "jobs", "configmaps", "namespaces", "events"].contains(&object.resource.as_str()) {
        return Some(right("", &event.verb, &object.api_group, &object.resource, ""));
    }
    Some(right(&object.namespace, &event.verb, &object.api_group, &object.resource, &object.name))
}

/// Removes the caBundle of each webhook.
pub(crate) async fn empty_ca_bundle(site: &Site<'_>) {
    let configuration = site.get("mutatingwebhookconfiguration/swansong").await.unwrap();
    let remove =
        |index: usize| json!({ "op": "remove", "path": format!("/webhooks/{index}/clientConfig/caBundle") });
    let patch: Vec<Value> = (0..bundles(&configuration).count()).map(remove).collect();
    let patch = json!(patch).to_string();
    site.kubectl(&["patch", "mutatingwebhookconfiguration/swansong", "--type=json", "--patch", &patch]).await;
}

/// Creates and deletes jobs of both kinds that ask for a dump, one of them with an unusable ConfigMap.
async fn guarded_jobs(site: &Site<'_>) {
    definitions::apply(site.cluster, &definitions::file()).await.unwrap();
    let namespace = site.cluster.namespace("guarded").await.unwrap();
    let metadata = |name: &str| json!({ "name": name, "namespace": namespace, "annotations": { "recover-strategy": "dump" } });
    let template = json!({ "spec": { "containers": [{ "name": "ascend", "image": "x" }] } });
    let ascend_job = |name: &str| {
        json!({
            "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "metadata": metadata(name),
            "spec": { "replicaSpecs": { "Master": { "replicas": 1, "template": template } } },
        })
    };
    let volcano_job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata("volcano"),
        "spec": { "tasks": [{ "name": "t", "replicas": 1, "template": template }] },
    });
    let broken = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "reset-config-broken", "namespace": namespace }, "data": { "reset.json": "" },
    });
    let objects = [broken, ascend_job("broken"), ascend_job("ascend"), volcano_job];
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    site.cluster.apply(&list.to_string()).await.unwrap();

    let config_maps: Api<ConfigMap> = Api::namespaced(site.client.clone(), &namespace);
    for job in ["ascend", "volcano"] {
        let name = name_for(job);
        eventually("the reset ConfigMap", TIMEOUT, || config_maps.get(&name)).await.unwrap();
    }
    let events: Api<Event> = Api::namespaced(site.client.clone(), &namespace);
    let about = ListParams::default().fields("involvedObject.name=broken,reason=ResetConfigUnusable");
    eventually("an Event about the unusable one", TIMEOUT, || async {
        let found = events.list(&about).await.map_err(|error| error.to_string())?;
        if found.items.is_empty() { Err("none yet".to_owned()) } else { Ok(()) }
    })
    .await
    .unwrap();

    // The garbage collector deletes them by their owner reference.
    let jobs = ["ascendjobs.mindxdl.gitee.com/ascend", "jobs.batch.volcano.sh/volcano"];
    site.kubectl(&[&["delete", "--namespace", &namespace][..], &jobs[..]].concat()).await;
    for job in ["ascend", "volcano"] {
        eventually("the ConfigMap is deleted with its job", TIMEOUT, || async {
            match config_maps.get_opt(&name_for(job)).await {
                Ok(None) => Ok(()),
                Ok(Some(_)) => Err("exists".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn every_right_is_used_and_none_is_missing() {
    let Some(site) = site().await else { return };
    site.install("base").await;
    let mut ca = site.only_ca("").await;
    let before = requests(&site).len();

    // Creation and repair: no Secret, a damaged key, an empty caBundle.
    site.kubectl(&["delete", "secret", SECRET]).await;
    ca = site.only_ca(&ca).await;
    let damage = json!({ "data": { "ca.key": "bm8ga2V5" } }).to_string();
    site.kubectl(&["patch", "secret", SECRET, "--type=merge", "--patch", &damage]).await;
    ca = site.only_ca(&ca).await;
    empty_ca_bundle(&site).await;
    assert_eq!(site.only_ca("").await, ca);
    // Requested rotations, and replicas that restart.
    site.rotate_leaf().await;
    site.rotate_ca().await;
    guarded_jobs(&site).await;
    site.roll().await;

    let requests_made = requests(&site);
    let refused = |event: &&AuditEvent| {
        event.response_status.as_ref().is_some_and(|status| [401, 403].contains(&status.code))
    };
    assert_eq!(
        requests_made.iter().filter(refused).map(|event| &event.request_uri).collect::<Vec<_>>(),
        [""; 0]
    );
    // No requests for groups; the version shows whether sidecars are supported.
    let without_object =
        requests_made.iter().filter(|event| event.object_ref.is_none()).map(|event| &event.request_uri);
    assert_eq!(without_object.filter(|uri| *uri != "/version").collect::<Vec<_>>(), [""; 0]);
    let used: BTreeSet<Right> = requests_made[before..].iter().filter_map(used).collect();
    assert_eq!(used, granted(&site).await, "used, and granted");
    assert!(used.iter().all(|(namespace, ..)| namespace.is_empty() || namespace == NAMESPACE));
}

//! The rights of the manifests are those that are used, all of them and no others: by the audit log of a whole life.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use swansong_clusterd::reset_config::name_for;
use swansong_demo::definitions;
use swansong_testcluster::{AuditEvent, eventually};

use crate::site::{NAMESPACE, PATIENCE, SECRET, Site, bundles, manifests, site};

const ACCOUNT: &str = "system:serviceaccount:swansong-system:swansong-webhook";

/// Namespace (empty for the cluster), verb, group and resource, and name (empty for what can't be named).
type Right = (String, String, String, String);

fn right(namespace: &str, verb: &str, group: &str, resource: &str, name: &str) -> Right {
    // The name of what is yet to be created isn't told to the authorizer.
    let name = if verb == "create" { "" } else { name };
    (namespace.to_owned(), verb.to_owned(), format!("{group}/{resource}"), name.to_owned())
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// What the manifests grant, one by one.
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

/// Everything that Swansong asked the API server for so far.
fn asked(site: &Site<'_>) -> Vec<AuditEvent> {
    let events = site.cluster.audit_events().unwrap().map(Result::unwrap);
    events.filter(|event| event.user.username == ACCOUNT).collect()
}

fn used(event: &AuditEvent) -> Option<Right> {
    let object = event.object_ref.as_ref()?;
    assert_eq!(object.subresource, "", "{event:?}");
    // The job guard's are of the whole cluster; what it reads where is up to those who make jobs.
    if ["ascendjobs", "jobs", "configmaps", "namespaces", "events"].contains(&object.resource.as_str()) {
        return Some(right("", &event.verb, &object.api_group, &object.resource, ""));
    }
    Some(right(&object.namespace, &event.verb, &object.api_group, &object.resource, &object.name))
}

/// The caBundle of each webhook as if someone had emptied it.
pub(crate) async fn empty_ca_bundle(site: &Site<'_>) {
    let configuration = site.get("mutatingwebhookconfiguration/swansong").await.unwrap();
    let remove =
        |index: usize| json!({ "op": "remove", "path": format!("/webhooks/{index}/clientConfig/caBundle") });
    let patch: Vec<Value> = (0..bundles(&configuration).count()).map(remove).collect();
    let patch = json!(patch).to_string();
    site.kubectl(&["patch", "mutatingwebhookconfiguration/swansong", "--type=json", "--patch", &patch]).await;
}

/// Jobs of both kinds that ask for a dump, and one whose ConfigMap is of no use: what comes of them while they live, and
/// when they are deleted.
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
        eventually("the reset ConfigMap", PATIENCE, || config_maps.get(&name)).await.unwrap();
    }
    let events: Api<Event> = Api::namespaced(site.client.clone(), &namespace);
    let about = ListParams::default().fields("involvedObject.name=broken,reason=ResetConfigUnusable");
    eventually("an Event about the unusable one", PATIENCE, || async {
        let found = events.list(&about).await.map_err(|error| error.to_string())?;
        if found.items.is_empty() { Err("none yet".to_owned()) } else { Ok(()) }
    })
    .await
    .unwrap();

    // The garbage collector's work, by the owner that the guard named.
    let jobs = ["ascendjobs.mindxdl.gitee.com/ascend", "jobs.batch.volcano.sh/volcano"];
    site.kubectl(&[&["delete", "--namespace", &namespace][..], &jobs[..]].concat()).await;
    for job in ["ascend", "volcano"] {
        eventually("the ConfigMap to go with its job", PATIENCE, || async {
            match config_maps.get_opt(&name_for(job)).await {
                Ok(None) => Ok(()),
                Ok(Some(_)) => Err("still there".to_owned()),
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
    let mut authority = site.only_authority("").await;
    let before = asked(&site).len();

    // Creation and recovery: there is no Secret; the key in it is damaged; the caBundle is emptied.
    site.kubectl(&["delete", "secret", SECRET]).await;
    authority = site.only_authority(&authority).await;
    let damage = json!({ "data": { "ca.key": "bm8ga2V5" } }).to_string();
    site.kubectl(&["patch", "secret", SECRET, "--type=merge", "--patch", &damage]).await;
    authority = site.only_authority(&authority).await;
    empty_ca_bundle(&site).await;
    assert_eq!(site.only_authority("").await, authority);
    // Changes by hand, and replicas that come and go.
    site.rotate_leaf().await;
    site.rotate_authority().await;
    guarded_jobs(&site).await;
    site.roll().await;

    let asked = asked(&site);
    let refused = |event: &&AuditEvent| {
        event.response_status.as_ref().is_some_and(|status| [401, 403].contains(&status.code))
    };
    assert_eq!(asked.iter().filter(refused).map(|event| &event.request_uri).collect::<Vec<_>>(), [""; 0]);
    // Beside objects an account might ask for versions and groups; Swansong doesn't.
    let beside = asked.iter().filter(|event| event.object_ref.is_none()).map(|event| &event.request_uri);
    assert_eq!(beside.collect::<Vec<_>>(), [""; 0]);
    let used: BTreeSet<Right> = asked[before..].iter().filter_map(used).collect();
    assert_eq!(used, granted(&site).await, "used, and granted");
    assert!(used.iter().all(|(namespace, ..)| namespace.is_empty() || namespace == NAMESPACE));
}

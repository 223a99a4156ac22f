//! The rights of the manifests are those that are used, all of them and no others: by the audit log of a whole life.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use swansong_testcluster::AuditEvent;

use crate::site::{NAMESPACE, SECRET, Site, bundles, manifests, site};

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

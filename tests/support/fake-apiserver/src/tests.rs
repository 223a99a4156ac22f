//! The server as clients see it.

use futures::{StreamExt, pin_mut};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use super::FakeApiServer;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "a": "1" } })).expect("an object")
}

fn code<T: std::fmt::Debug>(outcome: kube::Result<T>) -> u16 {
    match outcome.expect_err("refused") {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn writes_conflict_by_resource_version_and_failures_come_in_order() {
    let server = FakeApiServer::new();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client("default"));
    let params = PostParams::default();
    let first = api.create(&params, &config_map("a")).await.expect("created");
    assert_eq!(code(api.create(&params, &config_map("a")).await), 409);

    let patch = Patch::Merge(json!({ "data": { "b": "2" } }));
    let second = api.patch("a", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(second.data.as_ref().map(std::collections::BTreeMap::len), Some(2));
    assert_eq!(code(api.replace("a", &params, &first).await), 409);
    api.replace("a", &params, &second).await.expect("the latest version");

    server.fail(&Method::GET, 500, 1);
    assert_eq!(code(api.get("a").await), 500);
    assert!(api.get_opt("none").await.expect("no error").is_none());
    api.delete("a", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(api.list(&ListParams::default()).await.expect("a list").items.len(), 0);
    assert_eq!(server.history("/api/v1/namespaces/default/configmaps/a").len(), 4);
}

#[tokio::test]
async fn a_watch_reports_changes_after_a_list() {
    let server = FakeApiServer::new();
    let api: Api<ConfigMap> = Api::all(server.client("default"));
    server.put("/api/v1/namespaces/one/configmaps/a", json!({ "metadata": { "name": "a" } }));
    let list = api.list(&ListParams::default()).await.expect("a list");
    assert_eq!(list.items.len(), 1);
    let version = list.metadata.resource_version.expect("a version");
    let events = api.watch(&WatchParams::default(), &version).await.expect("a watch");
    pin_mut!(events);
    server.put("/api/v1/namespaces/two/configmaps/b", json!({ "metadata": { "name": "b" } }));
    server.delete("/api/v1/namespaces/one/configmaps/a");
    let event = events.next().await.expect("an event").expect("no error");
    assert!(matches!(&event, WatchEvent::Added(object) if object.metadata.name.as_deref() == Some("b")));
    let event = events.next().await.expect("an event").expect("no error");
    assert!(matches!(&event, WatchEvent::Deleted(object) if object.metadata.name.as_deref() == Some("a")));
}

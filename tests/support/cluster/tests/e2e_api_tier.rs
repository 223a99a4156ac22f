//! The tier without a node.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use swansong_testcluster::{Error, Tier, eventually, shared};

fn named<T: Default>(name: &str, set: impl FnOnce(&mut T, ObjectMeta)) -> T {
    let mut object = T::default();
    set(&mut object, ObjectMeta { name: Some(name.to_owned()), ..Default::default() });
    object
}

#[tokio::test]
async fn objects_are_stored_and_requests_recorded() {
    let cluster = shared(Tier::Api).await.unwrap();
    let namespace = cluster.namespace("stored").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let map = named("a", |map: &mut ConfigMap, metadata| map.metadata = metadata);
    maps.create(&PostParams::default(), &map).await.unwrap();
    maps.get("a").await.unwrap();

    eventually("the creation is in the audit log", Duration::from_secs(5), || async {
        let log = cluster.audit_log().unwrap();
        let creation = log.iter().find(|event| {
            let object = event.object_ref.clone().unwrap_or_default();
            event.verb == "create" && object.resource == "configmaps" && object.namespace == namespace
        });
        let creation = creation.ok_or("it isn't")?;
        assert_eq!(creation.user.username, "admin");
        assert_eq!(creation.response_status.as_ref().unwrap().code, 201);
        assert_eq!(creation.request_object.as_ref().unwrap()["metadata"]["name"], "a");
        Ok::<_, &str>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn kubectl_sees_a_release_version() {
    let cluster = shared(Tier::Api).await.unwrap();
    let versions = cluster.kubectl(&["version", "--output=json"]).await.unwrap();
    let versions: serde_json::Value = serde_json::from_str(&versions).unwrap();
    assert_eq!(versions["serverVersion"]["gitVersion"], versions["clientVersion"]["gitVersion"]);
    assert!(versions["serverVersion"]["gitVersion"].as_str().unwrap().starts_with("v1."), "{versions}");
}

#[tokio::test]
async fn a_service_account_has_only_the_rights_it_was_given() {
    let cluster = shared(Tier::Api).await.unwrap();
    let namespace = cluster.namespace("rights").await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let account = named("unprivileged", |account: &mut ServiceAccount, metadata| account.metadata = metadata);
    accounts.create(&PostParams::default(), &account).await.unwrap();

    let client = cluster.client_as(&namespace, "unprivileged").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    match maps.get("a").await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 403),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cluster_without_a_node_says_so() {
    let cluster = shared(Tier::Api).await.unwrap();
    assert!(matches!(cluster.node_name(), Err(Error::NeedsNode(_))));
}

//! Whom the relay lets in, by the API server's word and with the rights that `manifests/relay` gives it.

use std::path::Path;

use serde_json::json;
use swansong_gateway::AUDIENCE;
use swansong_gateway::review::{ApiServer, Doorkeeper, Refused};
use swansong_testcluster::Cluster;

use crate::support::{REPOSITORY, create, rig};

const NAMESPACE: &str = "swansong-agent";
const POD: &str = "relay-test";
const NODE: &str = "relay-node";

async fn token(cluster: &Cluster, account: &str, audience: &str, bound: bool) -> String {
    let mut arguments = vec!["create", "token", account, "--namespace", NAMESPACE, "--audience", audience];
    if bound {
        arguments.extend(["--bound-object-kind", "Pod", "--bound-object-name", POD]);
    }
    cluster.kubectl(&arguments).await.unwrap().trim().to_owned()
}

/// `token` with another character in the midst of its signature. Not the last one: of that, base64 leaves four bits
/// unread, so one token in four would stay as it was.
fn changed(token: &str) -> String {
    let signature = token.rfind('.').unwrap() + 1;
    let middle = usize::midpoint(signature, token.len());
    let other = if token.as_bytes()[middle] == b'A' { "B" } else { "A" };
    format!("{}{other}{}", &token[..middle], &token[middle + 1..])
}

#[tokio::test]
async fn an_agents_token_names_its_node_and_no_other_token_is_taken() {
    let cluster = rig().await.cluster;
    for folder in ["manifests/agent", "manifests/relay"] {
        let folder = Path::new(REPOSITORY).join(folder);
        cluster.kubectl(&["apply".as_ref(), "--kustomize".as_ref(), folder.as_os_str()]).await.unwrap();
    }
    let client = cluster.client().await.unwrap();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"unschedulable": true},
    });
    create(&client, "", node).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD},
        "spec": {"nodeName": NODE, "serviceAccountName": "swansong-agent", "containers": [{"name": "agent", "image": "x"}]},
    });
    create(&client, NAMESPACE, pod).await.unwrap();

    let relay = cluster.client_as(NAMESPACE, "swansong-relay").await.unwrap();
    let door = Doorkeeper::new(ApiServer::new(relay), NAMESPACE, "swansong-agent");
    let agents = token(cluster, "swansong-agent", AUDIENCE, true).await;
    assert_eq!(door.node_of(&agents).await, Ok(NODE.to_owned()));

    let refused = [
        ("no node", token(cluster, "swansong-agent", AUDIENCE, false).await),
        (
            "another audience",
            token(cluster, "swansong-agent", "https://kubernetes.default.svc.cluster.local", true).await,
        ),
        ("another account", token(cluster, "swansong-relay", AUDIENCE, false).await),
        ("changed", changed(&agents)),
        ("nonsense", "nonsense".to_owned()),
    ];
    for (what, token) in refused {
        let said = door.node_of(&token).await;
        assert!(matches!(said, Err(Refused::NotAnAgent(_))), "{what}: {said:?}");
    }
}

//! Which tokens the gateway accepts, with the rights that `manifests/gateway` gives it.

use std::path::Path;

use serde_json::json;
use swansong_gateway::AUDIENCE;
use swansong_gateway::auth::{AuthError, TokenAuthenticator};
use swansong_testcluster::Cluster;

use crate::support::{REPOSITORY, create, rig};

const NAMESPACE: &str = "swansong-agent";
const POD: &str = "gateway-test";
const NODE: &str = "gateway-node";

async fn token(cluster: &Cluster, account: &str, audience: &str, bound: bool) -> String {
    let mut arguments = vec!["create", "token", account, "--namespace", NAMESPACE, "--audience", audience];
    if bound {
        arguments.extend(["--bound-object-kind", "Pod", "--bound-object-name", POD]);
    }
    cluster.kubectl(&arguments).await.unwrap().trim().to_owned()
}

/// Changes a character in the middle of the signature. base64 ignores four bits of the last one, so one token in four
/// would remain valid.
fn tamper(token: &str) -> String {
    let signature = token.rfind('.').unwrap() + 1;
    let middle = usize::midpoint(signature, token.len());
    let other = if token.as_bytes()[middle] == b'A' { "B" } else { "A" };
    format!("{}{other}{}", &token[..middle], &token[middle + 1..])
}

#[tokio::test]
async fn accepts_only_tokens_of_agents() {
    let cluster = rig().await.cluster;
    for folder in ["manifests/agent", "manifests/gateway"] {
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

    let gateway = cluster.client_as(NAMESPACE, "swansong-gateway").await.unwrap();
    let authenticator = TokenAuthenticator::new(gateway, NAMESPACE, "swansong-agent");
    let valid = token(cluster, "swansong-agent", AUDIENCE, true).await;
    assert_eq!(authenticator.authenticate(&valid).await, Ok(NODE.to_owned()));

    let invalid = [
        ("no node", token(cluster, "swansong-agent", AUDIENCE, false).await),
        (
            "another audience",
            token(cluster, "swansong-agent", "https://kubernetes.default.svc.cluster.local", true).await,
        ),
        ("another account", token(cluster, "swansong-gateway", AUDIENCE, false).await),
        ("tampered", tamper(&valid)),
        ("nonsense", "nonsense".to_owned()),
    ];
    for (what, token) in invalid {
        let result = authenticator.authenticate(&token).await;
        assert!(matches!(result, Err(AuthError::NotAnAgent(_))), "{what}: {result:?}");
    }
}

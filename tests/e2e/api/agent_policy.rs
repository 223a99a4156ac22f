//! The rights of the agent's token by `manifests/agent` on a real API server.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use swansong_testcluster::{Cluster, eventually};
use tokio::sync::OnceCell;

use crate::support::{REPOSITORY, create, rig};

const NAMESPACE: &str = "swansong-agent";
const LABEL: &str = "swansong.dev/dump-ready";
const TAINT: &str = "swansong.dev/not-ready";

/// The agent's manifests applied, and agents on two nodes.
async fn agents() -> &'static Cluster {
    static READY: OnceCell<&Cluster> = OnceCell::const_new();
    *READY
        .get_or_init(|| async {
            let cluster = rig().await.cluster;
            let client = cluster.client().await.unwrap();
            let agent = Path::new(REPOSITORY).join("manifests/agent");
            cluster.kubectl(&["apply".as_ref(), "--kustomize".as_ref(), agent.as_os_str()]).await.unwrap();
            for name in ["policed-a", "policed-b"] {
                node(&client, name).await;
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                    "spec": {"nodeName": name, "serviceAccountName": "swansong-agent", "containers": [{"name": "agent", "image": "x"}]},
                });
                create(&client, NAMESPACE, pod).await.unwrap();
            }
            // The API server loads policies asynchronously, one by one.
            let unbound = cluster.client_as(NAMESPACE, "swansong-agent").await.unwrap();
            eventually("the policies are in force", Duration::from_secs(30), || async {
                let said = status(&unbound, "policed-a", own()).await.err().unwrap_or_default();
                let events = event(&unbound, "policed-a", "probe", "policed-a", &json!({})).await.err().unwrap_or_default();
                let both = said.contains("names no node") && events.contains("names no node");
                both.then_some(()).ok_or_else(|| format!("{said}; {events}"))
            })
            .await
            .unwrap();
            cluster
        })
        .await
}

/// A large and unschedulable Node.
async fn node(client: &Client, name: &str) {
    let labels: Value = (0..60)
        .map(|n| (format!("example.com/label-{n}"), json!("x")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"example.com/a": "a"}},
        "spec": {"unschedulable": true, "taints": [
            {"key": "huawei.com/Ascend910", "effect": "NoSchedule"},
            {"key": "example.com/b", "value": "b", "effect": "NoExecute"},
        ]},
    });
    create(client, "", node).await.unwrap();
    let images: Vec<_> = (0..50)
        .map(|n| json!({"names": [format!("registry.example/{}:{n}", "x".repeat(200)), format!("registry.example/x@sha256:{n:064}")], "sizeBytes": n}))
        .collect();
    let conditions: Vec<_> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "KernelDeadlock"]
        .map(|kind| json!({"type": kind, "status": "False", "reason": "R", "message": "m".repeat(300)}))
        .into();
    let status = json!({"status": {"images": images, "conditions": conditions, "capacity": {"huawei.com/Ascend910": "8", "cpu": "192"}}});
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
}

/// The agent's own update.
fn own() -> Value {
    json!({
        "metadata": {"labels": {LABEL: "true"}, "annotations": {"swansong.dev/boot-id": "b"}},
        "status": {"conditions": [{
            "type": "DumpReady", "status": "True", "reason": "ChecksPass", "message": "all is well",
            "lastHeartbeatTime": "2026-11-29T20:00:00Z", "lastTransitionTime": "2026-11-29T20:00:00Z",
        }]},
    })
}

async fn status(client: &Client, node: &str, patch: Value) -> Result<Node, String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let answer = nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await;
    answer.map_err(|error| error.to_string())
}

async fn merge(client: &Client, node: &str, patch: Value) -> Result<Node, String> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(|error| error.to_string())
}

async fn taints(client: &Client, node: &str) -> Vec<Value> {
    let nodes: Api<Node> = Api::all(client.clone());
    let taints = nodes.get(node).await.unwrap().spec.unwrap().taints.unwrap();
    taints.iter().map(|taint| serde_json::to_value(taint).unwrap()).collect()
}

fn with(taints: &[Value], taint: &Value) -> Vec<Value> {
    taints.iter().chain([taint]).cloned().collect()
}

/// Writes an Event in the name of `host`'s agent about a Node, with `changes`.
async fn event(
    client: &Client,
    host: &str,
    name: &str,
    about: &str,
    changes: &Value,
) -> Result<Event, String> {
    let mut event = json!({
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": about, "uid": about},
        "type": "Warning", "reason": "R", "message": "m", "source": {"component": "swansong-agent", "host": host},
    });
    for (key, value) in changes.as_object().unwrap() {
        event[key] = value.clone();
    }
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let event = serde_json::from_value(event).unwrap();
    events.create(&PostParams::default(), &event).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn an_agent_writes_what_is_its_own_on_its_node() {
    let cluster = agents().await;
    let agent = cluster.client_of_pod(NAMESPACE, "policed-b").await.unwrap();
    for _ in 0..2 {
        let node = status(&agent, "policed-b", own()).await.unwrap();
        assert_eq!(node.labels()[LABEL], "true");
        assert_eq!(node.annotations()["swansong.dev/boot-id"], "b");
        assert_eq!(node.status.unwrap().conditions.unwrap().len(), 6);
    }
    let before = taints(&agent, "policed-b").await;
    let ours = json!({"key": TAINT, "effect": "NoSchedule"});
    merge(&agent, "policed-b", json!({"spec": {"taints": with(&before, &ours)}})).await.unwrap();
    assert_eq!(taints(&agent, "policed-b").await, with(&before, &ours));
    merge(&agent, "policed-b", json!({"spec": {"taints": before}})).await.unwrap();
    assert_eq!(taints(&agent, "policed-b").await, before);

    event(&agent, "policed-b", "own-event", "policed-b", &json!({})).await.unwrap();
    let events: Api<Event> = Api::namespaced(agent.clone(), "default");
    let again = Patch::Merge(json!({"count": 2}));
    events.patch("own-event", &PatchParams::default(), &again).await.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "x", "uid": "u"});
    event(&agent, "policed-b", "of-a-pod", "", &json!({"involvedObject": pod})).await.unwrap();

    // Other users aren't restricted.
    let admin = cluster.client().await.unwrap();
    merge(&admin, "policed-b", json!({"metadata": {"labels": {"example.com/label-0": "y"}}})).await.unwrap();
}

#[tokio::test]
async fn an_agent_can_not_change_what_is_not_its_own() {
    let cluster = agents().await;
    let agent = cluster.client_of_pod(NAMESPACE, "policed-a").await.unwrap();
    let condition = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "True"}]}});
    let removed = json!({"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}});
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u"}]);
    for (what, patch, message) in [
        ("a label", json!({"metadata": {"labels": {"example.com/x": "y"}}}), "only label"),
        ("a label changed", json!({"metadata": {"labels": {"example.com/label-1": "y"}}}), "only label"),
        ("a label removed", json!({"metadata": {"labels": {"example.com/label-1": null}}}), "only label"),
        (
            "a role",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
            "only label",
        ),
        ("an invalid value", json!({"metadata": {"labels": {LABEL: "yes"}}}), "true, false or unknown"),
        ("an annotation", json!({"metadata": {"annotations": {"example.com/x": "y"}}}), "only annotation"),
        (
            "an annotation removed",
            json!({"metadata": {"annotations": {"example.com/a": null}}}),
            "only annotation",
        ),
        ("a finalizer", json!({"metadata": {"finalizers": ["example.com/f"]}}), "metadata"),
        ("an owner", json!({"metadata": {"ownerReferences": owner}}), "metadata"),
        ("a condition", condition("Ready"), "only condition"),
        ("a new condition", condition("Other"), "only condition"),
        ("no condition", removed, "only condition"),
        ("capacity", json!({"status": {"capacity": {"cpu": "1"}}}), "status"),
        ("a volume", json!({"status": {"volumesInUse": ["v"]}}), "status"),
    ] {
        let said = status(&agent, "policed-a", patch).await.expect_err(what);
        assert!(said.contains("swansong-agent-nodes") && said.contains(message), "{what}: {said}");
    }
    let all = taints(&agent, "policed-a").await;
    let evicting = json!({"key": TAINT, "effect": "NoExecute"});
    for (what, patch, message) in [
        ("a taint removed", json!({"spec": {"taints": all[1..]}}), "only taint"),
        ("all taints", json!({"spec": {"taints": null}}), "only taint"),
        (
            "a taint",
            json!({"spec": {"taints": with(&all, &json!({"key": "x", "effect": "NoSchedule"}))}}),
            "only taint",
        ),
        ("an eviction", json!({"spec": {"taints": with(&all, &evicting)}}), "only taint"),
        ("cordon", json!({"spec": {"unschedulable": null}}), "spec"),
        ("a provider", json!({"spec": {"providerID": "x"}}), "spec"),
        ("a label", json!({"metadata": {"labels": {"example.com/x": "y"}}}), "only label"),
    ] {
        let said = merge(&agent, "policed-a", patch).await.expect_err(what);
        assert!(said.contains("swansong-agent-nodes") && said.contains(message), "{what}: {said}");
    }
    let said = status(&agent, "policed-b", own()).await.expect_err("another node");
    assert!(said.contains("the agent of node policed-a may not change node policed-b"), "{said}");
    let said =
        merge(&agent, "policed-b", json!({"spec": {"unschedulable": null}})).await.expect_err("another node");
    assert!(said.contains("may not change node policed-b"), "{said}");

    let b = cluster.client_of_pod(NAMESPACE, "policed-b").await.unwrap();
    event(&b, "policed-b", "of-another", "policed-b", &json!({})).await.unwrap();
    let events: Api<Event> = Api::namespaced(agent.clone(), "default");
    let change = Patch::Merge(json!({"message": "x"}));
    let change = events.patch("of-another", &PatchParams::default(), &change).await;
    for (what, said) in [
        ("in another's name", event(&agent, "policed-b", "e1", "policed-a", &json!({})).await.err()),
        ("about another", event(&agent, "policed-a", "e2", "policed-b", &json!({})).await.err()),
        (
            "another source",
            event(
                &agent,
                "policed-a",
                "e3",
                "policed-a",
                &json!({"source": {"component": "kubelet", "host": "policed-a"}}),
            )
            .await
            .err(),
        ),
        ("another's event", change.err().map(|error| error.to_string())),
    ] {
        let said = said.expect(what);
        assert!(said.contains("swansong-agent-events"), "{what}: {said}");
    }
}

#[tokio::test]
async fn a_token_that_names_no_node_can_change_nothing() {
    let cluster = agents().await;
    let unbound = cluster.client_as(NAMESPACE, "swansong-agent").await.unwrap();
    let taint = json!({"spec": {"taints": null}});
    for (what, said) in [
        ("status", status(&unbound, "policed-a", own()).await.err()),
        ("taint", merge(&unbound, "policed-a", taint).await.err()),
        ("event", event(&unbound, "policed-a", "unbound", "policed-a", &json!({})).await.err()),
    ] {
        let said = said.expect(what);
        assert!(said.contains("the token names no node"), "{what}: {said}");
    }
}

/// RBAC denies everything else, with and without a node.
#[tokio::test]
async fn an_agent_may_do_nothing_else() {
    let cluster = agents().await;
    let agent = cluster.client_of_pod(NAMESPACE, "policed-a").await.unwrap();
    let review = ApiResource {
        group: "authorization.k8s.io".into(),
        version: "v1".into(),
        api_version: "authorization.k8s.io/v1".into(),
        kind: "SelfSubjectRulesReview".into(),
        plural: "selfsubjectrulesreviews".into(),
    };
    let reviews: Api<DynamicObject> = Api::all_with(agent, &review);
    let asked = serde_json::from_value(json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "metadata": {}, "spec": {"namespace": "default"}})).unwrap();
    let review = reviews.create(&PostParams::default(), &asked).await.unwrap();
    let rules = review.data["status"]["resourceRules"].as_array().unwrap().clone();
    let mut may: Vec<String> = rules
        .iter()
        // Every account may review its own access.
        .filter(|rule| !rule["apiGroups"].to_string().contains("k8s.io"))
        .flat_map(|rule| {
            let resources = rule["resources"].as_array().unwrap().clone();
            let verbs = rule["verbs"].to_string();
            resources.into_iter().map(move |resource| format!("{} {verbs}", resource.as_str().unwrap()))
        })
        .collect();
    may.sort_unstable();
    assert_eq!(
        may,
        [
            r#"events ["create","patch"]"#,
            r#"nodes ["get","list","watch","patch"]"#,
            r#"nodes/status ["patch"]"#,
            r#"pods ["list","watch"]"#,
        ]
    );
}

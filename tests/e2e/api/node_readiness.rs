//! Node affinity for ready nodes: merging with affinities of every shape, and the warning while no node is ready.

use std::path::Path;
use std::time::Duration;

use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use swansong_testcluster::{Cluster, Tier, eventually};
use tokio::sync::OnceCell;

use crate::support::{
    Certificate, REPOSITORY, Webhook, api, asking_pod, calls, configuration, create, creation, rig,
};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const LABEL: &str = "swansong.dev/dump-ready";

/// A webhook with its own configuration for one namespace.
struct Site {
    cluster: &'static Cluster,
    client: Client,
    namespace: String,
    _certificate: Certificate,
    _webhook: Webhook,
}

impl Site {
    /// The webhook has the rights of the service account `swansong-webhook` of `account`'s namespace, if one is given.
    async fn new(cluster: &'static Cluster, name: &'static str, config: &str, account: Option<&str>) -> Self {
        let client = cluster.client().await.unwrap();
        let namespace = cluster.namespace(name).await.unwrap();
        let certificate = Certificate::new();
        let files = certificate.files.path();
        let write = |file: &str, text: &str| {
            let path = files.join(file);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut command = certificate.webhook();
        command
            .args(["--nodes-interval", "100ms", "--config"])
            .arg(write("config.yaml", config))
            // Without an account it has no API server.
            .env("KUBECONFIG", files.join("kubeconfig"));
        if let Some(account) = account {
            let token = cluster.token(account, "swansong-webhook").await.unwrap();
            write("kubeconfig", &kubeconfig(cluster, &token));
        }
        let webhook = tokio::task::spawn_blocking(move || Webhook::start(&command)).await.unwrap();
        let target = certificate.client_config(&webhook);
        // Other webhooks of this cluster are called too, before or after this one.
        let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}, "failurePolicy": "Fail"});
        create(&client, "", configuration(cluster, name, &target, &here).await).await.unwrap();
        let site = Self { cluster, client, namespace, _certificate: certificate, _webhook: webhook };
        site.eventually("the webhook to be called", |pod| {
            let calls = calls(site.cluster, &site.namespace, pod["metadata"]["name"].as_str()?);
            calls.iter().any(|call| call["configuration"] == name).then_some(())
        })
        .await;
        site
    }

    async fn create(&self, pod: Value) -> kube::Result<Value> {
        create(&self.client, &self.namespace, pod).await
    }

    /// Creates pods until one is as wanted.
    async fn eventually(&self, what: &str, wanted: impl Fn(&Value) -> Option<()>) {
        let number = std::cell::Cell::new(0);
        eventually(what, Duration::from_secs(30), || async {
            number.set(number.get() + 1);
            let name = format!("{}-{}", what.replace(' ', "-").to_lowercase(), number.get());
            let pod = asking_pod(&name, &json!([{"name": "ascend", "image": "x"}]));
            let stored = self.create(pod).await.map_err(|error| error.to_string())?;
            wanted(&stored).ok_or_else(|| format!("not {name}"))
        })
        .await
        .unwrap();
    }

    /// Waits until the warnings at a creation are these.
    async fn warns(&self, expected: &str) {
        let what = if expected.is_empty() { "no warning" } else { expected };
        self.eventually(what, |pod| {
            let created = creation(self.cluster, &self.namespace, pod["metadata"]["name"].as_str()?)?;
            let warnings = created.annotations.iter().find(|(key, _)| key.ends_with("swansong.dev/warnings"));
            (warnings.map_or("", |(_, reasons)| reasons) == expected).then_some(())
        })
        .await;
    }
}

fn kubeconfig(cluster: &Cluster, token: &str) -> String {
    let info = cluster.info();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": info.api_url, "certificate-authority": info.ca_certificate}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
    .to_string()
}

fn ready() -> Value {
    json!({"key": LABEL, "operator": "In", "values": ["true"]})
}

/// Affinities by the user, and whether the API server accepts them.
fn shapes() -> Vec<(&'static str, Value, bool)> {
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]);
    let required = |terms: Value| json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}});
    let preferred = |terms: Value| json!({"nodeAffinity": {PREFERRED: terms}});
    vec![
        ("absent", json!(null), true),
        ("empty", json!({}), true),
        ("node-null", json!({"nodeAffinity": null}), true),
        ("node-empty", json!({"nodeAffinity": {}}), true),
        ("members-null", json!({"nodeAffinity": {REQUIRED: null, PREFERRED: null}}), true),
        ("preferred-empty", preferred(json!([])), true),
        ("preferred", preferred(json!([{"weight": 100, "preference": {"matchExpressions": [zone]}}])), true),
        ("pod-affinity", json!({"podAntiAffinity": {PREFERRED: []}}), true),
        ("one-term", required(json!([{"matchExpressions": [zone]}])), true),
        ("two-terms", required(json!([{"matchExpressions": [zone]}, {"matchFields": fields}])), true),
        ("null-term", required(json!([null, {}, {"matchExpressions": [zone]}])), true),
        ("only-empty-terms", required(json!([{}, null])), true),
        ("own", required(json!([{"matchExpressions": [ready()]}])), true),
        (
            "both",
            json!({"nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [zone], "matchFields": fields}]},
                PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [zone]}}],
            }}),
            true,
        ),
        // The webhook doesn't fix these.
        ("no-terms", required(json!([])), false),
        ("terms-null", required(json!(null)), false),
        ("no-weight", preferred(json!([{"preference": {"matchExpressions": [zone]}}])), false),
    ]
}

#[tokio::test]
async fn the_api_server_accepts_the_merged_affinity() {
    for (name, config, member) in [
        ("ready-preferred", "nodeReadiness: prefer", PREFERRED),
        ("ready-required", "nodeReadiness: require", REQUIRED),
    ] {
        let site = Site::new(rig().await.cluster, name, config, None).await;
        for (shape, affinity, good) in shapes() {
            let mut pod = asking_pod(shape, &json!([{"name": "ascend", "image": "x"}]));
            pod["spec"]["affinity"] = affinity;
            let stored = site.create(pod).await;
            assert_eq!(stored.is_ok(), good, "{name} {shape}: {stored:?}");
            let Ok(stored) = stored else { continue };
            let asked = stored["spec"]["affinity"]["nodeAffinity"][member].to_string();
            let expected = match shape {
                // A term that matches nothing stays without effect.
                "only-empty-terms" => member == PREFERRED,
                // The user requires it already.
                "own" => member == REQUIRED,
                _ => true,
            };
            assert_eq!(asked.contains(LABEL), expected, "{name} {shape}: {asked}");
            let terms = stored["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].clone();
            for term in terms.as_array().into_iter().flatten().filter(|term| **term != json!({})) {
                let requirements = term["matchExpressions"].as_array();
                let asks = requirements.is_some_and(|list| list.contains(&ready()));
                assert!(asks || member == PREFERRED, "{shape}: {term}");
            }
        }
    }
}

/// With the rights of `manifests/components/node-readiness`.
#[tokio::test]
async fn a_missing_ready_node_is_warned_about() {
    // In the shared cluster other tests have ready nodes.
    static ALONE: OnceCell<Cluster> = OnceCell::const_new();
    let cluster = ALONE.get_or_init(|| async { Cluster::start(Tier::Api).await.unwrap() }).await;
    let client = cluster.client().await.unwrap();
    let account = cluster.namespace("node-reader").await.unwrap();
    let service_account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "swansong-webhook"}});
    create(&client, &account, service_account).await.unwrap();
    let site = Site::new(cluster, "wanted", "nodeReadiness: require", Some(&account)).await;
    site.warns("NodeReadinessUnknown").await;

    let rights = Path::new(REPOSITORY).join("manifests/components/node-readiness/rbac.yaml");
    let rights = std::fs::read_to_string(rights)
        .unwrap()
        .replace("namespace: swansong-system", &format!("namespace: {account}"));
    cluster.apply(&rights).await.unwrap();
    site.warns("NoNodeReady").await;

    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "wanted", "labels": {LABEL: "unknown"}}});
    create(&client, "", node.clone()).await.unwrap();
    let node: DynamicObject = serde_json::from_value(node).unwrap();
    let nodes = api(&client, "", &node);
    let change = async |patch: Value| {
        nodes.patch("wanted", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    change(json!({"metadata": {"labels": {LABEL: "true"}}})).await;
    site.warns("").await;
    // A cordoned node takes no pods.
    change(json!({"spec": {"unschedulable": true}})).await;
    site.warns("NoNodeReady").await;
    change(json!({"spec": {"unschedulable": null}})).await;
    site.warns("").await;
    change(json!({"metadata": {"labels": {LABEL: "false"}}})).await;
    site.warns("NoNodeReady").await;

    let other = |event: &swansong_testcluster::AuditEvent| {
        event.user.username.starts_with(&format!("system:serviceaccount:{account}:"))
            && event.verb != "list"
            // Shows whether sidecars are supported.
            && event.request_uri != "/version"
    };
    assert!(!cluster.audit_log().unwrap().iter().any(other), "the webhook asks for nothing else");
}

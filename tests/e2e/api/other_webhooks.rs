//! Another mutating webhook before and after Swansong, and a registration without `matchConditions`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use swansong_testcluster::{Cluster, eventually};

use crate::chart::{documents, kustomize};
use crate::support::{Certificate, REPOSITORY, asking_pod, base64, calls, create, rig, tied};

const LIBRARY: &str = "/opt/profiler/libprofiler.so";

/// The process of `other_webhook.py`.
struct OtherWebhook {
    shell: Child,
    port: u16,
}

impl Drop for OtherWebhook {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

impl OtherWebhook {
    fn start(certificate: &Certificate) -> Self {
        let mut command = Command::new("python3");
        command.arg(Path::new(REPOSITORY).join("tests/e2e/api/other_webhook.py"));
        command.args(["tls.crt", "tls.key"].map(|file| certificate.files.path().join(file)));
        let mut shell = tied(&command).spawn().expect("sh");
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.find_map(|line| line.strip_prefix("port ")?.parse().ok());
        Self { shell, port: port.expect("other_webhook.py prints its port") }
    }

    /// Registers it for the Pods of one namespace. The API server calls configurations in the order of their names.
    async fn register(&self, client: &Client, certificate: &Certificate, name: &str, namespace: &str) {
        let url = format!("https://127.0.0.1:{}/", self.port);
        let webhook = json!({
            "name": "pods.other.example",
            "clientConfig": {"url": url, "caBundle": base64(certificate.issued.pem())},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "reinvocationPolicy": "IfNeeded", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        });
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": [webhook],
        });
        create(client, "", configuration).await.unwrap();
    }
}

/// Creates Pods until the API server calls a new configuration for them, and returns the first Pod that it was called for.
async fn first_called(cluster: &Cluster, namespace: &str, configuration: &str, pod: &Value) -> Value {
    let client = cluster.client().await.unwrap();
    let number = std::cell::Cell::new(0);
    eventually(&format!("{configuration} is called"), Duration::from_secs(30), || async {
        number.set(number.get() + 1);
        let name = format!("pod-{}", number.get());
        let mut pod = pod.clone();
        pod["metadata"]["name"] = json!(name);
        let created = create(&client, namespace, pod).await.map_err(|error| error.to_string())?;
        let called = calls(cluster, namespace, &name);
        if called.iter().any(|call| call["configuration"] == configuration) {
            Ok(created)
        } else {
            Err("not yet".to_owned())
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn another_webhook_before_or_after_keeps_both_injections() {
    let cluster = rig().await.cluster;
    let client = cluster.client().await.unwrap();
    let certificate = Certificate::new();
    let other = OtherWebhook::start(&certificate);
    for name in ["a-before-swansong", "z-after-swansong"] {
        let namespace = cluster.namespace(name).await.unwrap();
        other.register(&client, &certificate, name, &namespace).await;
        let pod = asking_pod("pod", &json!([{"name": "ascend", "image": "x"}]));
        let pod = first_called(cluster, &namespace, name, &pod).await;
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let names: Vec<&str> = containers.iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["ascend", "proxy"], "{name}");
        let env = containers[0]["env"].as_array().unwrap();
        let values = |variable: &str| -> Vec<&str> {
            let found = env.iter().filter(|entry| entry["name"] == variable);
            found.map(|entry| entry["value"].as_str().unwrap_or_default()).collect()
        };
        let [preload] = values("LD_PRELOAD")[..] else { panic!("{name}: {env:?}") };
        let libraries: Vec<&str> = preload.split(':').collect();
        assert_eq!(libraries.len(), 3, "{name}: {preload}");
        assert_eq!(libraries.iter().filter(|library| **library == LIBRARY).count(), 1, "{name}: {preload}");
        for variable in ["POD_IP", "TTP_PORT", "TASKD_PROCESS_ENABLE"] {
            assert_eq!(values(variable).len(), 1, "{name}: {variable} in {env:?}");
        }
        // The sidecar is not the training container.
        assert!(!containers[1].to_string().contains("libtaskd"), "{name}: {}", containers[1]);
        assert!(pod["spec"]["volumes"].to_string().contains("profiler"), "{name}");
        let delete = ["delete", "mutatingwebhookconfiguration", name];
        cluster.kubectl(&delete).await.unwrap();
    }
}

/// As on Kubernetes before 1.28 (component `before-1.28`): every Pod is sent.
#[tokio::test]
async fn webhook_skips_other_pods_without_match_conditions() {
    let cluster = rig().await.cluster;
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("unconditional").await.unwrap();
    let own = ["get", "mutatingwebhookconfiguration", "swansong", "--output=json"];
    let own: Value = serde_json::from_str(&cluster.kubectl(&own).await.unwrap()).unwrap();
    let rendered = documents(&kustomize(&[("base", &["before-1.28"])]));
    let is_it = |object: &Value| object["kind"] == "MutatingWebhookConfiguration";
    let mut configuration = rendered.into_iter().find(is_it).unwrap();
    configuration["metadata"] = json!({"name": "unconditional"});
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        assert!(webhook["matchConditions"].is_null(), "{webhook}");
        webhook["clientConfig"] = own["webhooks"][0]["clientConfig"].clone();
        webhook["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    }
    create(&client, "", configuration).await.unwrap();
    let plain = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "ascend", "image": "x"}]},
    });
    let stored = first_called(cluster, &namespace, "unconditional", &plain).await;
    assert!(stored["spec"]["containers"][0]["env"].is_null(), "{stored}");
    assert!(stored["metadata"]["annotations"].is_null(), "{stored}");
    let asking = asking_pod("asking", &json!([{"name": "ascend", "image": "x"}]));
    let stored = create(&client, &namespace, asking).await.unwrap();
    assert!(stored["spec"]["containers"][0]["env"].to_string().contains("TTP_PORT"), "{stored}");
    cluster.kubectl(&["delete", "mutatingwebhookconfiguration", "unconditional"]).await.unwrap();
}

//! The rights of a stolen token of the webhook, by RBAC and the admission policy.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::rights::empty_ca_bundle;
use crate::site::{NAMESPACE, SECRET, site};

/// The expected text of a rejection.
struct Reason(&'static str);

impl Reason {
    fn refuses(&self, what: &str, outcome: Result<(), String>) {
        let error = outcome.expect_err(what);
        assert!(error.contains(self.0), "{what}: {error}");
    }
}

async fn patch(client: &Client, operations: &Value) -> Result<(), String> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let patch = Patch::Json::<()>(serde_json::from_value(operations.clone()).unwrap());
    let patched = configurations.patch("swansong", &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|error| error.to_string())
}

/// The admission policy restricts fields and created objects, which RBAC can't.
#[tokio::test]
async fn a_stolen_token_has_only_the_rights_of_the_webhook() {
    let Some(site) = site().await else { return };
    site.install("base").await;
    let thief = site.cluster.client_as(NAMESPACE, "swansong-webhook").await.unwrap();
    let everything =
        json!([{ "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"] }]);
    let admission = Reason("nothing of its configuration but the caBundle");
    let secrets = Reason("no Secret but swansong-webhook-tls");

    for (path, value) in [
        ("/webhooks/0/rules", everything),
        ("/webhooks/0/clientConfig", json!({ "url": "https://thief.example/" })),
        ("/webhooks/0/clientConfig/service/namespace", json!("default")),
        ("/webhooks/1/failurePolicy", json!("Fail")),
        ("/webhooks/2/namespaceSelector", json!({})),
        ("/webhooks/2/objectSelector", json!({ "matchLabels": { "a": "b" } })),
        ("/webhooks/2/matchConditions", json!([])),
        ("/webhooks/2/timeoutSeconds", json!(30)),
        ("/webhooks/2/reinvocationPolicy", json!("Never")),
        ("/webhooks/2/matchPolicy", json!("Exact")),
        ("/webhooks/2/sideEffects", json!("NoneOnDryRun")),
        (
            "/webhooks/-",
            site.get("mutatingwebhookconfiguration/swansong").await.unwrap()["webhooks"][0].clone(),
        ),
        ("/webhooks", json!([])),
        ("/metadata/labels/a", json!("b")),
        ("/metadata/annotations", json!({ "cert-manager.io/inject-ca-from": "default/thief" })),
        ("/metadata/finalizers", json!(["thief.example/stays"])),
    ] {
        let mut value = value;
        if path == "/webhooks/-" {
            value["name"] = json!("thief.swansong.dev");
        }
        let operations = json!([{ "op": "add", "path": path, "value": value }]);
        admission.refuses(path, patch(&thief, &operations).await);
    }
    let own: Api<Secret> = Api::namespaced(thief.clone(), NAMESPACE);
    let token = json!({
        "metadata": { "name": "token", "annotations": { "kubernetes.io/service-account.name": "default" } },
        "type": "kubernetes.io/service-account-token",
    });
    let mut same_name = token.clone();
    same_name["metadata"]["name"] = json!(SECRET);
    let opaque = json!({ "metadata": { "name": "another" } });
    for secret in [token, same_name, opaque] {
        let name = secret["metadata"]["name"].to_string();
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let created = own.create(&PostParams::default(), &secret).await;
        secrets.refuses(&name, created.map(drop).map_err(|error| error.to_string()));
    }

    // RBAC rejects these.
    let forbidden = Reason("is forbidden");
    let text = |error: kube::Error| error.to_string();
    for (what, refusal) in [
        ("Secrets of the namespace", own.list(&ListParams::default()).await.map(drop).map_err(text)),
        ("another Secret", own.get("another").await.map(drop).map_err(text)),
        ("deleting the Secret", own.delete(SECRET, &DeleteParams::default()).await.map(drop).map_err(text)),
        ("Secrets elsewhere", {
            let elsewhere: Api<Secret> = Api::namespaced(thief.clone(), "kube-system");
            let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": SECRET } })).unwrap();
            elsewhere.create(&PostParams::default(), &secret).await.map(drop).map_err(text)
        }),
        ("configurations", {
            let all: Api<MutatingWebhookConfiguration> = Api::all(thief.clone());
            all.list(&ListParams::default()).await.map(drop).map_err(text)
        }),
        ("Pods", {
            let pods: Api<Pod> = Api::all(thief.clone());
            pods.list(&ListParams::default()).await.map(drop).map_err(text)
        }),
    ] {
        forbidden.refuses(what, refusal);
    }

    // The policy applies to no other user, and allows what the webhook does.
    let rename = json!([{ "op": "add", "path": "/metadata/labels/example.com~1a", "value": "b" }]);
    patch(&site.client, &rename).await.unwrap();
    let ca = site.only_ca("").await;
    empty_ca_bundle(&site).await;
    assert_eq!(site.only_ca("").await, ca);
}

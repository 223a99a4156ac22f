//! Secrets are never logged, at any level: keys, tokens, and what users put into their Pods.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use swansong_testcluster::eventually;

use crate::certificates::{Installation, QUICK, SECRET};
use crate::support::{asking_pod, create, grant_everything, token_kubeconfig};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The ways in which bytes show up in a log. Long enough not to be met by chance, short enough for lines that are cut.
struct Needles {
    what: String,
    texts: Vec<String>,
}

impl Needles {
    /// A user's text, plain and in base64.
    fn text(text: &str) -> Self {
        Self { what: text.to_owned(), texts: vec![text.to_owned(), STANDARD.encode(text)] }
    }

    /// A private key of a Secret, whose value is base64 of PEM.
    fn key(name: &str, value: &str) -> Self {
        let pem = String::from_utf8(STANDARD.decode(value).unwrap()).unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = STANDARD.decode(&body).unwrap();
        // Where the number itself is in a P-256 key; what is before it is the same in all keys.
        let secret = &der[36..60];
        let mut texts = vec![value[80..120].to_owned(), body[48..80].to_owned(), body[56..64].to_owned()];
        texts.push(secret.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }));
        texts.push(secret.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
        texts.push(secret.escape_ascii().to_string());
        Self { what: name.to_owned(), texts }
    }

    fn found_in<'l>(&self, log: &'l str) -> Option<&'l str> {
        log.lines().find(|line| self.texts.iter().any(|text| line.contains(text)))
    }
}

/// The private keys that are in the Secret at this moment.
fn keys(secret: &Value) -> Vec<Needles> {
    let keys = ["ca.key", "tls.key", "next-ca.key"];
    keys.into_iter().filter_map(|name| Some(Needles::key(name, secret["data"][name].as_str()?))).collect()
}

#[tokio::test]
async fn at_trace_level_neither_keys_nor_tokens_nor_values_of_users_are_logged() {
    let site = Installation::new("secrecy").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let token = token_kubeconfig(site.cluster, &site.namespace, &file).await;
    grant_everything(site.cluster, &site.namespace).await;
    // With a short life a replica may renew as often as this test makes it; else three times in ten minutes.
    let arguments = [&QUICK[..], &["--tls-validity", "10s", "--log-level", "trace"]].concat();
    let webhook = site.start_as(&file, &arguments).await.unwrap();
    let mut secrets = vec![Needles::text(&token), Needles::text(token.rsplit('.').next().unwrap())];

    let mut ca = site.only_ca("").await;
    secrets.extend(keys(&site.secret().await.unwrap()));
    site.add_endpoint("replica-0", &webhook).await;
    site.answers("first").await;

    let users =
        ["hunter2-value", "/hunter2-preload.so", "hunter2-argument", "hunter2-annotation", "hunter2-default"];
    let mut pod = asking_pod(
        "secretive",
        &json!([{
            "name": "ascend", "image": "x", "args": ["--password", users[2]],
            "env": [
                { "name": "PASSWORD", "value": users[0] },
                { "name": "LD_PRELOAD", "value": users[1] },
                { "name": "TTP_PORT", "value": users[4] },
            ],
        }]),
    );
    pod["metadata"]["annotations"]["example.com/note"] = json!(users[3]);
    let stored = create(&site.client, &site.watched, pod).await.unwrap();
    assert!(stored.to_string().contains("libtaskd.so"), "{stored}");
    secrets.extend(users.map(Needles::text));

    // Recovery from what is no key, a change by hand, and then loss.
    let api: Api<Secret> = Api::namespaced(site.client.clone(), &site.namespace);
    let no_key = "hunter2 is no key";
    secrets.push(Needles::text(no_key));
    for (change, changes_ca) in [
        (json!({ "stringData": { "tls.key": no_key } }), false),
        (json!({ "stringData": { "ca.key": no_key } }), true),
        (json!({ "metadata": { "annotations": { "swansong.dev/rotate": "ca" } } }), true),
    ] {
        let before = site.secret().await.unwrap()["data"]["tls.crt"].clone();
        api.patch(SECRET, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        eventually("another leaf", TIMEOUT, || async {
            let secret = site.secret().await?;
            if secret["data"]["tls.crt"] == before { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await
        .unwrap();
        ca = site.changed_ca(if changes_ca { &ca } else { "" }).await;
        secrets.extend(keys(&site.secret().await.unwrap()));
    }
    site.cluster.kubectl(&["delete", "-n", &site.namespace, "secret", SECRET]).await.unwrap();
    site.changed_ca(&ca).await;
    let secret = site.secret().await.unwrap();
    secrets.extend(keys(&secret));

    let log = webhook.log().join("\n");
    // It would prove nothing if little were logged, or if nothing could be found.
    for part in ["hyper", "rustls", "kube", "tower", "swansong"] {
        let traced =
            |line: &str| line.contains("\"level\":\"TRACE\"") || line.contains("\"level\":\"DEBUG\"");
        let mut lines = log.lines().filter(|line| line.contains(&format!("\"target\":\"{part}")));
        assert!(lines.any(traced), "nothing of {part} is traced");
    }
    for key in keys(&secret) {
        assert!(key.found_in(&secret.to_string()).is_some(), "{} isn't even found in the Secret", key.what);
    }
    assert!(log.contains("secretive"), "the review isn't logged");
    for secret in &secrets {
        assert_eq!(secret.found_in(&log), None, "{} is logged", secret.what);
    }
    assert!(!log.contains("PRIVATE KEY"));
    assert!(secrets.len() > 12, "only {} secrets", secrets.len());
}

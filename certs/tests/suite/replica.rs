//! A replica and the API server in memory, and what the replica stores there.

use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use swansong_certs::{ManagedObjects, Manager, PemPair, Resolver, SecretData, Settings};
use swansong_fake_apiserver::{FakeApiServer, Lifetime};

use crate::support::{Recorder, TestClock, settings};

pub(crate) const SECRET: &str = "/api/v1/namespaces/swansong/secrets/swansong-webhook-tls";
pub(crate) const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/swansong";

/// An API server with a webhook configuration.
pub(crate) fn api_server() -> FakeApiServer {
    let webhook = |name: &str| {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"service": {"name": "swansong", "namespace": "swansong"}},
            "fieldOfTheFuture": {"kept": true},
        })
    };
    let server = FakeApiServer::new();
    server.put(
        CONFIGURATION,
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "swansong"},
            "webhooks": [webhook("pods.swansong.dev"), webhook("jobs.swansong.dev")],
        }),
    );
    server
}

pub(crate) struct Replica {
    pub(crate) manager: Manager,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) events: Recorder,
    pub(crate) clock: TestClock,
    pub(crate) lifetime: Lifetime,
}

impl Replica {
    pub(crate) fn new(api: &FakeApiServer) -> Self {
        Self::with(api, settings())
    }

    pub(crate) fn with(api: &FakeApiServer, settings: Settings) -> Self {
        let objects = ManagedObjects {
            namespace: "swansong".to_owned(),
            secret: "swansong-webhook-tls".to_owned(),
            webhook_configuration: "swansong".to_owned(),
        };
        let (resolver, events, clock, lifetime) =
            (Resolver::new(), Recorder::default(), TestClock::new(), Lifetime::default());
        let manager = Manager::new(
            api.client_with_lifetime("swansong", &lifetime),
            &objects,
            settings,
            Arc::clone(&resolver),
            clock.as_clock(),
            events.observer(),
        );
        Self { manager, resolver, events, clock, lifetime }
    }

    pub(crate) fn serial(&self) -> String {
        self.resolver.current().unwrap().leaf.serial.clone()
    }
}

pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    serde_json::from_value::<ByteString>(value.clone()).map(|bytes| bytes.0).unwrap_or_default()
}

/// The pairs of the Secret.
pub(crate) fn stored(api: &FakeApiServer) -> SecretData {
    let secret = api.get(SECRET).unwrap();
    let pair = |name: &str| PemPair {
        certificate: bytes(&secret["data"][format!("{name}.crt")]),
        key: bytes(&secret["data"][format!("{name}.key")]),
    };
    SecretData { ca: pair("ca"), leaf: pair("tls"), next_ca: pair("next-ca"), ..SecretData::default() }
}

/// Stores the CA and the leaf of another Secret.
pub(crate) fn store(api: &FakeApiServer, data: &SecretData) {
    api.edit(SECRET, |secret| {
        for (key, part) in [
            ("ca.crt", &data.ca.certificate),
            ("ca.key", &data.ca.key),
            ("tls.crt", &data.leaf.certificate),
            ("tls.key", &data.leaf.key),
        ] {
            secret["data"][key] = serde_json::to_value(ByteString(part.clone())).unwrap();
        }
    });
}

/// The `caBundle` of each webhook in a configuration.
pub(crate) fn bundles_of(configuration: &Value) -> Vec<Vec<u8>> {
    let webhooks = configuration["webhooks"].as_array().unwrap();
    webhooks.iter().map(|webhook| bytes(&webhook["clientConfig"]["caBundle"])).collect()
}

pub(crate) fn bundles(api: &FakeApiServer) -> Vec<Vec<u8>> {
    bundles_of(&api.get(CONFIGURATION).unwrap())
}

/// The number of CAs in each `caBundle`.
pub(crate) fn sizes(api: &FakeApiServer) -> Vec<usize> {
    bundles(api).iter().map(|bundle| String::from_utf8_lossy(bundle).matches("BEGIN").count()).collect()
}

/// Whether each `caBundle` contains the CA of the Secret.
pub(crate) fn is_trusted(api: &FakeApiServer) -> bool {
    let ca = String::from_utf8(stored(api).ca.certificate).unwrap().replace("\r\n", "\n");
    bundles(api).iter().all(|bundle| String::from_utf8_lossy(bundle).contains(&ca))
}

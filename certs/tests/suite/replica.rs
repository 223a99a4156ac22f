//! A replica against the API server in memory, and what it leaves there.

use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::Value;
use swansong_certs::{Ledger, Manager, Objects, Resolver, SecretData, Settings};

use crate::fake_api::{CONFIGURATION, FakeApi, Life, SECRET};
use crate::support::{Hands, Recorder, settings};

pub(crate) struct Replica {
    pub(crate) manager: Manager,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) events: Recorder,
    pub(crate) clock: Hands,
    pub(crate) life: Life,
}

impl Replica {
    pub(crate) fn new(api: &FakeApi) -> Self {
        Self::with(api, settings(), "")
    }

    pub(crate) fn with(api: &FakeApi, settings: Settings, name: &str) -> Self {
        let objects = Objects {
            namespace: "swansong".to_owned(),
            secret: "swansong-webhook-tls".to_owned(),
            webhook_configuration: "swansong".to_owned(),
        };
        let (resolver, events, clock, life) =
            (Resolver::new(), Recorder::default(), Hands::new(), Life::default());
        let mut manager = Manager::new(
            api.mortal_client(&life),
            &objects,
            settings,
            Arc::clone(&resolver),
            Arc::new(clock.clone()),
            Arc::new(events.clone()),
        );
        if !name.is_empty() {
            manager = manager.named(name);
        }
        Self { manager, resolver, events, clock, life }
    }

    pub(crate) fn serial(&self) -> String {
        self.resolver.current().unwrap().serial().to_owned()
    }
}

pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    serde_json::from_value::<ByteString>(value.clone()).map(|bytes| bytes.0).unwrap_or_default()
}

pub(crate) fn stored(api: &FakeApi) -> SecretData {
    let secret = api.get(SECRET).unwrap();
    let part = |key: &str| bytes(&secret["data"][key]);
    let note = secret["metadata"]["annotations"]["swansong.dev/serving"].as_str();
    SecretData {
        authority_certificate: part("ca.crt"),
        authority_key: part("ca.key"),
        certificate: part("tls.crt"),
        key: part("tls.key"),
        next_certificate: part("next-ca.crt"),
        next_key: part("next-ca.key"),
        previous: part("previous-ca.crt"),
        ledger: note.map(Ledger::parse).unwrap_or_default(),
        ..SecretData::default()
    }
}

/// The `caBundle` of each webhook in a configuration.
pub(crate) fn bundles_of(configuration: &Value) -> Vec<Vec<u8>> {
    let webhooks = configuration["webhooks"].as_array().unwrap();
    webhooks.iter().map(|webhook| bytes(&webhook["clientConfig"]["caBundle"])).collect()
}

pub(crate) fn bundles(api: &FakeApi) -> Vec<Vec<u8>> {
    bundles_of(&api.get(CONFIGURATION).unwrap())
}

/// How many authorities each `caBundle` has.
pub(crate) fn sizes(api: &FakeApi) -> Vec<usize> {
    bundles(api).iter().map(|bundle| String::from_utf8_lossy(bundle).matches("BEGIN").count()).collect()
}

pub(crate) fn trusted(api: &FakeApi) -> bool {
    let authority = String::from_utf8(stored(api).authority_certificate).unwrap().replace("\r\n", "\n");
    bundles(api).iter().all(|bundle| String::from_utf8_lossy(bundle).contains(&authority))
}

//! Applying the manifests again, as an upgrade does, keeps the CA and the `caBundle`.

use std::path::Path;

use serde_json::Value;

use crate::site::{SECRET, Site, bundles, manifests, site};

const CONFIGURATION: &str = "mutatingwebhookconfiguration/swansong";

/// Runs kubectl on the manifests and returns the webhook configuration as stored, before Swansong could update it.
async fn stored_by(site: &Site<'_>, command: &[&str], folder: &Path) -> Value {
    let command: Vec<&Path> =
        command.iter().chain(&["--output=json", "--kustomize"]).map(Path::new).chain([folder]).collect();
    let printed = site.cluster.kubectl(&command).await.unwrap();
    // Depending on the command, one List or several objects.
    let objects = serde_json::Deserializer::from_str(&printed).into_iter::<Value>().map(Result::unwrap);
    let objects =
        objects.flat_map(|object| object["items"].as_array().cloned().unwrap_or_else(|| vec![object]));
    let mut ours = objects.filter(|object| object["kind"] == "MutatingWebhookConfiguration");
    ours.next().expect("among what was applied")
}

#[tokio::test]
async fn applying_the_manifests_again_keeps_ca_and_ca_bundle() {
    let Some(site) = site().await else { return };
    let folder = site.install("base").await;
    let ca = site.only_ca("").await;
    let identity = site.get(&format!("secret/{SECRET}")).await.unwrap()["metadata"]["uid"].clone();
    let untouched = site.get(CONFIGURATION).await.unwrap()["metadata"]["resourceVersion"].clone();

    // Equal objects aren't stored again.
    let server_side = ["apply", "--server-side"];
    for command in [&server_side[..], &["apply", "--server-side", "--force-conflicts"]] {
        let stored = stored_by(&site, command, folder.path()).await;
        assert_eq!(stored["metadata"]["resourceVersion"], untouched, "{command:?}");
    }
    // Client-side apply; the second time with the annotation of the first.
    for _ in 0..2 {
        let stored = stored_by(&site, &["apply"], folder.path()).await;
        assert_eq!(bundles(&stored).count(), 3);
        assert!(bundles(&stored).all(|bundle| *bundle == *ca), "{stored:#}");
    }
    // Another overlay and back: webhooks change, the CA doesn't.
    let strict = manifests("overlays/strict");
    for folder in [&strict, &folder] {
        let stored = stored_by(&site, &["apply", "--server-side", "--force-conflicts"], folder.path()).await;
        assert!(bundles(&stored).all(|bundle| *bundle == *ca), "{stored:#}");
    }
    // New Pods, as with a new image.
    site.roll().await;

    // Only a replacement empties the caBundle. Swansong sets it again to the same CA.
    let replaced = stored_by(&site, &["replace"], folder.path()).await;
    assert!(bundles(&replaced).all(Value::is_null), "{replaced:#}");
    assert_eq!(site.only_ca("").await, ca);
    assert_eq!(site.get(&format!("secret/{SECRET}")).await.unwrap()["metadata"]["uid"], identity);
}

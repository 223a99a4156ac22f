//! Applying the manifests again, as an upgrade does: the authority stays, and the `caBundle` with it (B58).

use std::path::Path;

use serde_json::Value;

use crate::site::{SECRET, Site, bundles, manifests, site};

const CONFIGURATION: &str = "mutatingwebhookconfiguration/swansong";

/// Runs kubectl on the manifests and returns the webhook configuration just as it was stored then, before Swansong could
/// mend anything.
async fn stored_by(site: &Site<'_>, command: &[&str], folder: &Path) -> Value {
    let command: Vec<&Path> =
        command.iter().chain(&["--output=json", "--kustomize"]).map(Path::new).chain([folder]).collect();
    let printed = site.cluster.kubectl(&command).await.unwrap();
    // One List, or one object after the other, as the command has it.
    let objects = serde_json::Deserializer::from_str(&printed).into_iter::<Value>().map(Result::unwrap);
    let objects =
        objects.flat_map(|object| object["items"].as_array().cloned().unwrap_or_else(|| vec![object]));
    let mut ours = objects.filter(|object| object["kind"] == "MutatingWebhookConfiguration");
    ours.next().expect("among what was applied")
}

#[tokio::test]
async fn b58_applying_again_makes_no_authority_and_empties_no_ca_bundle() {
    let Some(site) = site().await else { return };
    let folder = site.install("base").await;
    let authority = site.only_authority("").await;
    let identity = site.get(&format!("secret/{SECRET}")).await.unwrap()["metadata"]["uid"].clone();
    let untouched = site.get(CONFIGURATION).await.unwrap()["metadata"]["resourceVersion"].clone();

    // Nothing of ours differs, so the API server doesn't even store it anew.
    let server_side = ["apply", "--server-side"];
    for command in [&server_side[..], &["apply", "--server-side", "--force-conflicts"]] {
        let stored = stored_by(&site, command, folder.path()).await;
        assert_eq!(stored["metadata"]["resourceVersion"], untouched, "{command:?}");
    }
    // From the client's side; the second time it has an earlier state to compare with.
    for _ in 0..2 {
        let stored = stored_by(&site, &["apply"], folder.path()).await;
        assert_eq!(bundles(&stored).count(), 3);
        assert!(bundles(&stored).all(|bundle| *bundle == *authority), "{stored:#}");
    }
    // To another overlay and back: webhooks change, the authority doesn't.
    let strict = manifests("overlays/strict");
    for folder in [&strict, &folder] {
        let stored = stored_by(&site, &["apply", "--server-side", "--force-conflicts"], folder.path()).await;
        assert!(bundles(&stored).all(|bundle| *bundle == *authority), "{stored:#}");
    }
    // New Pods, as with a new image.
    site.roll().await;

    // Replacing is the one way that empties it; it is set again, and to the same authority.
    let replaced = stored_by(&site, &["replace"], folder.path()).await;
    assert!(bundles(&replaced).all(Value::is_null), "{replaced:#}");
    assert_eq!(site.only_authority("").await, authority);
    assert_eq!(site.get(&format!("secret/{SECRET}")).await.unwrap()["metadata"]["uid"], identity);
}

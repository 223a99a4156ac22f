//! Job files of users, created in a cluster with the webhook. They aren't part of the repository; without them the test
//! uses fixtures of the same shapes.

use std::path::{Path, PathBuf};

use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::support::{REPOSITORY, api, create, examine, inputs_directory, rig, swansong};

fn files() -> Vec<PathBuf> {
    let own = Path::new(REPOSITORY).join("tests/support/fixtures/workloads");
    let directories = [own, inputs_directory(), inputs_directory().join("pods")];
    let mut files: Vec<_> = directories
        .iter()
        .filter_map(|directory| std::fs::read_dir(directory).ok())
        .flat_map(|entries| entries.map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "json"))
        .filter(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().contains("crds")))
        .collect();
    files.sort();
    files
}

/// Removes what the API server added to a stored object.
fn strip(object: &mut Value, namespace: &str) {
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for server_side in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.remove(server_side);
    }
    metadata.insert("namespace".to_owned(), json!(namespace));
    // One of the files has no name.
    if metadata.get("name").is_none_or(Value::is_null) {
        metadata.insert("name".to_owned(), json!("unnamed"));
    }
    if object["kind"] == "Pod" {
        let spec = object["spec"].as_object_mut().unwrap();
        spec.remove("nodeName");
        // These belong to the cluster of the file.
        spec.remove("serviceAccount");
        spec.remove("serviceAccountName");
    }
}

/// A file's objects as the command line reads them.
fn objects(file: &Path) -> Vec<Value> {
    let output = swansong(["uninject", "-o", "json", "-f"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    serde_json::Deserializer::from_slice(&output.stdout).into_iter().map(Result::unwrap).collect()
}

/// Whether the API server accepts the object without our webhook.
async fn is_valid_by_itself(client: &kube::Client, object: &Value) -> bool {
    const EXCLUDED: &str = "kube-public";
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!(EXCLUDED);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    api(client, EXCLUDED, &object).create(&dry_run, &object).await.is_ok()
}

/// What the API server takes without us it takes with us, and it comes out complete.
#[tokio::test]
async fn every_input_is_accepted_and_injected() {
    let rig = rig().await;
    let client = rig.cluster.client().await.unwrap();
    let mut injected = 0;
    for file in files() {
        let namespace = rig.cluster.namespace("inputs").await.unwrap();
        let lists = |object: Value| match object["items"].as_array() {
            Some(items) => items.clone(),
            None => vec![object],
        };
        for mut object in objects(&file).into_iter().flat_map(lists) {
            if !["v1/Pod", "mindxdl.gitee.com/v1/AscendJob", "batch.volcano.sh/v1alpha1/Job"].contains(
                &format!(
                    "{}/{}",
                    object["apiVersion"].as_str().unwrap_or_default(),
                    object["kind"].as_str().unwrap_or_default()
                )
                .as_str(),
            ) {
                continue;
            }
            strip(&mut object, &namespace);
            let name = format!("{}: {}", file.display(), object["metadata"]["name"]);
            if !is_valid_by_itself(&client, &object).await {
                assert!(
                    file.starts_with(REPOSITORY) && !file.starts_with(inputs_directory()),
                    "{name} is refused"
                );
                continue;
            }
            let expected = examine(&object);
            let stored =
                create(&client, &namespace, object).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            let outcome = examine(&stored);
            assert_eq!(outcome.skip, expected.skip, "{name}");
            assert!(outcome.operations.is_empty(), "{name}: {:?}", outcome.operations);
            injected += usize::from(outcome.injected());
        }
    }
    assert!(injected >= 10, "only {injected} objects were injected");
}

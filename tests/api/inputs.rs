//! Job files of other people, through the real API server with the webhook on. They lie beside the repository
//! where it is developed; elsewhere our own fixtures of the same shapes stand for them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{REPOSITORY, create, examine, inputs_directory, rig};

fn files() -> Vec<PathBuf> {
    let own = Path::new(REPOSITORY).join("tests/fixtures/workloads");
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

/// What a user would create again from what the API server once stored.
fn strip(object: &mut Value, namespace: &str) {
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for server_side in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.remove(server_side);
    }
    metadata.insert("namespace".to_owned(), json!(namespace));
    // One of the files leaves the name to its reader.
    if metadata.get("name").is_none_or(Value::is_null) {
        metadata.insert("name".to_owned(), json!("unnamed"));
    }
    if object["kind"] == "Pod" {
        let spec = object["spec"].as_object_mut().unwrap();
        spec.remove("nodeName");
        // Made for the cluster they were taken from.
        spec.remove("serviceAccount");
        spec.remove("serviceAccountName");
    }
}

#[tokio::test]
async fn every_file_passes_and_comes_out_complete() {
    let rig = rig().await;
    let client = rig.cluster.client().await.unwrap();
    let files = files();
    assert!(!files.is_empty());
    let mut injected = 0;
    for file in files {
        let namespace = rig.cluster.namespace("inputs").await.unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for mut object in documents.into_iter().filter(Value::is_object) {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            if !["Pod", "AscendJob", "Job"].contains(&kind.as_str()) {
                continue;
            }
            strip(&mut object, &namespace);
            let expected = examine(&object);
            let stored = create(&client, &namespace, object.clone()).await;
            let stored = stored.unwrap_or_else(|error| panic!("{}: {kind}: {error}", file.display()));
            if object["apiVersion"] == "batch/v1" {
                continue;
            }
            let outcome = examine(&stored);
            assert_eq!(outcome.skip, expected.skip, "{}", file.display());
            assert!(outcome.operations.is_empty(), "{}: {:?}", file.display(), outcome.operations);
            injected += usize::from(outcome.injected());
        }
    }
    assert!(injected > 0);
}

//! A job's own ConfigMap takes precedence over the controller's, in either order and with each command of kubectl.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use swansong_clusterd::reset_config::name_for;
use swansong_testcluster::Cluster;

use super::{Rig, ascend_job, create, rig, user_config_map};

const ROUNDS: usize = 20;

/// Runs kubectl with a file; its error has the output.
async fn kubectl(cluster: &Cluster, namespace: &str, command: &str, file: &Path) {
    let mut arguments: Vec<&str> = command.split(' ').collect();
    arguments.extend(["--namespace", namespace, "--filename", file.to_str().unwrap()]);
    if let Err(error) = cluster.kubectl(&arguments).await {
        panic!("kubectl {command}: {error}");
    }
}

fn data() -> BTreeMap<String, String> {
    // The content of MindCluster's samples with another layout than the controller's.
    let data = [("reset.json", r#"{"status": "initializing"}"#), ("checkCode", "")];
    data.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Writes a file with a job and its ConfigMap.
fn write_file(folder: &Path, job: &str, is_job_first: bool) -> PathBuf {
    let mut objects =
        [user_config_map(job, &json!({"reset": "true"}), &json!(data())), ascend_job(job, "dump")];
    if is_job_first {
        objects.reverse();
    }
    let documents: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let file = folder.join(format!("{job}.yaml"));
    std::fs::write(&file, documents.join("\n---\n")).unwrap();
    file
}

impl Rig {
    async fn assert_user_owns(&self, namespace: &str, job: &str, command: &str) {
        let found: ConfigMap = self.config_maps(namespace).get(&name_for(job)).await.unwrap();
        assert_eq!(found.data, Some(data()), "{job} after {command}");
        assert!(found.metadata.owner_references.is_none(), "{job} after {command}");
    }
}

async fn own_config_map_takes_precedence(is_job_first: bool) {
    let rig = rig().await;
    let folder = tempfile::tempdir().unwrap();
    for (name, command) in [("create", "create"), ("apply", "apply"), ("server-side", "apply --server-side")]
    {
        let namespace = rig.cluster.namespace(&format!("reset-config-{name}")).await.unwrap();
        let jobs: Vec<String> = (0..ROUNDS).map(|round| format!("{name}-{round}")).collect();
        for job in &jobs {
            let file = write_file(folder.path(), job, is_job_first);
            kubectl(rig.cluster, &namespace, command, &file).await;
        }
        rig.settled(&namespace).await;
        for job in &jobs {
            rig.assert_user_owns(&namespace, job, command).await;
        }
        if name != "create" {
            continue;
        }
        for job in &jobs {
            let file = folder.path().join(format!("{job}.yaml"));
            kubectl(rig.cluster, &namespace, "replace --force", &file).await;
            rig.assert_user_owns(&namespace, job, "replace --force").await;
        }
        for job in &jobs {
            let file = folder.path().join(format!("{job}.yaml"));
            kubectl(rig.cluster, &namespace, "delete", &file).await;
            kubectl(rig.cluster, &namespace, "create", &file).await;
            rig.assert_user_owns(&namespace, job, "delete and create").await;
        }
    }
}

#[tokio::test]
async fn own_config_map_takes_precedence_after_the_job() {
    own_config_map_takes_precedence(true).await;
}

#[tokio::test]
async fn own_config_map_takes_precedence_before_the_job() {
    own_config_map_takes_precedence(false).await;
}

/// The user applies a ConfigMap when the controller has created one already.
#[tokio::test]
async fn later_apply_takes_over_without_a_conflict() {
    let rig = rig().await;
    let folder = tempfile::tempdir().unwrap();
    for (name, command) in [("client-side", "apply"), ("server-side", "apply --server-side")] {
        let namespace = rig.cluster.namespace(&format!("reset-config-later-{name}")).await.unwrap();
        let jobs: Vec<String> = (0..ROUNDS).map(|round| format!("{name}-{round}")).collect();
        for job in &jobs {
            create(&rig.client, &namespace, ascend_job(job, "dump")).await.unwrap();
        }
        for job in &jobs {
            rig.reset_config(&namespace, job).await;
            let config_map = user_config_map(job, &json!({"reset": "true"}), &json!(data()));
            let file = folder.path().join(format!("{job}.yaml"));
            std::fs::write(&file, config_map.to_string()).unwrap();
            for _ in 0..2 {
                kubectl(rig.cluster, &namespace, command, &file).await;
                let found = rig.reset_config(&namespace, job).await;
                assert_eq!(found.data, Some(data()), "{job} after {command}");
            }
        }
    }
}

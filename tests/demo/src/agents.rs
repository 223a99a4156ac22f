//! The node agent by its manifests, on a host made of files, and what it needs of MindCluster.

use std::path::Path;

use serde_json::{Value, json};
use swansong_fixtures::mindcluster::{device_info, pod_group_definition};
use swansong_testcluster::{Cluster, Error};

use crate::install::{IMAGE, InstallError, repository};

/// The agent's namespace.
pub const NAMESPACE: &str = "swansong-agent";
/// What the device plugin sets on a Node with NPUs.
const NODE_LABEL: &str = "accelerator=huawei-Ascend910";

/// Creates what Volcano, ClusterD and the device plugin create in a cluster: PodGroups, a namespace, the Node's label, and
/// the state of its devices.
pub async fn prepare(cluster: &Cluster) -> Result<(), Error> {
    let node = cluster.node_name()?;
    let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cluster-system"}});
    let mut info = device_info(node);
    info["metadata"]["namespace"] = json!("kube-system");
    cluster.apply(&format!("{}\n---\n{system}\n---\n{info}", pod_group_definition())).await?;
    let definition = "crd/podgroups.scheduling.volcano.sh";
    cluster.kubectl(&["wait", "--for=condition=Established", definition, "--timeout=60s"]).await?;
    cluster.kubectl(&["label", "--overwrite", "node", node, NODE_LABEL]).await?;
    Ok(())
}

/// Applies an overlay of the agent with `host` as the host's file system, and waits until its Pod is ready.
pub async fn install(
    cluster: &Cluster,
    overlay: &str,
    host: &Path,
    config: &str,
) -> Result<(), InstallError> {
    let manifests = repository().join("manifests").join(overlay);
    let rendered = cluster.kubectl(&["kustomize".as_ref(), manifests.as_os_str()]).await?;
    let unreadable = |error: serde_saphyr::Error| InstallError::Manifests {
        what: format!("read {}", manifests.display()),
        reason: error.to_string(),
    };
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).map_err(unreadable)?;
    for object in &mut objects {
        match object["kind"].as_str() {
            Some("ConfigMap") => object["data"]["agent.yaml"] = json!(config),
            Some("DaemonSet") => adapt(&mut object["spec"]["template"], host, config),
            _ => {}
        }
    }
    let all: Vec<String> = objects.iter().map(Value::to_string).collect();
    cluster.apply(&all.join("\n---\n")).await?;
    let rollout = ["rollout", "status", "daemonset/swansong-agent", "--timeout=90s"];
    if let Err(error) = cluster.kubectl(&[&["--namespace", NAMESPACE], &rollout[..]].concat()).await {
        let pods = cluster.kubectl(&["--namespace", NAMESPACE, "describe", "pods"]).await;
        let reason = format!("{}\n{}", logs(cluster).await, pods.unwrap_or_default());
        return Err(InstallError::Manifests { what: error.to_string(), reason });
    }
    Ok(())
}

/// The end of the agent's log.
pub async fn logs(cluster: &Cluster) -> String {
    let logs = ["--namespace", NAMESPACE, "logs", "daemonset/swansong-agent", "--tail=40"];
    cluster.kubectl(&logs).await.unwrap_or_else(|error| error.to_string())
}

fn adapt(template: &mut Value, host: &Path, config: &str) {
    let pod = &mut template["spec"];
    pod["containers"][0]["image"] = json!(IMAGE);
    if pod["hostPID"] == true {
        // The simulated host has no processes; those of the node are inspected.
        let mount = json!({"name": "proc", "mountPath": "/host/proc", "readOnly": true});
        let volume = json!({"name": "proc", "hostPath": {"path": "/proc"}});
        push(&mut pod["containers"][0]["volumeMounts"], mount);
        push(&mut pod["volumes"], volume);
    }
    for volume in pod["volumes"].as_array_mut().into_iter().flatten() {
        match volume["hostPath"]["path"].as_str() {
            Some("/") => volume["hostPath"]["path"] = json!(host),
            // The state folder is on the simulated host too.
            Some(path @ "/var/lib/swansong") => volume["hostPath"]["path"] = json!(host.join(&path[1..])),
            _ => {}
        }
    }
    // A different configuration creates other Pods.
    template["metadata"]["annotations"]["test"] = json!(format!("{config}{host:?}"));
}

fn push(list: &mut Value, item: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

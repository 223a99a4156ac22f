//! The launcher hook in containers of a real kubelet: annotations of a Pod, mounted into the image's site directory.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, LogParams, PostParams};
use serde_json::{Value, json};
use swansong_demo::python_image;
use swansong_inject::launcher_hook::{self, MODULE};
use swansong_testcluster::{Cluster, eventually};
use tokio::sync::OnceCell;

use crate::rig::cluster;

const TIMEOUT: Duration = Duration::from_mins(1);

/// Prints whether the hook is loaded, and which user runs.
const IS_LOADED: &str = "import os, sys; print('SwansongTrigger' in str(sys.meta_path), os.getuid())";

/// Receives order 203 while a processor is connected; SIGTERM raises an exception as in torch's launcher.
const LAUNCHER: &str = "
import signal, socket, sys
from taskd.python.framework.agent.pt_agent.pt_agent import PtAgent

def on_signal(number, frame):
    raise Exception('received signal %d' % number)

signal.signal(signal.SIGTERM, on_signal)
listener = socket.create_server(('127.0.0.1', 8000))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
PtAgent(0, dict, print).command_map[203]({})
";

#[tokio::test]
async fn it_is_loaded_in_an_image_that_has_the_site_directory() {
    let Some(cluster) = cluster_with_image().await else { return };
    for (context, user) in [
        (json!({"readOnlyRootFilesystem": true, "runAsUser": 65532, "runAsNonRoot": true}), 65532),
        (json!({"readOnlyRootFilesystem": true, "runAsUser": 0}), 0),
        (json!({"runAsUser": 0, "capabilities": {"drop": ["ALL"]}}), 0),
        (json!({"runAsUser": 1000, "runAsGroup": 1000, "allowPrivilegeEscalation": false}), 1000),
    ] {
        let output = run(cluster, python_image::site().unwrap(), IS_LOADED, &context).await;
        assert_eq!(output, format!("True {user}\n"), "{context}");
    }
}

#[tokio::test]
async fn a_container_whose_image_lacks_the_site_directory_starts_without_it() {
    let Some(cluster) = cluster_with_image().await else { return };
    let context = json!({"readOnlyRootFilesystem": true, "runAsUser": 65532});
    let output = run(cluster, "/usr/local/lib/python3.10/dist-packages", IS_LOADED, &context).await;
    assert_eq!(output, "False 65532\n");
}

#[tokio::test]
async fn a_pod_is_deletable_while_it_waits() {
    let Some(cluster) = cluster_with_image().await else { return };
    let (pods, name) =
        start(cluster, python_image::site().unwrap(), LAUNCHER, &json!({"readOnlyRootFilesystem": true}))
            .await;
    eventually("the launcher waits", TIMEOUT, || async {
        let log = pods.logs(&name, &LogParams::default()).await.map_err(|error| error.to_string())?;
        if log.contains("exit ordered: waiting for 2 connections") { Ok(()) } else { Err(log) }
    })
    .await
    .unwrap();
    let start = Instant::now();
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("the Pod is gone", TIMEOUT, || async {
        let pod = pods.get_opt(&name).await.map_err(|error| error.to_string())?;
        pod.is_none().then_some(()).ok_or_else(|| "it exists".to_owned())
    })
    .await
    .unwrap();
    // The grace period, after which the kubelet would have killed it, is 60 s.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

/// The shared cluster with the image of the fakes.
pub(crate) async fn cluster_with_image() -> Option<&'static Cluster> {
    static LOADED: OnceCell<()> = OnceCell::const_new();
    let cluster = cluster().await?;
    LOADED
        .get_or_init(|| async {
            let folder = tempfile::tempdir().unwrap();
            cluster.load_image(&python_image::build(folder.path()).unwrap()).await.unwrap();
        })
        .await;
    Some(cluster)
}

/// What a program printed on standard output and error.
async fn run(cluster: &Cluster, site: &str, program: &str, security_context: &Value) -> String {
    let (pods, name) = start(cluster, site, program, security_context).await;
    eventually("the Pod succeeds", TIMEOUT, || async {
        let pod = pods.get(&name).await.map_err(|error| error.to_string())?;
        let status = pod.status.unwrap_or_default();
        let succeeded = status.phase.as_deref() == Some("Succeeded");
        succeeded.then_some(()).ok_or_else(|| format!("{:?}", status.container_statuses))
    })
    .await
    .unwrap();
    pods.logs(&name, &LogParams::default()).await.unwrap()
}

/// Starts a Pod that carries the hook and mounts it into `site`.
async fn start(cluster: &Cluster, site: &str, program: &str, security_context: &Value) -> (Api<Pod>, String) {
    let namespace = cluster.namespace("hook").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let item = |file: &str, annotation: &str| json!({"path": file, "fieldRef": {"fieldPath": format!("metadata.annotations['{annotation}']")}});
    let mount = |file: &str| json!({"name": "swansong-launcher-hook", "mountPath": format!("{site}/{file}"), "subPath": file, "readOnly": true});
    let (module, pth) = ("swansong_launcher_hook.py", "swansong-launcher-hook.pth");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "launcher", "annotations": {
            "swansong.dev/launcher-hook.py": MODULE, "swansong.dev/launcher-hook.pth": launcher_hook::pth(600, false),
        }},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 60,
            "volumes": [{"name": "swansong-launcher-hook", "downwardAPI": {"items": [
                item(module, "swansong.dev/launcher-hook.py"), item(pth, "swansong.dev/launcher-hook.pth"),
            ]}}],
            "containers": [{
                "name": "ascend", "image": python_image::NAME, "imagePullPolicy": "Never",
                "command": ["/usr/bin/python3", "-c", program],
                "securityContext": security_context,
                "volumeMounts": [mount(module), mount(pth)],
            }],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    (pods, "launcher".to_owned())
}

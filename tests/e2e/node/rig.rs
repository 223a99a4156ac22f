//! One cluster with Swansong in it, and jobs to run there.

use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use swansong_demo::proof::{Link, links};
use swansong_demo::{definitions, evidence, install, operator, training_image};
use swansong_testcluster::{Cluster, Tier, eventually, shared_if_possible};
use tokio::sync::OnceCell;

/// The shared cluster with Swansong installed; `None` where this machine can't run a node.
pub(crate) async fn cluster() -> Option<&'static Cluster> {
    static READY: OnceCell<Option<&Cluster>> = OnceCell::const_new();
    *READY
        .get_or_init(|| async {
            let cluster = shared_if_possible(Tier::Node).await.unwrap()?;
            let folder = tempfile::tempdir().unwrap();
            let swansong = Path::new(env!("CARGO_BIN_EXE_swansong"));
            install::load_image(cluster, swansong, folder.path()).await.unwrap();
            cluster.load_image(&training_image::build(folder.path()).unwrap()).await.unwrap();
            definitions::apply(cluster, &definitions::file()).await.unwrap();
            install::install(cluster).await.unwrap();
            Some(cluster)
        })
        .await
}

/// A namespace that has opted out of Swansong.
pub(crate) async fn opted_out(cluster: &Cluster, prefix: &str) -> String {
    let name = cluster.namespace(prefix).await.unwrap();
    let client = cluster.client().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let label = json!({ "metadata": { "labels": { "swansong.dev/inject": "false" } } });
    namespaces.patch(&name, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    // The API server's admission sees the label with a delay, through a watch.
    let jobs = operator::ascend_jobs(client, &name);
    let probe: DynamicObject = serde_json::from_value(job("probe", "pytorch", "dump", &[])).unwrap();
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the namespace is ignored", std::time::Duration::from_secs(30), || async {
        let stored = jobs.create(&parameters, &probe).await.map_err(|error| error.to_string())?;
        let stored = serde_json::to_value(stored).map_err(|error| error.to_string())?;
        if template(&stored, "Master")["metadata"]["annotations"].is_null() {
            Ok(())
        } else {
            Err("it isn't".to_owned())
        }
    })
    .await
    .unwrap();
    name
}

/// A job of rank 0 and one worker, with an annotation and without anything else for its dump.
pub(crate) fn job(name: &str, framework: &str, strategy: &str, arguments: &[&str]) -> Value {
    let npu = json!({ "huawei.com/Ascend910": 1 });
    let replica = json!({
        "replicas": 1,
        "restartPolicy": "Never",
        "template": { "spec": { "containers": [{
            "name": "ascend",
            "image": training_image::NAME,
            "imagePullPolicy": "Never",
            "args": arguments,
            "resources": { "limits": npu, "requests": npu },
        }] } },
    });
    let zero = if framework == "mindspore" { "Scheduler" } else { "Master" };
    json!({
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "metadata": {
            "name": name,
            "labels": { "framework": framework },
            "annotations": { "recover-strategy": strategy },
        },
        "spec": { "schedulerName": "default-scheduler", "replicaSpecs": { zero: replica, "Worker": replica } },
    })
}

/// The pod template of a replica type.
pub(crate) fn template<'a>(job: &'a Value, replica: &str) -> &'a Value {
    &job["spec"]["replicaSpecs"][replica]["template"]
}

/// Stores a job and returns it as it is then.
pub(crate) async fn create(client: &Client, namespace: &str, job: Value) -> DynamicObject {
    let job: DynamicObject = serde_json::from_value(job).unwrap();
    operator::ascend_jobs(client.clone(), namespace).create(&PostParams::default(), &job).await.unwrap()
}

/// Creates the pods of a stored job, waits until they have reported, and returns the checked links.
pub(crate) async fn run(client: &Client, job: &DynamicObject) -> Vec<Link> {
    operator::reconcile(client, job).await.unwrap();
    let namespace = job.namespace().unwrap();
    let ranks = evidence::ranks(client, &namespace, &job.name_any(), 2).await.unwrap();
    let service = evidence::service(client, &namespace, &job.name_any()).await.unwrap();
    links(&ranks, &service)
}

/// The claims that don't hold, with what is there instead.
pub(crate) fn broken(links: &[Link]) -> Vec<(&str, &str)> {
    links
        .iter()
        .filter_map(|link| Some((link.claim.as_str(), link.evidence.as_ref().err()?.as_str())))
        .collect()
}

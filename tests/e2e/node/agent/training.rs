//! Training jobs in Pods, with fakes of all of MindCluster's programs that take part in a dump.
//!
//! The fake ClusterD in Python orders the dump. This test passes on to it what the agent has sent to the fake ClusterD that
//! takes faults, and acts as device plugin, Volcano and the part of ascend-operator that reports failed jobs.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use swansong_demo::operator;
use swansong_testcluster::{Cluster, eventually};

use super::rig::TIMEOUT;
use crate::python_image::{self, LIBTASKD, SITE};

/// Times of the fakes are this part of those measured on the real programs.
const TIME_FACTOR: &str = "0.2";

/// A job of which each Pod has as many ranks as NPUs.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) pods: i32,
    pub(crate) npus_per_pod: i32,
    pub(crate) first_npu: i32,
    pub(crate) annotations: &'static [(&'static str, &'static str)],
    pub(crate) save_seconds: u32,
}

/// A job whose ranks are connected to MindIO's controller.
pub(crate) struct Training {
    pub(crate) job: Job,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    checkpoints: PathBuf,
}

impl Training {
    /// Creates the job and all that belongs to it, and waits until it trains.
    pub(crate) async fn start(cluster: &Cluster, leader: &Leader, folder: &Path, job: Job) -> Self {
        let client = cluster.client().await.unwrap();
        let namespace = cluster.namespace(job.name).await.unwrap();
        let checkpoints = folder.join(job.name);
        std::fs::create_dir(&checkpoints).unwrap();
        open_to_all(&checkpoints);
        let object = serde_json::from_value(manifest(job, leader.address, &checkpoints)).unwrap();
        let jobs = operator::ascend_jobs(client.clone(), &namespace);
        let stored = jobs.create(&PostParams::default(), &object).await.unwrap();
        let training = Self { job, namespace, uid: stored.uid().unwrap(), checkpoints };
        training.create_pod_group(cluster).await;
        operator::reconcile(&client, &stored).await.unwrap();
        training.allot_devices(&client).await;
        let what = format!("{} trains", job.name);
        eventually(&what, TIMEOUT, || async {
            let log = training.logs(cluster).await;
            let ready = log.contains("all processors registered") && leader.has_job(&training.uid);
            if ready { Ok(()) } else { Err(log) }
        })
        .await
        .unwrap();
        training
    }

    /// As Volcano and ClusterD do for the operator's job.
    async fn create_pod_group(&self, cluster: &Cluster) {
        let metadata = json!({
            "name": self.group(), "namespace": self.namespace,
            "labels": {"process-recover-enable": "on"}, "annotations": {"recover-strategy": "dump"},
        });
        let group =
            json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata});
        let summary = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"job_status": "running"},
            "metadata": {"name": format!("job-summary-{}", self.job.name), "namespace": self.namespace}});
        cluster.apply(&format!("{group}\n---\n{summary}")).await.unwrap();
    }

    fn group(&self) -> String {
        format!("{}-{}", self.job.name, self.uid)
    }

    /// As the device plugin does, which writes the devices of a Pod as annotations.
    async fn allot_devices(&self, client: &Client) {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let mut names: Vec<_> = self.pods(client).await.iter().map(ResourceExt::name_any).collect();
        names.sort();
        for (index, name) in (0..).zip(names) {
            let first = self.job.first_npu + index * self.job.npus_per_pod;
            let devices: Vec<_> = (first..first + self.job.npus_per_pod).collect();
            let real: Vec<_> = devices.iter().map(|device| format!("Ascend910-{device}")).collect();
            let devices: Vec<_> = devices
                .iter()
                .map(|device| json!({"device_id": device.to_string(), "device_ip": format!("10.0.1.{device}")}))
                .collect();
            let configuration = json!({"pod_name": name, "server_id": "10.0.0.1", "devices": devices});
            let annotations = json!({"metadata": {"annotations": {
                "ascend.kubectl.kubernetes.io/ascend-910-configuration": configuration.to_string(),
                "huawei.com/AscendReal": real.join(","),
            }}});
            pods.patch(&name, &PatchParams::default(), &Patch::Merge(annotations)).await.unwrap();
        }
    }

    async fn pods(&self, client: &Client) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// Acts as ascend-operator and ClusterD until a Pod has failed and its PodGroup is deleted.
    pub(crate) async fn fail_with_first_pod(&self, client: Client, leader: &Leader) {
        let mut status = None;
        eventually("a Pod has failed", Duration::from_mins(4), || {
            let now = leader.status(&self.uid);
            let is_new = now.is_some() && status != now;
            status.clone_from(&now);
            let client = client.clone();
            async move {
                if is_new {
                    self.set_status(&client, &now.unwrap_or_default()).await;
                }
                let pods = self.pods(&client).await;
                let failed = pods.iter().any(|pod| {
                    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed")
                });
                failed.then_some(()).ok_or("none has failed")
            }
        })
        .await
        .unwrap();
        leader.send(&json!({"delete_pod_group": self.uid}));
        pod_groups(client, &self.namespace)
            .delete(&self.group(), &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }

    async fn set_status(&self, client: &Client, status: &str) {
        let annotation = json!({"metadata": {"annotations": {"ProcessRecoverStatus": status}}});
        let groups = pod_groups(client.clone(), &self.namespace);
        groups.patch(&self.group(), &PatchParams::default(), &Patch::Merge(annotation)).await.unwrap();
    }

    /// Whether a checkpoint with its final name exists.
    pub(crate) fn has_file(&self) -> bool {
        let folder = self.checkpoints.join("iter_0000001");
        folder.is_dir() && std::fs::read_dir(folder).unwrap().next().is_some()
    }

    /// The logs of all Pods.
    pub(crate) async fn logs(&self, cluster: &Cluster) -> String {
        let selector = format!("--selector=job-name={}", self.job.name);
        let arguments = ["--namespace", &self.namespace, "logs", &selector, "--prefix", "--tail=-1"];
        cluster.kubectl(&arguments).await.unwrap_or_else(|error| error.to_string())
    }
}

/// The AscendJob: only the annotation asks for a dump.
fn manifest(job: Job, clusterd: SocketAddr, checkpoints: &Path) -> Value {
    let ranks: Vec<_> = (0..job.pods * job.npus_per_pod).collect();
    let variables = BTreeMap::from([
        ("FAKE_TIME_FACTOR", TIME_FACTOR.to_owned()),
        ("FAKE_CHECKPOINT_DIR", "/checkpoints".to_owned()),
        ("FAKE_SAVE_SECONDS", job.save_seconds.to_string()),
        ("FAKE_CLUSTERD_ADDR", clusterd.ip().to_string()),
        ("FAKE_CLUSTERD_PORT", clusterd.port().to_string()),
        ("FAKE_GROUPS", json!([{"ranks": ranks, "replicas": 2}]).to_string()),
        // Names the image's site directory.
        ("LD_PRELOAD", LIBTASKD.to_owned()),
    ]);
    let env: Vec<_> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let npus = json!({"huawei.com/Ascend910": job.npus_per_pod});
    let replica = |manager: &str, count: i32| {
        json!({
            "replicas": count,
            "restartPolicy": "Never",
            "template": {"spec": {
                "terminationGracePeriodSeconds": 5,
                "volumes": [{"name": "checkpoints", "hostPath": {"path": checkpoints}}],
                "containers": [{
                    "name": "ascend", "image": python_image::NAME, "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", format!("{manager}exec python3 -B {SITE}/torchrun.py")],
                    "env": env,
                    "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
                    "resources": {"limits": npus, "requests": npus},
                }],
            }},
        })
    };
    let mut replicas = json!({"Master": replica(&format!("python3 -B {SITE}/manager.py & "), 1)});
    if job.pods > 1 {
        replicas["Worker"] = replica("", job.pods - 1);
    }
    let mut annotations = BTreeMap::from([("recover-strategy", "dump")]);
    annotations.extend(job.annotations.iter().copied());
    json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": job.name, "labels": {"framework": "pytorch"}, "annotations": annotations},
        "spec": {"schedulerName": "default-scheduler", "replicaSpecs": replicas},
    })
}

fn pod_groups(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = kube::api::GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "PodGroup");
    Api::namespaced_with(client, namespace, &kube::api::ApiResource::from_gvk(&kind))
}

/// Containers run as a user that the machine doesn't know.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// The fake ClusterD that orders dumps, as a process of this machine.
pub(crate) struct Leader {
    process: Child,
    commands: Mutex<ChildStdin>,
    jobs: Arc<Mutex<BTreeMap<String, Option<String>>>>,
    pub(crate) address: SocketAddr,
}

impl Leader {
    pub(crate) fn start(host: IpAddr) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake-training");
        let mut process = Command::new("python3")
            .args(["-B", "clusterd.py", &host.to_string()])
            .current_dir(folder)
            .env("FAKE_TIME_FACTOR", TIME_FACTOR)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let first: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        let port = u16::try_from(first["port"].as_u64().unwrap()).unwrap();
        let jobs = Arc::new(Mutex::new(BTreeMap::new()));
        let known = Arc::clone(&jobs);
        std::thread::spawn(move || {
            for line in lines {
                let event: Value = serde_json::from_str(&line).unwrap();
                let status = event["status"].as_str().map(str::to_owned);
                known.lock().unwrap().insert(event["job"].as_str().unwrap().to_owned(), status);
            }
        });
        let commands = Mutex::new(process.stdin.take().unwrap());
        Self { process, commands, jobs, address: SocketAddr::from((host, port)) }
    }

    /// Sends a command, a line of JSON.
    pub(crate) fn send(&self, command: &Value) {
        writeln!(self.commands.lock().unwrap(), "{command}").unwrap();
    }

    fn has_job(&self, uid: &str) -> bool {
        self.jobs.lock().unwrap().contains_key(uid)
    }

    /// What became of a job's dump.
    pub(crate) fn status(&self, uid: &str) -> Option<String> {
        self.jobs.lock().unwrap().get(uid).cloned().flatten()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

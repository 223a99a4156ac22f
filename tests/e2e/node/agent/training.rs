//! Training jobs in Pods, with fakes of all of MindCluster's programs that take part in a dump.
//!
//! The fake ClusterD in Python orders the dump. This test passes on to it what the agent has sent to the fake ClusterD that
//! takes faults, and acts as device plugin, Volcano and the part of ascend-operator that reports failed jobs.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
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
use crate::python_image::{self, LIBTASKD, SITE, UNUSUAL_PREFIX};

/// Times of the fakes are this part of those measured on the real programs.
const TIME_FACTOR: &str = "0.2";

/// A job of which each Pod has as many ranks as NPUs.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) pods: i32,
    pub(crate) npus_per_pod: i32,
    pub(crate) first_npu: i32,
    /// The rank whose NPU fails; rank 0 is in the first Pod.
    pub(crate) lost_rank: i32,
    /// Of the job and of its Pods.
    pub(crate) annotations: &'static [(&'static str, &'static str)],
    pub(crate) save_seconds: u32,
    /// Whether image and start script are as MindCluster's documentation has them before its changes.
    pub(crate) is_untouched: bool,
}

impl Job {
    pub(crate) fn lost_npu(&self) -> i32 {
        self.first_npu + self.lost_rank
    }
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
        for npu in job.first_npu..job.first_npu + job.pods * job.npus_per_pod {
            std::fs::write(folder.join(format!("davinci{npu}")), "").unwrap();
        }
        let object = serde_json::from_value(manifest(job, leader.address, folder)).unwrap();
        let jobs = operator::ascend_jobs(client.clone(), &namespace);
        let stored = jobs.create(&PostParams::default(), &object).await.unwrap();
        let training = Self { job, namespace, uid: stored.uid().unwrap(), checkpoints };
        training.create_pod_group(cluster).await;
        operator::reconcile(&client, &stored).await.unwrap();
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
        let arguments =
            ["--namespace", &self.namespace, "logs", &selector, "--all-containers", "--prefix", "--tail=-1"];
        cluster.kubectl(&arguments).await.unwrap_or_else(|error| error.to_string())
    }
}

/// The AscendJob: only the annotation asks for a dump.
fn manifest(job: Job, clusterd: SocketAddr, folder: &Path) -> Value {
    let ranks: Vec<_> = (0..job.pods * job.npus_per_pod).collect();
    let mut variables = BTreeMap::from([
        ("FAKE_TIME_FACTOR", TIME_FACTOR.to_owned()),
        ("FAKE_CHECKPOINT_DIR", "/checkpoints".to_owned()),
        ("FAKE_SAVE_SECONDS", job.save_seconds.to_string()),
        ("FAKE_CLUSTERD_ADDR", clusterd.ip().to_string()),
        ("FAKE_CLUSTERD_PORT", clusterd.port().to_string()),
        ("FAKE_GROUPS", json!([{"ranks": ranks, "replicas": 2}]).to_string()),
    ]);
    if !job.is_untouched {
        // Names the image's site directory.
        variables.insert("LD_PRELOAD", LIBTASKD.to_owned());
    }
    let env: Vec<_> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let npus = json!({"huawei.com/Ascend910": job.npus_per_pod});
    let (image, manager, launcher) = if job.is_untouched {
        let launcher = format!("exec {UNUSUAL_PREFIX}/bin/python3 -B -m torch.distributed.run");
        (python_image::UNUSUAL_NAME, String::new(), launcher)
    } else {
        let launcher = format!("exec python3 -B {SITE}/torchrun.py");
        (python_image::NAME, format!("python3 -B {SITE}/manager.py & "), launcher)
    };
    let replica = |kind: &str, manager: &str, first_npu: i32| {
        let npus_of_pod = first_npu..first_npu + job.npus_per_pod;
        let mut volumes = vec![json!({"name": "checkpoints", "hostPath": {"path": folder.join(job.name)}})];
        let mut mounts = vec![json!({"name": "checkpoints", "mountPath": "/checkpoints"})];
        for npu in npus_of_pod.clone() {
            let device = format!("davinci{npu}");
            volumes.push(json!({"name": device, "hostPath": {"path": folder.join(&device), "type": "File"}}));
            mounts.push(json!({"name": device, "mountPath": format!("/dev/{device}")}));
        }
        let mut annotations = device_annotations(&format!("{}-{kind}-0", job.name), npus_of_pod);
        annotations.extend(job.annotations.iter().map(|(name, value)| (*name, (*value).to_owned())));
        json!({
            "replicas": 1,
            "restartPolicy": "Never",
            "template": {"metadata": {"annotations": annotations}, "spec": {
                "terminationGracePeriodSeconds": 5,
                "volumes": volumes,
                "containers": [{
                    "name": "ascend", "image": image, "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", format!("{manager}{launcher}")],
                    "env": env,
                    "volumeMounts": mounts,
                    "resources": {"limits": npus, "requests": npus},
                }],
            }},
        })
    };
    let mut replicas = json!({"Master": replica("master", &manager, job.first_npu)});
    if job.pods > 1 {
        replicas["Worker"] = replica("worker", "", job.first_npu + job.npus_per_pod);
    }
    let mut annotations = BTreeMap::from([("recover-strategy", "dump")]);
    annotations.extend(job.annotations.iter().copied());
    json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": job.name, "labels": {"framework": "pytorch"}, "annotations": annotations},
        "spec": {"schedulerName": "default-scheduler", "replicaSpecs": replicas},
    })
}

/// What device plugin and scheduler write on a Pod.
fn device_annotations(pod: &str, npus: Range<i32>) -> BTreeMap<&'static str, String> {
    let names = npus.clone().map(|npu| format!("Ascend910-{npu}")).collect::<Vec<_>>().join(",");
    let devices: Vec<_> =
        npus.map(|npu| json!({"device_id": npu.to_string(), "device_ip": format!("10.0.1.{npu}")})).collect();
    let configuration = json!({"pod_name": pod, "server_id": "10.0.0.1", "devices": devices});
    BTreeMap::from([
        ("ascend.kubectl.kubernetes.io/ascend-910-configuration", configuration.to_string()),
        ("huawei.com/Ascend910", names.clone()),
        ("huawei.com/AscendReal", names),
    ])
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

    /// The result of a job's dump.
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

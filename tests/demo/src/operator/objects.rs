//! The Service and the Pods of an AscendJob: pure functions.

use serde_json::{Map, Value, json};

use super::CONTAINER;
use super::env::{Place, appended};
use super::job::{Job, JobError, Replica};

/// The port that every rank 0 has.
const PORT_NAME: &str = "ascendjob-port";
const PORT: u16 = 2222;

/// Addresses that pods get of each other through their environment.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Cluster address of the rank-0 Service.
    pub rank_zero: String,
    /// The port `ascendjob-port` of rank 0.
    pub rank_zero_port: u16,
    /// Cluster address of ClusterD's Service; its name is used where there is no such Service.
    pub clusterd: Option<String>,
}

impl Addresses {
    /// Reads them from the rank-0 Service as it is stored.
    pub fn of(service: &Value, clusterd: Option<String>) -> Option<Self> {
        let ports = service["spec"]["ports"].as_array()?;
        let port = ports.iter().find(|port| port["name"] == PORT_NAME)?["port"].as_u64()?;
        Some(Self {
            rank_zero: service["spec"]["clusterIP"].as_str()?.to_owned(),
            rank_zero_port: u16::try_from(port).ok()?,
            clusterd,
        })
    }
}

/// The Service through which the other ranks reach rank 0; none for a job without such a rank.
///
/// It has the named ports of the job's own template, so ports that a Pod gets later don't matter.
pub fn rank_zero_service(job: &Value) -> Result<Option<Value>, JobError> {
    let job = Job::read(job)?;
    let Some(replica) = job.rank_zero() else { return Ok(None) };
    let labels = labels(&job, replica, 0);
    let mut ports = Map::new();
    for port in ports_with_default(replica.container()) {
        // As the real one does: by name, so that of two ports without a name one is left.
        let name = port["name"].as_str().unwrap_or_default();
        ports.insert(name.to_owned(), json!({ "name": name, "port": port["containerPort"] }));
    }
    Ok(Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": pod_name(&job, replica, 0),
            "namespace": job.namespace,
            "labels": labels,
            "ownerReferences": [owner(&job)],
        },
        "spec": { "selector": labels, "ports": ports.values().collect::<Vec<_>>() },
    })))
}

/// All Pods of a job, rank 0 first.
pub fn pods(job: &Value, addresses: &Addresses) -> Result<Vec<Value>, JobError> {
    let job = Job::read(job)?;
    let mut replicas: Vec<_> = job.replicas.iter().collect();
    replicas.sort_by_key(|replica| !replica.is_rank_zero());
    let all = replicas.into_iter().flat_map(|replica| (0..replica.count).map(move |index| (replica, index)));
    Ok(all.map(|(replica, index)| pod(&job, replica, index, addresses)).collect())
}

fn pod(job: &Job, replica: &Replica, index: u32, addresses: &Addresses) -> Value {
    let first = u32::from(job.rank_zero_has_npus() && !replica.is_rank_zero());
    let place = Place { job, replica, rank: first + index, addresses };
    let mut spec = replica.template["spec"].clone();
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if container["name"] != CONTAINER {
            continue;
        }
        if replica.is_rank_zero() {
            container["ports"] = ports_with_default(Some(&*container)).into();
        }
        match container["env"].as_array_mut() {
            Some(env) => env.extend(appended(place)),
            None => container["env"] = appended(place).into(),
        }
    }
    spec["restartPolicy"] = replica.restart_policy.into();
    if spec["schedulerName"].as_str().is_none_or(str::is_empty) {
        spec["schedulerName"] = job.scheduler.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job, replica, index),
            "namespace": job.namespace,
            "labels": pod_labels(job, replica, index),
            "annotations": annotations(job, replica, place.rank),
            "ownerReferences": [owner(job)],
        },
        "spec": spec,
    })
}

fn pod_name(job: &Job, replica: &Replica, index: u32) -> String {
    format!("{}-{}-{index}", job.name, replica.kind.to_lowercase())
}

/// Labels that Service and Pods share: the Service selects by them.
fn labels(job: &Job, replica: &Replica, index: u32) -> Map<String, Value> {
    let (kind, index) = (replica.kind.to_lowercase(), index.to_string());
    let labels = [
        ("group-name", "mindxdl.gitee.com"),
        ("job-name", job.name),
        ("replica-index", &index),
        ("replica-type", &kind),
        ("training.kubeflow.org/job-name", job.name),
        ("training.kubeflow.org/operator-name", "ascendjob-controller"),
        ("training.kubeflow.org/replica-index", &index),
        ("training.kubeflow.org/replica-type", &kind),
    ];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

fn pod_labels(job: &Job, replica: &Replica, index: u32) -> Map<String, Value> {
    let mut all = own(replica, "labels");
    all.extend(labels(job, replica, index));
    all.insert("version".to_owned(), "0".into());
    if replica.is_rank_zero() && index == 0 {
        all.insert("training.kubeflow.org/job-role".to_owned(), "master".into());
    }
    all
}

/// The template's own annotations and three of the operator's. The job's are not among them.
fn annotations(job: &Job, replica: &Replica, rank: u32) -> Map<String, Value> {
    let mut all = own(replica, "annotations");
    all.insert("hccl/rankIndex".to_owned(), rank.to_string().into());
    all.insert("scheduling.k8s.io/group-name".to_owned(), format!("{}-{}", job.name, job.uid).into());
    all.insert("volcano.sh/task-spec".to_owned(), replica.kind.to_lowercase().into());
    all
}

fn own(replica: &Replica, key: &str) -> Map<String, Value> {
    replica.template["metadata"][key].as_object().cloned().unwrap_or_default()
}

fn owner(job: &Job) -> Value {
    json!({
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "name": job.name,
        "uid": job.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn ports_with_default(container: Option<&Value>) -> Vec<Value> {
    let mut ports =
        container.and_then(|container| container["ports"].as_array()).cloned().unwrap_or_default();
    if !ports.iter().any(|port| port["name"] == PORT_NAME) {
        ports.push(json!({ "name": PORT_NAME, "containerPort": PORT, "protocol": "TCP" }));
    }
    ports
}

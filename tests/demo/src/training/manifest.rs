//! The AscendJob of a training job of fakes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};
use swansong_inject::policy::LIBMSPTI;
use swansong_testcluster::Error;

use super::{Job, Leader};
use crate::python_image;

/// The AscendJob. Only the annotation asks for a dump, unless the job is set up by hand.
pub(super) fn ascend_job(job: Job, leader: &Leader, folder: &Path) -> Result<Value, Error> {
    let mut replicas = json!({"Master": replica(job, 0, leader, folder)?});
    if job.pods > 1 {
        replicas["Worker"] = replica(job, 1, leader, folder)?;
    }
    let mut annotations = BTreeMap::from([("recover-strategy", "dump")]);
    annotations.extend(job.annotations.iter().copied());
    Ok(json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": job.name, "labels": {"framework": "pytorch"}, "annotations": annotations},
        "spec": {"schedulerName": "default-scheduler", "replicaSpecs": replicas},
    }))
}

/// One of the two replicas, by the number of its Pod.
fn replica(job: Job, pod: i32, leader: &Leader, folder: &Path) -> Result<Value, Error> {
    let kind = if pod == 0 { "master" } else { "worker" };
    let first_npu = job.first_npu + pod * job.npus_per_pod;
    let npus_of_pod = first_npu..first_npu + job.npus_per_pod;
    let mut volumes = vec![json!({"name": "checkpoints", "hostPath": {"path": folder.join(job.name)}})];
    let mut mounts = vec![json!({"name": "checkpoints", "mountPath": "/checkpoints"})];
    for npu in npus_of_pod.clone() {
        let device = format!("davinci{npu}");
        volumes.push(json!({"name": device, "hostPath": {"path": folder.join(&device), "type": "File"}}));
        mounts.push(json!({"name": device, "mountPath": format!("/dev/{device}")}));
    }
    if let Some(folder) = job.hidden {
        volumes.push(json!({"name": "hidden", "emptyDir": {}}));
        mounts.push(json!({"name": "hidden", "mountPath": folder}));
    }
    let mut annotations = device_annotations(&format!("{}-{kind}-0", job.name), npus_of_pod);
    annotations.extend(job.annotations.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let npus = json!({"huawei.com/Ascend910": job.npus_per_pod});
    let image = if job.is_untouched { python_image::UNUSUAL_NAME } else { python_image::NAME };
    let mut container = json!({
        "name": "ascend", "image": image, "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", start_script(job, pod)?],
        "env": environment(job, leader)?,
        "volumeMounts": mounts,
        "resources": {"limits": npus, "requests": npus},
    });
    if job.by_hand {
        container["ports"] = json!([
            {"containerPort": 8000, "name": "ttp-port"}, {"containerPort": 9601, "name": "taskd-port"},
        ]);
    }
    Ok(json!({
        "replicas": 1,
        "restartPolicy": "Never",
        "template": {"metadata": {"annotations": annotations}, "spec": {
            "terminationGracePeriodSeconds": 5, "volumes": volumes, "containers": [container],
        }},
    }))
}

fn environment(job: Job, leader: &Leader) -> Result<Vec<Value>, Error> {
    let ranks: Vec<_> = (0..job.pods * job.npus_per_pod).collect();
    let mut variables = vec![
        ("FAKE_TIME_FACTOR", leader.time_factor.to_string()),
        ("FAKE_CHECKPOINT_DIR", "/checkpoints".to_owned()),
        ("FAKE_SAVE_SECONDS", job.save_seconds.to_string()),
        ("FAKE_CLUSTERD_ADDR", leader.address.ip().to_string()),
        ("FAKE_CLUSTERD_PORT", leader.address.port().to_string()),
        ("FAKE_GROUPS", json!([{"ranks": ranks, "replicas": 2}]).to_string()),
    ];
    let libtaskd = python_image::libtaskd()?;
    if job.by_hand {
        variables.push(("TTP_PORT", "8000".to_owned()));
        variables.push(("TASKD_PROCESS_ENABLE", "on".to_owned()));
        variables.push(("LD_PRELOAD", format!("{LIBMSPTI}:{libtaskd}")));
    } else if !job.is_untouched {
        // Names the image's site directory.
        variables.push(("LD_PRELOAD", libtaskd));
    }
    let mut env: Vec<_> =
        variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    if job.by_hand {
        env.push(json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}));
    }
    Ok(env)
}

/// Starts the launcher, and on rank 0 the TaskD Manager beside it.
fn start_script(job: Job, pod: i32) -> Result<String, Error> {
    if job.is_untouched {
        return Ok(format!("exec {}/bin/python3 -B -m torch.distributed.run", python_image::UNUSUAL_PREFIX));
    }
    let site = python_image::site()?;
    let controller = if pod == 0 { "POD_IP" } else { "MASTER_ADDR" };
    let export = if job.by_hand { format!("export TTP_ADDR=${controller}; ") } else { String::new() };
    let manager = if pod == 0 { format!("python3 -B {site}/manager.py & ") } else { String::new() };
    Ok(format!("{export}{manager}exec python3 -B {site}/torchrun.py"))
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

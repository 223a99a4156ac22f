//! The preload check on real containers: right, missing, overwritten and partly overwritten; and what is said of their
//! training program and of the releases in their image.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use swansong_demo::training_image::{self, PROGRAM};
use swansong_inject::inject;
use swansong_inject::policy::{LIBMSPTI, LIBTASKD, Policy};
use swansong_inject::workload::WorkloadKind;
use swansong_testcluster::image::ImageBuilder;
use swansong_testcluster::{Cluster, eventually};

use super::rig::{Agents, TIMEOUT, alone};

/// Judged soon, since tests wait for it.
const CONFIG: &str = "clusterd: {dial: false}\npreload: {grace: 2s, interval: 1s}\n";

/// A pod, what starts it, and the verdict on it.
struct Case {
    name: &'static str,
    annotations: Value,
    /// The environment after the start script.
    env: &'static [&'static str],
    /// What the container runs instead of the training program.
    program: &'static [&'static str],
    user: i64,
    event: &'static str,
    why: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |name, event, why| Case {
        name,
        annotations: json!({}),
        env: &[],
        program: &[PROGRAM],
        user: 0,
        event,
        why,
    };
    let nowhere = "/opt/nowhere/libtaskd.so";
    let missing =
        json!({"swansong.dev/libtaskd": nowhere, "swansong.dev/libmspti": "/opt/nowhere/libmspti.so"});
    vec![
        case("right", "PreloadLive", "PreloadLive"),
        Case { user: 1000, ..case("right-user", "PreloadLive", "PreloadLive") },
        Case { annotations: missing, ..case("missing", "PreloadNotLive", "FileMissing") },
        Case {
            annotations: json!({"swansong.dev/libtaskd": nowhere}),
            user: 1000,
            ..case("partly-missing", "PreloadPartlyLive", "FileMissing")
        },
        Case {
            env: &["LD_PRELOAD=/opt/own/libown.so"],
            ..case("overwritten", "PreloadNotLive", "Overwritten")
        },
        Case {
            env: &["LD_PRELOAD=/usr/local/Ascend/cann/lib64/libmspti.so:/opt/own/libown.so"],
            ..case("partly-overwritten", "PreloadPartlyLive", "Overwritten")
        },
        Case { env: &["--unset=LD_PRELOAD"], ..case("cleared", "PreloadNotLive", "NotInEnvironment") },
        Case {
            env: &TRAINING,
            program: &[
                PYTHON,
                "-u",
                "/job/MindSpeed-LLM/pretrain_gpt.py",
                "--use-distributed-optimizer",
                "--save",
                "/ckpt",
            ],
            ..case("can-save", "TrainerCanSave", "can save a dying checkpoint")
        },
        Case {
            env: &TRAINING,
            program: &[PYTHON, "/job/MindSpeed-LLM/pretrain_gpt.py", "--lora-r", "8", "--save", "/ckpt"],
            ..case("lora", "TrainerCannotSave", "LoraStopsJob")
        },
        case("old-release", "KnownDefects", "move to v26.0.0 or newer"),
    ]
}

/// The training program under Python's name, as whose arguments those of a training are read.
const PYTHON: &str = "/usr/bin/python3";
/// What ascend-operator sets for a job with 16 NPUs.
const TRAINING: [&str; 3] = ["HIGH_AVAILABILITY=dump", "WORLD_SIZE=16", "LOCAL_WORLD_SIZE=16"];
const IMAGE: &str = "localhost/swansong-test-preload:1";

/// The training image with a program to change the environment, and a library of the user's own.
async fn load_image(cluster: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let compiled = |source: &str, output: &str, flags: &[&str]| {
        let path = folder.path().join(output);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/demo/training").join(source);
        let cc = std::process::Command::new("cc")
            .args(["-D_GNU_SOURCE", "-O2"])
            .args(flags)
            .arg("-o")
            .arg(&path)
            .arg(source)
            .status();
        assert!(cc.unwrap().success());
        path
    };
    let library = compiled("preloaded.c", "library.so", &["-shared", "-fPIC", "-DNAME=\"library\""]);
    let mut image = ImageBuilder::new(IMAGE).entrypoint([PROGRAM]);
    for path in [LIBMSPTI, LIBTASKD, "/opt/own/libown.so"] {
        image = image.file(&library, path, 0o755).unwrap();
    }
    let program = compiled("train.c", "train", &[]);
    image = image.program(&program, PROGRAM).unwrap().program(&program, PYTHON).unwrap();
    let metadata = folder.path().join("METADATA");
    std::fs::write(&metadata, "Name: taskd\n").unwrap();
    let release = "/usr/local/lib/python3.11/dist-packages/taskd-7.3.0.dist-info/METADATA";
    image = image.file(&metadata, release, 0o644).unwrap();
    image = image.program(Path::new("/usr/bin/env"), "/usr/bin/env").unwrap();
    let tar = folder.path().join("image.tar");
    image.write(&tar).unwrap();
    cluster.load_image(&tar).await.unwrap();
    assert_ne!(IMAGE, training_image::NAME);
}

/// The pod as Swansong's webhook would have it stored.
fn injected(case: &Case) -> Value {
    let command: Vec<&str> = if case.env.is_empty() {
        case.program.iter().chain(&["--stay"]).copied().collect()
    } else {
        ["/usr/bin/env"].iter().chain(case.env).chain(case.program).chain(&["--stay"]).copied().collect()
    };
    let mut annotations = case.annotations.clone();
    annotations["recover-strategy"] = json!("dump");
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": case.name, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "ascend", "image": IMAGE, "imagePullPolicy": "Never", "command": command,
                "securityContext": {"runAsUser": case.user},
            }],
        },
    });
    let outcome = inject(WorkloadKind::Pod, &pod.to_string(), &Policy::default()).unwrap();
    let operations = serde_json::to_value(&outcome.operations).unwrap();
    json_patch::patch(&mut pod, &serde_json::from_value::<json_patch::Patch>(operations).unwrap()).unwrap();
    pod
}

#[tokio::test]
async fn verdicts_on_preloads_are_events_on_pods() {
    let Some((_turn, cluster)) = alone().await else { return };
    load_image(cluster).await;
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("preload").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    for case in cases() {
        let pod = serde_json::from_value(injected(&case)).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    // Without the overlay the verdict is unknown and there is no Event.
    let agents = Agents::start(cluster, "agent", Path::new("/"), CONFIG).await;
    eventually("the agent finds that it has no permission", TIMEOUT, || async {
        let status = agents.status().await?;
        let verdicts = verdicts(&status, &namespace);
        let hidden = verdicts.len() == cases().len() && verdicts.iter().all(|(_, why)| why == "NoPermission");
        hidden.then_some(()).ok_or_else(|| status["preload"].to_string())
    })
    .await
    .unwrap();
    assert_eq!(events(&client, &namespace).await.unwrap(), []);
    agents.stop().await;

    let agents = Agents::start(cluster, "overlays/agent-preload-check", Path::new("/"), CONFIG).await;
    for case in cases() {
        eventually(&format!("the verdict on {}", case.name), TIMEOUT, || async {
            let events = events(&client, &namespace).await?;
            let of_pod: Vec<_> = events.iter().filter(|(pod, ..)| pod == case.name).collect();
            // One of each kind: on the preload, the training and the releases.
            let kind = |reason: &str| reason.chars().take(4).collect::<String>();
            let of_kind: Vec<_> =
                of_pod.iter().filter(|(_, reason, _)| kind(reason) == kind(case.event)).collect();
            match of_kind[..] {
                [(_, reason, message)] if *reason == case.event && message.contains(case.why) => Ok(()),
                _ => Err(format!("{of_pod:?}; {}", agents.status().await?["preload"])),
            }
        })
        .await
        .unwrap();
    }
    agents.stop().await;
    cluster.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).await.unwrap();
}

/// Pod and reason of each verdict on Pods of the namespace in `/status`. Other tests may have Pods on the node.
fn verdicts(status: &Value, namespace: &str) -> Vec<(String, String)> {
    let mut pods = status["preload"].as_array().cloned().unwrap_or_default();
    pods.retain(|pod| pod["namespace"] == namespace);
    let of_pod = |pod: &Value| {
        let containers = pod["containers"].as_array().cloned().unwrap_or_default();
        let name = pod["name"].as_str().unwrap_or_default().to_owned();
        containers
            .into_iter()
            .map(move |container| (name.clone(), container["reason"].as_str().unwrap_or_default().to_owned()))
    };
    pods.iter().flat_map(of_pod).collect()
}

/// Pod, reason and message of the agent's Events.
async fn events(client: &kube::Client, namespace: &str) -> Result<Vec<(String, String, String)>, String> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let list = tokio::time::timeout(Duration::from_secs(10), events.list(&ListParams::default())).await;
    let list = list.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let ours = list.items.into_iter().filter(|event| {
        event.source.as_ref().and_then(|source| source.component.as_deref()) == Some("swansong-agent")
    });
    Ok(ours
        .map(|event| {
            (
                event.involved_object.name.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default(),
            )
        })
        .collect())
}

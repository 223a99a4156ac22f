//! Parts that zero touch needs and an image or a Pod lacks: the kubelet's own answer, and the agent's Event.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use swansong_demo::{python_image, training_image};
use swansong_inject::inject;
use swansong_inject::policy::{DumpPolicy, Policy};
use swansong_inject::workload::WorkloadKind;
use swansong_testcluster::{eventually, expect_events};

use super::rig::{Agents, TIMEOUT, alone};

/// Judged soon, since tests wait for it.
const CONFIG: &str = "clusterd: {dial: false}\npreload: {grace: 2s, interval: 1s}\n";

/// A Pod that lacks something, and what is said of it.
struct Case {
    name: &'static str,
    image: &'static str,
    command: Value,
    /// A folder of the image that an empty volume hides.
    hidden: Option<String>,
    launcher_patch: bool,
    /// The phase of the Pod.
    phase: &'static [&'static str],
    event: &'static str,
    message: &'static str,
}

fn cases() -> Vec<Case> {
    let python = format!("{}/bin/python3", python_image::UNUSUAL_PREFIX);
    let taskd = Path::new(&python_image::unusual_libtaskd().unwrap()).parent().unwrap().display().to_string();
    let case = |name, event, message| Case {
        name,
        image: python_image::UNUSUAL_NAME,
        command: json!([python, "-B", "-c", "import signal; signal.pause()"]),
        hidden: None,
        launcher_patch: true,
        phase: &["Running"],
        event,
        message,
    };
    vec![
        Case {
            image: training_image::NAME,
            command: json!([training_image::PROGRAM, "--stay"]),
            // With the restart policy `Never` the Pod fails.
            phase: &["Pending", "Failed"],
            ..case("no-shell", "LibrariesNotSearched", "swansong.dev/libraries: configured")
        },
        Case { hidden: Some(taskd), ..case("no-taskd", "LibrariesNotFound", "no libtaskd.so.") },
        Case {
            hidden: Some("/usr/local/Ascend/ascend-toolkit/latest/lib64".to_owned()),
            ..case("no-mspti", "LibrariesNotFound", "no libmspti.so.")
        },
        Case {
            launcher_patch: false,
            command: json!([python, "-B", "-m", "torch.distributed.run"]),
            ..case("no-patch", "LauncherHookNotActive", "NotLoaded")
        },
    ]
}

/// The Pod as Swansong's webhook stores it with `zeroTouch`, and one part less.
fn injected(case: &Case) -> Value {
    let mut container = json!({
        "name": "ascend", "image": case.image, "imagePullPolicy": "Never", "command": case.command,
    });
    let mut volumes = json!([]);
    if let Some(folder) = &case.hidden {
        volumes = json!([{"name": "hidden", "emptyDir": {}}]);
        container["volumeMounts"] = json!([{"name": "hidden", "mountPath": folder}]);
    }
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": case.name, "annotations": {"recover-strategy": "dump"}},
        "spec": {
            "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "restartPolicy": "Never",
            "volumes": volumes, "containers": [container],
        },
    });
    let policy = Policy {
        discover_libraries: true,
        dump: DumpPolicy { launcher_patch: case.launcher_patch, ..DumpPolicy::default() },
        ..Policy::default()
    };
    let outcome = inject(WorkloadKind::Pod, &pod.to_string(), &policy).unwrap();
    let operations = serde_json::to_value(&outcome.operations).unwrap();
    json_patch::patch(&mut pod, &serde_json::from_value::<json_patch::Patch>(operations).unwrap()).unwrap();
    pod
}

#[tokio::test]
async fn each_part_that_an_image_lacks_is_an_event_and_only_a_missing_shell_stops_the_pod() {
    let Some((_turn, cluster)) = alone().await else { return };
    let folder = tempfile::tempdir().unwrap();
    cluster.load_image(&training_image::build(folder.path()).unwrap()).await.unwrap();
    cluster.load_image(&python_image::build_unusual(folder.path()).unwrap()).await.unwrap();
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("parts").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    for case in cases() {
        let pod = serde_json::from_value(injected(&case)).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let agents = Agents::start(cluster, "overlays/agent-preload-check", Path::new("/"), CONFIG).await;
    for case in cases() {
        let seen = expect_events(&client, &namespace, "Pod", case.name, &[case.event]).await;
        let of_pod = ["--namespace", &namespace, "describe", &format!("pod/{}", case.name)];
        let description = cluster.kubectl(&of_pod).await.unwrap();
        if let Err(error) = seen {
            panic!("{error}\n{description}\n{}\n{}", agents.logs().await, agents.status().await.unwrap());
        }
        assert!(description.contains(case.message), "{}:\n{description}", case.name);
        eventually(&format!("{} is {:?}", case.name, case.phase), TIMEOUT, || async {
            let pod = pods.get(case.name).await.map_err(|error| error.to_string())?;
            let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
            if case.phase.contains(&phase.as_str()) { Ok(()) } else { Err(phase) }
        })
        .await
        .unwrap();
    }
    agents.stop().await;
    cluster.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).await.unwrap();
}

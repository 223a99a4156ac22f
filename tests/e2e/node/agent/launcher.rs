//! What the agent reports of launchers: whether the hook is active in them, and whether they know MindIO's controller.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use swansong_demo::python_image;
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::workload::WorkloadKind;
use swansong_testcluster::expect_events;

use super::rig::{Agents, alone};

/// Judged soon, since tests wait for it.
const CONFIG: &str = "clusterd: {dial: false}\npreload: {grace: 2s, interval: 1s}\n";
/// What a launcher does before it waits for orders.
const LAUNCHER: &str = "import taskd.python.framework.agent.pt_agent.pt_agent, signal; signal.pause()";
const PAUSE: &str = "import signal; signal.pause()";

/// A Pod, and what is reported of it.
struct Case {
    name: &'static str,
    /// Arguments of Python.
    arguments: &'static [&'static str],
    /// Variables that a start script or the image sets.
    variable: Option<(&'static str, &'static str)>,
    /// The path of TaskD's library that the Pod's annotation has.
    libtaskd: String,
    event: &'static str,
    message: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |name, event, message| Case {
        name,
        arguments: &["-c", LAUNCHER],
        variable: None,
        libtaskd: python_image::libtaskd().unwrap(),
        event,
        message,
    };
    let inactive = "LauncherHookNotActive";
    vec![
        case("active", "LauncherHookActive", "HookActive"),
        Case {
            variable: Some(("PYTHONPATH", "/nowhere")),
            ..case("python-path", "LauncherHookActive", "HookActive")
        },
        Case { arguments: &["-E", "-c", LAUNCHER], ..case("option-e", "LauncherHookActive", "HookActive") },
        Case { arguments: &["-I", "-c", LAUNCHER], ..case("option-i", "LauncherHookActive", "HookActive") },
        Case { arguments: &["-S", "-c", PAUSE], ..case("option-s", inactive, "SiteDisabled") },
        Case {
            arguments: &["-c", PAUSE],
            variable: Some(("VIRTUAL_ENV", "/opt/venv")),
            ..case("venv", inactive, "OtherInterpreter")
        },
        Case {
            arguments: &["-c", PAUSE],
            variable: Some(("CONDA_PREFIX", "/opt/conda")),
            ..case("conda", inactive, "OtherInterpreter")
        },
        // The image has no such directory.
        Case {
            libtaskd: "/usr/local/lib/python3.7/dist-packages/taskd/libtaskd.so".to_owned(),
            ..case("no-directory", inactive, "NotLoaded")
        },
    ]
}

/// A Pod as ascend-operator creates it.
fn pod(name: &str, arguments: &[&str], variable: Option<(&str, &str)>, annotations: &Value) -> Value {
    let command: Vec<&str> = ["/usr/bin/python3", "-B"].iter().chain(arguments).copied().collect();
    let variables = [("HIGH_AVAILABILITY", "dump"), ("RANK", "1"), ("MASTER_ADDR", "10.96.0.9")];
    let variables: Vec<Value> = variables
        .into_iter()
        .chain(variable)
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "restartPolicy": "Never",
            "containers": [{
                "name": "ascend", "image": python_image::NAME, "imagePullPolicy": "Never", "command": command,
                "env": variables,
            }],
        },
    })
}

/// The Pod as Swansong's webhook stores it.
fn injected(case: &Case) -> Value {
    let mut pod =
        pod(case.name, case.arguments, case.variable, &json!({"swansong.dev/libtaskd": case.libtaskd}));
    let outcome = inject(WorkloadKind::Pod, &pod.to_string(), &Policy::default()).unwrap();
    let operations = serde_json::to_value(&outcome.operations).unwrap();
    json_patch::patch(&mut pod, &serde_json::from_value::<json_patch::Patch>(operations).unwrap()).unwrap();
    pod
}

#[tokio::test]
async fn launchers_that_lose_a_dump_are_events_on_their_pods() {
    let Some((_turn, cluster)) = alone().await else { return };
    let folder = tempfile::tempdir().unwrap();
    cluster.load_image(&python_image::build(folder.path()).unwrap()).await.unwrap();
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("launchers").await.unwrap();
    // The webhook is away.
    cluster.kubectl(&["label", "namespace", &namespace, "swansong.dev/inject=false"]).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut expected = vec![("missed", "DumpEnvironmentMissing", "lack POD_IP, TTP_PORT, TTP_ADDR")];
    let mut created = vec![pod("missed", &["-c", PAUSE], None, &json!({}))];
    let cases = cases();
    for case in &cases {
        expected.push((case.name, case.event, case.message));
        created.push(injected(case));
    }
    for pod in created {
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    let agents = Agents::start(cluster, "overlays/agent-preload-check", Path::new("/"), CONFIG).await;
    for (name, event, message) in expected {
        let seen = expect_events(&client, &namespace, "Pod", name, &[event]).await;
        let description =
            cluster.kubectl(&["--namespace", &namespace, "describe", &format!("pod/{name}")]).await.unwrap();
        if let Err(error) = seen {
            panic!("{error}\n{description}\n{}\n{}", agents.logs().await, agents.status().await.unwrap());
        }
        assert!(description.contains(message), "{name}:\n{description}");
    }
    agents.stop().await;
    cluster.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).await.unwrap();
}

//! `swansong agent --rehearse` beside a running agent.

use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use swansong_clusterd::customization::BUILT_IN;
use tokio::task::spawn_blocking;

use super::*;
use crate::support::swansong;

impl Scene {
    /// The command with the options of the node's agent.
    fn rehearsal(&self, arguments: &[&str]) -> Command {
        let mut command = swansong(["agent", "--rehearse", "--node"]);
        command.arg(&self.site.node).arg("--host-root").arg(self.site.host.path("/"));
        command.arg("--config").arg(self.site.host.path("/agent.yaml")).args(arguments);
        command.env("KUBECONFIG", self.site.cluster.kubeconfig());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn rehearse(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.rehearsal(arguments);
        let output: Output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    /// The assertions that ClusterD has accepted, and the device of the last fault.
    fn rehearsed(&self) -> (Vec<String>, Vec<i32>) {
        self.clusterd.with(|core, _| {
            let accepted: Vec<_> =
                core.ledger().accepted.iter().filter(|accepted| accepted.node == self.site.node).collect();
            assert!(
                accepted.iter().all(|accepted| accepted.fault_id.contains(".rehearsal.")),
                "{accepted:?}"
            );
            assert!(accepted.iter().all(|accepted| accepted.code == "000011001"), "{accepted:?}");
            assert!(core.ledger().kills.iter().all(|kill| kill.node != self.site.node));
            let devices = accepted.last().map(|accepted| accepted.devices.clone()).unwrap_or_default();
            (accepted.iter().map(|accepted| accepted.assertion.clone()).collect(), devices)
        })
    }

    fn is_shown(&self) -> bool {
        self.clusterd.with(|core, _| core.statistic()).values().any(|faults| faults.contains(&self.site.node))
    }
}

fn steps(json: &str) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(json).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let steps = report["steps"].as_array().unwrap();
    steps.iter().map(|step| (text(&step["step"]), text(&step["status"]))).collect()
}

#[tokio::test]
async fn rehearsal_proves_the_way_by_grpc_beside_a_running_agent() {
    let scene = Scene::new("rehearse-grpc").await;
    let agent = scene.site.start();
    scene.relayed("True", "AllRelayed").await;

    let (code, text) = scene.rehearse(&[]).await;
    assert_eq!(code, Some(3), "a job that asks for a dump runs here: {text}");
    assert!(text.contains("bert-master-0") && text.contains("--force"), "{text}");
    assert_eq!(scene.rehearsed().0, [""; 0]);

    let file = "/user1/mindx-dl/clusterd/publicCustomization.json";
    scene.site.host.file(file, BUILT_IN);
    let (code, text) = scene.rehearse(&["--force"]).await;
    assert_eq!(code, Some(2), "ClusterD doesn't know the code: {text}");
    assert!(text.contains("doesn't have the code 000011001"), "{text}");
    assert_eq!(scene.rehearsed().0, [""; 0]);
    scene.site.host.remove(file);

    let (code, json) = scene.rehearse(&["--force", "-o", "json"]).await;
    assert_eq!(code, Some(0), "{json}");
    let names =
        ["jobs", "device-plugin", "registration", "observe", "send", "appear", "withdraw", "disappear"];
    assert_eq!(steps(&json), names.map(|name| (name.to_owned(), "pass".to_owned())));
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["transport"], &report["device"]), (&json!("grpc"), &json!(31)));
    assert_eq!(scene.rehearsed(), (vec!["occur".to_owned(), "recover".to_owned()], vec![31]));
    assert!(!scene.is_shown());

    // The agent has read what ClusterD shows, at the latest when it sends a fault, and ignores a rehearsal.
    let mut command = scene.rehearsal(&["--force"]);
    let rehearsal = command.spawn().unwrap();
    scene.shown().await;
    // Device 5 has no Pod.
    scene.script.event(5, HBM, CRITICAL, OCCUR, "HBM");
    let sent = eventually("the agent's fault is confirmed", TEST_TIMEOUT, || async {
        let status: Value = serde_json::from_str(&agent.get("/status").1).unwrap_or_default();
        let faults = status["faults"]["faults"].as_array().cloned().unwrap_or_default();
        match &faults[..] {
            [fault] if fault["phase"] == "confirmed" => Ok(fault["id"].clone()),
            _ => Err(format!("{faults:?}")),
        }
    });
    let sent = sent.await.unwrap();
    let output = spawn_blocking(|| rehearsal.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    let recovered = scene.accepted().into_iter().filter(|accepted| accepted.starts_with("recover")).count();
    assert_eq!(recovered, 2, "one of each rehearsal: {:?}, beside {sent}", scene.accepted());
    scene.script.event(5, HBM, CRITICAL, RECOVER, "HBM");
    scene.all_faults_ended(&agent).await;
}

#[tokio::test]
async fn rehearsal_proves_the_way_by_config_map() {
    // A port without a listener.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let section = format!("clusterd: {{dial: false, address: \"{closed}\", timeout: 1s}}");
    let scene = Scene::with("rehearse-map", &section, "default").await;
    let (code, json) = scene.rehearse(&["--force", "-o", "json"]).await;
    assert_eq!(code, Some(0), "{json}");
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["transport"], "config_map");
    assert_eq!(scene.rehearsed().0, ["occur", "recover"]);
    assert!(!scene.is_shown());
}

#[tokio::test]
async fn interrupted_rehearsal_takes_its_fault_back() {
    let scene = Scene::new("rehearse-stop").await;
    let rehearsal = scene.rehearsal(&["--force"]).spawn().unwrap();
    eventually("ClusterD has the fault", TEST_TIMEOUT, || async {
        if scene.rehearsed().0.is_empty() { Err("none") } else { Ok(()) }
    })
    .await
    .unwrap();
    kill(Pid::from_raw(rehearsal.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = spawn_blocking(|| rehearsal.wait_with_output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("interrupted"), "{text}");
    assert_eq!(scene.rehearsed().0, ["occur", "recover"]);
    assert!(!scene.is_shown());
}

impl Scene {
    async fn shown(&self) {
        eventually("ClusterD shows the fault", TEST_TIMEOUT, || async {
            if self.is_shown() { Ok(()) } else { Err("not yet") }
        })
        .await
        .unwrap();
    }
}

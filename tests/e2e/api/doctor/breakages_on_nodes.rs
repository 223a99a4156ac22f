//! Ways to break a link that agents see, or their nodes.

use serde_json::{Value, json};

use super::breakages::Breakage;
use super::change::Change;
use super::objects::{self, NODES};

#[allow(clippy::too_many_lines, reason = "a table")]
pub(super) fn of_agents() -> Vec<Breakage> {
    use Change::{Agent, Delete, Merge, Status};
    let shows = |kind: &'static str, status: &str, reason: &str| {
        let other = if kind == "DumpReady" { "FaultsRelayed" } else { "DumpReady" };
        let conditions =
            json!([objects::condition(other, "True", "Fine"), objects::condition(kind, status, reason)]);
        Status("Node", "", NODES[0], json!({"status": {"conditions": conditions}}))
    };
    vec![
        (
            "hook not loaded",
            Agent(0, |status| {
                status["preload"][0]["containers"][0]["launcherHook"] =
                    json!({"isActive": false, "reason": "NotLoaded", "message": "x"});
            }),
            "launcher-hook-active",
            "fail",
        ),
        (
            "hook hidden",
            Agent(0, |status| {
                status["preload"][0]["containers"][0]["launcherHook"] =
                    json!({"isActive": null, "reason": "NoPermission", "message": "x"});
            }),
            "launcher-hook-active",
            "unknown",
        ),
        (
            "preload",
            Agent(0, |status| {
                status["preload"][0]["containers"][0]["outcome"] = "NotLive".into();
            }),
            "preload",
            "warn",
        ),
        (
            "no MindIO in the image",
            Agent(0, |status| {
                status["preload"][0]["containers"][0]["image"]["findings"] =
                    json!([{"check": "mindio", "status": "missing", "message": "x"}]);
            }),
            "image",
            "fail",
        ),
        (
            "the image can't be read",
            Agent(0, |status| status["preload"][0]["containers"][0]["image"] = Value::Null),
            "image",
            "unknown",
        ),
        (
            "a trainer that can't save",
            Agent(1, |status| status["pods"][1]["trainer"]["verdict"] = "can't".into()),
            "trainer",
            "fail",
        ),
        (
            "a trainer that isn't known",
            Agent(1, |status| status["pods"][1]["trainer"] = Value::Null),
            "trainer",
            "unknown",
        ),
        (
            "Manager on loopback",
            Agent(0, |status| status["pods"][0]["listening"][1]["address"] = "127.0.0.1".into()),
            "manager-listening",
            "fail",
        ),
        (
            "no Manager",
            Agent(0, |status| drop(status["pods"][0]["listening"].as_array_mut().unwrap().pop())),
            "manager-listening",
            "fail",
        ),
        (
            "no controller",
            Agent(0, |status| drop(status["pods"][0]["listening"].as_array_mut().unwrap().remove(0))),
            "controller-listening",
            "fail",
        ),
        (
            "a processor is missing",
            Agent(1, |status| status["pods"][1]["connected"] = 1.into()),
            "processors-connected",
            "fail",
        ),
        (
            "no processor",
            Agent(1, |status| status["pods"][1]["connected"] = 0.into()),
            "processors-connected",
            "fail",
        ),
        (
            "sockets hidden",
            Agent(1, |status| status["pods"][1]["connected"] = Value::Null),
            "processors-connected",
            "unknown",
        ),
        (
            "start script unsets TTP_PORT",
            Agent(0, |status| {
                let environment = &mut status["pods"][0]["manager"]["environment"];
                environment.as_object_mut().unwrap().remove("TTP_PORT");
            }),
            "manager-environment",
            "fail",
        ),
        (
            "start script switches TaskD off",
            Agent(0, |status| {
                status["pods"][0]["manager"]["environment"]["TASKD_PROCESS_ENABLE"] = "off".into();
            }),
            "manager-environment",
            "fail",
        ),
        ("agent doesn't answer", Agent(0, |status| *status = "nonsense".into()), "agent-answers", "fail"),
        ("no agent", Delete("Pod", "swansong-agent", "swansong-agent-npu-a"), "agent-answers", "fail"),
        ("not ready", shows("DumpReady", "False", "DevicesMissing"), "dump-ready", "fail"),
        ("readiness unknown", shows("DumpReady", "Unknown", "CheckHangs"), "dump-ready", "unknown"),
        ("faults held", shows("FaultsRelayed", "False", "ClusterdUnavailable"), "faults-relayed", "fail"),
        (
            "no device plugin",
            Delete("ConfigMap", "kube-system", "mindx-dl-deviceinfo-npu-a"),
            "device-plugin",
            "fail",
        ),
        (
            "wrong CheckCode",
            Merge(
                "ConfigMap",
                "kube-system",
                "mindx-dl-deviceinfo-npu-a",
                json!({"data": {"DeviceInfoCfg": "{\"DeviceInfo\":{\"DeviceList\":{},\"UpdateTime\":1},\"CheckCode\":\"0\"}"}}),
            ),
            "device-plugin",
            "fail",
        ),
        (
            "ClusterD not reached",
            Agent(1, |status| status["report"]["checks"][0]["status"] = "fail".into()),
            "clusterd-answers",
            "fail",
        ),
    ]
}

//! The nodes of the jobs.

use k8s_openapi::api::core::v1::NodeCondition;
use swansong_api::node::{DUMP_READY, FAULTS_RELAYED};
use swansong_fault_model::device_plugin::{ConfigMapData, DeviceInfo};

use super::cluster::age;
use super::finding::{Check, Checks, Judged, Verdict, required};
use super::link::Link;
use crate::snapshot::{NodeSnapshot, Seen, Snapshot};

/// Its reason while ClusterD answers with 410.
pub(super) const REFUSED: &str = "FaultRelayRefused";
/// The agent writes the condition every five to ten minutes, in milliseconds.
const STALE: u64 = 15 * 60 * 1000;

pub(super) fn check(snapshot: &Snapshot) -> Vec<Check> {
    let mut checks = Checks::default();
    let nodes = &snapshot.nodes;
    let mut add = |link, judge: &dyn Fn(&NodeSnapshot) -> Option<Judged>| {
        let judged = nodes.iter().filter_map(|node| Some((node.name.as_str(), judge(node)?)));
        checks.add_all(link, "nodes", judged);
    };
    add(Link::AgentAnswers, &|node| is_asked(node).then(|| agent(node)));
    add(Link::DumpReady, &|node| Some(dump_ready(node, snapshot.taken_at)));
    add(Link::FaultsRelayed, &|node| reports_faults(node).then(|| faults(node)));
    add(Link::DevicePlugin, &|node| Some(device_plugin(node)));
    add(Link::ClusterdAnswers, &clusterd);
    checks.all
}

/// The checks of the Node's conditions.
pub(super) fn conditions(node: &NodeSnapshot, now: u64) -> Vec<(Link, Judged)> {
    let mut judged = vec![(Link::DumpReady, dump_ready(node, now))];
    if reports_faults(node) {
        judged.push((Link::FaultsRelayed, faults(node)));
    }
    judged
}

/// Whether the node's agent was asked, or there is none to ask.
fn is_asked(node: &NodeSnapshot) -> bool {
    !matches!((&node.agent, &node.status), (Seen::Read(_), Seen::NotAsked))
}

/// Whether the node's agent reports faults.
pub(super) fn reports_faults(node: &NodeSnapshot) -> bool {
    node.condition(FAULTS_RELAYED).is_some()
}

fn agent(node: &NodeSnapshot) -> Judged {
    required(&node.agent, "its agent's Pod")?;
    match &node.status {
        Seen::Failed(message) => Err(Verdict::fail(format!("its agent doesn't answer: {message}"))),
        status => {
            let status = required(status, "its agent's /status")?;
            Ok(Verdict::pass(format!("version {} answers", status.version)))
        }
    }
}

fn reason(condition: &NodeCondition) -> String {
    let reason = condition.reason.as_deref().unwrap_or("no reason");
    match condition.message.as_deref().filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

fn judge(condition: &NodeCondition) -> Verdict {
    let seen = format!("{}, {}", condition.status, reason(condition));
    match condition.status.as_str() {
        "True" => Verdict::pass("True"),
        "False" => Verdict::fail(seen),
        _ => Verdict::unknown(seen),
    }
}

fn dump_ready(node: &NodeSnapshot, now: u64) -> Judged {
    required(&node.node, "the Node")?;
    let Some(condition) = node.condition(DUMP_READY) else {
        return Ok(Verdict::unknown("the Node has no such condition: no agent runs there"));
    };
    let heartbeat = condition.last_heartbeat_time.as_ref();
    let heartbeat = heartbeat.and_then(|time| u64::try_from(time.0.as_millisecond()).ok());
    match heartbeat.map(|at| now.saturating_sub(at)) {
        Some(elapsed) if elapsed <= STALE => Ok(judge(condition)),
        Some(elapsed) => {
            Ok(Verdict::unknown(format!("{}, but written {} ago", condition.status, age(elapsed))))
        }
        None => Ok(Verdict::unknown(format!("{}, without a time", condition.status))),
    }
}

fn faults(node: &NodeSnapshot) -> Judged {
    required(&node.node, "the Node")?;
    Ok(match node.condition(FAULTS_RELAYED) {
        None => Verdict::unknown("it is gone"),
        Some(condition) if condition.reason.as_deref() == Some(REFUSED) => {
            Verdict::unknown("ClusterD refuses its faults, as sender-registered shows")
        }
        Some(condition) => judge(condition),
    })
}

fn device_plugin(node: &NodeSnapshot) -> Judged {
    let map = required(&node.device_info, "its ConfigMap")?;
    let device_info = map.data.as_ref().and_then(|data| data.get("DeviceInfoCfg")).map(String::as_str);
    match DeviceInfo::read(ConfigMapData { device_info, manually_separated: None }) {
        Ok(_) => Ok(Verdict::pass("its ConfigMap is valid")),
        Err(invalid) => Err(Verdict::fail(format!("ClusterD ignores its ConfigMap: {invalid}"))),
    }
}

/// `None` where the agent doesn't try it.
fn clusterd(node: &NodeSnapshot) -> Option<Judged> {
    let check = node.status.read()?.check("clusterd")?;
    let seen = format!("{}: {}", check.reason, check.message);
    Some(Ok(match check.status.as_str() {
        "pass" => Verdict::pass("it accepts connections of the agents"),
        "fail" => Verdict::fail(seen),
        _ => Verdict::unknown(seen),
    }))
}

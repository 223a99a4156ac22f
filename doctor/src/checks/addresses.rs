//! By which address training processes find MindIO's controller.

use std::net::IpAddr;

use swansong_api::env::{MS_TFT_IP, MS_TFT_PORT, TTP_ADDR};

use super::environment::Value;
use super::finding::{Judged, Verdict};
use super::pod::{Framework, PodView};
use super::pods::JobPods;
use super::processes;

/// The variables of PyTorch's processes, in the order in which they are read.
const PYTORCH: [&str; 3] = ["PROCESSOR_ADDR", TTP_ADDR, "CONTROLLER_ADDR"];

fn names(pod: &PodView<'_>) -> &'static [&'static str] {
    if pod.framework() == Some(Framework::MindSpore) { &[MS_TFT_IP] } else { &PYTORCH }
}

/// Whether a variable with the address is set at all.
pub(super) fn has_any(pod: &PodView<'_>) -> bool {
    names(pod).iter().any(|name| pod.variable(name) != Value::Absent)
}

pub(super) fn controller(pod: &PodView<'_>, pods: &JobPods<'_>) -> Judged {
    if pod.has_proxy() {
        return Ok(Verdict::pass("a local proxy is used"));
    }
    let mut values = names(pod).iter().map(|name| (*name, pod.variable(name)));
    let Some((name, value)) = values.find(|(_, value)| *value != Value::Absent) else {
        return Err(if processes::is_connected(pod, pods.snapshot) {
            Verdict::pass("the start script sets it: the processes are connected")
        } else {
            Verdict::fail(format!("it isn't set ({}), so the processes try 127.0.0.1", names(pod).join(", ")))
        });
    };
    let verdict = address(name, &value, pod, pods);
    if verdict.status == super::Status::Pass && pod.framework() == Some(Framework::MindSpore) {
        return mindspore_port(pod).map(|()| verdict);
    }
    Ok(verdict)
}

fn address(name: &str, value: &Value, pod: &PodView<'_>, pods: &JobPods<'_>) -> Verdict {
    match value {
        Value::Text(text) => literal(name, text, pod, pods),
        Value::PodIp if pod.is_first() => Verdict::pass("they lead to rank 0"),
        Value::PodIp => {
            Verdict::fail(format!("{name} is the Pod's own address, and the controller is in that of rank 0"))
        }
        Value::Unresolved(text) => Verdict::fail(format!(
            "{name} stays {text:?}: the variable that it refers to is defined behind it"
        )),
        Value::Absent | Value::Elsewhere => Verdict::unknown(format!("{name} comes from another object")),
    }
}

fn literal(name: &str, text: &str, pod: &PodView<'_>, pods: &JobPods<'_>) -> Verdict {
    if text.parse::<IpAddr>().is_err() {
        return Verdict::unknown(format!("{name} is {text:?}, a name, which isn't resolved here"));
    }
    let service = pods.job.service.read().and_then(|service| service.spec.as_ref()?.cluster_ip.as_deref());
    let mut first = pods.pods.iter().filter(|(_, pod)| pod.is_first()).filter_map(|(_, pod)| pod.address());
    if service == Some(text) || first.any(|address| address == text) {
        return Verdict::pass("they lead to rank 0");
    }
    match (service, pod.address()) {
        (Some(service), _) => Verdict::fail(format!(
            "{name} is {text}, neither the address of rank 0 nor that of its Service ({service})"
        )),
        (None, _) => Verdict::unknown(format!("{name} is {text}, and the Service of rank 0 isn't known")),
    }
}

/// MindSpore has no default for the port.
fn mindspore_port(pod: &PodView<'_>) -> Result<(), Verdict> {
    match pod.variable(MS_TFT_PORT) {
        Value::Absent => Err(Verdict::fail(format!("{MS_TFT_PORT} isn't set, and MindSpore has no default"))),
        Value::Text(text) if text.trim().parse() != Ok(pod.controller_port()) => Err(Verdict::fail(format!(
            "{MS_TFT_PORT} is {text:?}, and the controller listens on {}",
            pod.controller_port()
        ))),
        Value::Unresolved(text) => Err(Verdict::fail(format!("{MS_TFT_PORT} stays {text:?}"))),
        _ => Ok(()),
    }
}

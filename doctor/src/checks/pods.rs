//! The Pods of a job, as the API server has them.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use swansong_api::annotations::PROTECT_DUMP;
use swansong_api::env::{
    MASTER_ADDR, ORDER_LIMIT, POD_IP, PROCESS_RECOVER, SAVE_LIMIT, TASKD_PROCESS_ENABLE, TTP_PORT,
};
use swansong_api::labels::FAULT_SCHEDULING;
use swansong_api::ports::TTP;

use super::addresses;
use super::environment::Value;
use super::finding::{Check, Checks, Judged, Verdict, required};
use super::image;
use super::job::{container_ports, has_ports};
use super::link::Link;
use super::pod::{Framework, PodView};
use super::processes;
use crate::snapshot::{Job, JobObject, Snapshot, phase};

/// The limits of MindIO's own settings, in seconds.
const SAVE_LIMITS: std::ops::RangeInclusive<u64> = 30..=1800;
const ORDER_LIMITS: std::ops::RangeInclusive<u64> = 1..=3600;
const DEFAULT_ORDER_LIMIT: u64 = 30;

/// The Pods of a job and what is known of it.
pub(super) struct JobPods<'a> {
    pub(super) job: &'a Job,
    pub(super) object: &'a JobObject,
    pub(super) pods: Vec<(&'a str, PodView<'a>)>,
    pub(super) snapshot: &'a Snapshot,
}

pub(super) fn check(job: &Job, snapshot: &Snapshot) -> Vec<Check> {
    let mut checks = Checks::of(job.reference());
    let Some(object) = job.object.read() else { return checks.all };
    let all = match required(&job.pods, "its Pods") {
        Ok(pods) => pods,
        Err(verdict) => {
            checks.add(Link::PodsRunning, verdict);
            return checks.all;
        }
    };
    checks.add(Link::PodsRunning, running(object, all, snapshot));
    let name = |pod: &Pod| pod.metadata.name.as_deref().unwrap_or_default().len();
    let pods = job.running_pods().filter(|pod| name(pod) > 0);
    let pods = pods.map(|pod| (pod.metadata.name.as_deref().unwrap_or_default(), PodView::of(pod))).collect();
    let pods = JobPods { job, object, pods, snapshot };
    let each = |judge: &dyn Fn(&PodView<'_>) -> Option<Judged>| -> Vec<(&str, Judged)> {
        pods.pods.iter().filter_map(|(name, pod)| Some((*name, judge(pod)?))).collect()
    };
    let processed =
        |judge: &dyn Fn(&PodView<'_>) -> Judged| each(&|pod| (!is_unprocessed(pod)).then(|| judge(pod)));
    let mut add = |link, judged| checks.add_all(link, "Pods", judged);
    add(Link::Admitted, each(&|pod| Some(admitted(pod, &pods))));
    add(Link::OperatorEnvironment, each(&|pod| Some(operator_environment(pod))));
    add(Link::PodIp, processed(&pod_ip));
    add(Link::TtpPort, processed(&ttp_port));
    add(Link::ControllerAddress, processed(&|pod| addresses::controller(pod, &pods)));
    add(Link::MasterAddress, each(&|pod| Some(master_address(pod))));
    add(Link::TaskdEnabled, each(&|pod| Some(taskd_enabled(pod))));
    add(Link::SaveLimit, processed(&|pod| save_limit(pod, object)));
    add(Link::OrderLimit, each(&|pod| Some(order_limit(pod))));
    add(Link::PodPorts, processed(&ports));
    add(Link::RestartPolicy, each(&|pod| Some(restart_policy(pod))));
    add(Link::HostNetwork, host_network(&pods));
    add(Link::PodDevices, each(&|pod| pod.requests_devices().then(|| devices(pod))));
    add(Link::LauncherHook, processed(&|pod| launcher_hook(pod, object)));
    processes::check(&pods, &mut checks);
    checks.all
}

fn running(object: &JobObject, pods: &[Pod], snapshot: &Snapshot) -> Judged {
    let wanted: i64 = object.templates().iter().map(|(_, count, _)| count).sum();
    let (explained, others): (Vec<&Pod>, Vec<&Pod>) = pods
        .iter()
        .filter(|pod| phase(pod) != "Running")
        .partition(|pod| image::keeps_from_starting(&PodView::of(pod), snapshot));
    if let (Some(pod), []) = (explained.first(), others.as_slice()) {
        return Err(Verdict::unknown(format!(
            "Pod {} is {}, as libraries-found shows",
            pod.name_any(),
            phase(pod)
        )));
    }
    let mut others = others.into_iter();
    if let Some(pod) = others.next() {
        let more = others.count();
        let others = if more > 0 { format!(", and {more} others don't run") } else { String::new() };
        return Err(Verdict::fail(format!("Pod {} is {}{others}", pod.name_any(), phase(pod))));
    }
    let found = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    Ok(Verdict::of(found == wanted, format!("{found} of {wanted} Pods run")))
}

/// Whether the webhook didn't process the Pod, and it lacks what it needs.
pub(super) fn is_unprocessed(pod: &PodView<'_>) -> bool {
    let is_complete = pod.variable(POD_IP) != Value::Absent
        && pod.variable(TTP_PORT) != Value::Absent
        && addresses::has_any(pod);
    !pod.has_record() && !pod.is_opted_out() && !is_complete
}

fn admitted(pod: &PodView<'_>, pods: &JobPods<'_>) -> Judged {
    Ok(if pod.has_record() {
        Verdict::pass("the webhook processed them")
    } else if pod.framework().is_none() {
        Verdict::unknown("nothing on it asks for a dump, so the webhook isn't called for it")
    } else if pod.is_opted_out() {
        Verdict::pass("swansong.dev/inject excludes them")
    } else if !is_unprocessed(pod) {
        Verdict::pass("they have by themselves what the webhook would add")
    } else if processes::is_connected(pod, pods.snapshot) {
        Verdict::warn(
            "the webhook didn't process it; its processes are connected to MindIO's controller nevertheless",
        )
    } else {
        Verdict::fail("the webhook didn't process it, and it lacks what would have been added")
    })
}

fn operator_environment(pod: &PodView<'_>) -> Judged {
    if pod.framework().is_none() {
        return Err(Verdict::fail(
            "its training container has neither HIGH_AVAILABILITY with dump nor MS_ENABLE_TFT with TTP:1",
        ));
    }
    Ok(match pod.variable(PROCESS_RECOVER) {
        Value::Text(value) if value == "on" => Verdict::pass("ascend-operator switched the dump on"),
        Value::Text(value) => Verdict::fail(format!("PROCESS_RECOVER is {value:?}")),
        Value::Absent => {
            Verdict::fail("it has no PROCESS_RECOVER, so the TaskD Manager takes no part in recovery")
        }
        _ => Verdict::unknown("PROCESS_RECOVER comes from another object"),
    })
}

fn pod_ip(pod: &PodView<'_>) -> Judged {
    Ok(match pod.variable(POD_IP) {
        Value::PodIp => Verdict::pass("it is status.podIP"),
        Value::Absent if pod.has_proxy() => Verdict::pass("a local proxy is used"),
        Value::Absent => Verdict::fail(
            "it isn't set: the TaskD Manager listens on 127.0.0.1 only, and MindIO has no controller",
        ),
        Value::Text(text) if pod.address() == Some(text.as_str()) => Verdict::pass("it is the Pod's address"),
        Value::Text(text) => Verdict::fail(format!("it is {text:?}, which isn't the Pod's address")),
        Value::Unresolved(text) => {
            Verdict::fail(format!("it stays {text:?}: the variable is defined behind it"))
        }
        Value::Elsewhere => Verdict::unknown("it comes from another object"),
    })
}

fn ttp_port(pod: &PodView<'_>) -> Judged {
    Ok(match pod.variable(TTP_PORT) {
        Value::Absent => Verdict::fail("it isn't set: MindIO has no controller"),
        Value::Text(text) => match text.trim().parse::<u16>() {
            Ok(TTP) => Verdict::pass("it is 8000"),
            Ok(port @ 1024..) if pod.framework() == Some(Framework::MindSpore) => {
                Verdict::pass(format!("it is {port}"))
            }
            Ok(port @ 1024..) => Verdict::fail(format!("it is {port}, and MindSpeed-LLM connects to 8000")),
            _ => Verdict::fail(format!("it is {text:?}, no number from 1024 to 65535")),
        },
        Value::Unresolved(text) => {
            Verdict::fail(format!("it stays {text:?}: the variable is defined behind it"))
        }
        Value::PodIp | Value::Elsewhere => Verdict::unknown("it comes from another object"),
    })
}

fn master_address(pod: &PodView<'_>) -> Judged {
    Ok(match pod.variable(MASTER_ADDR) {
        Value::Text(text) if text.parse::<std::net::IpAddr>().is_err() => {
            Verdict::fail(format!("it is {text:?}, a name, which TaskD's proxy refuses"))
        }
        Value::Unresolved(text) => Verdict::fail(format!("it stays {text:?}")),
        Value::Absent if pod.framework() == Some(Framework::PyTorch) => {
            Verdict::fail("it isn't set, so that TaskD's proxy has no address")
        }
        Value::Absent => Verdict::pass("MindSpore uses MS_SCHED_HOST"),
        _ => Verdict::pass("it is an address"),
    })
}

fn taskd_enabled(pod: &PodView<'_>) -> Judged {
    Ok(match pod.variable(TASKD_PROCESS_ENABLE) {
        Value::Text(text) if text == "off" => {
            Verdict::fail("it is off: the TaskD Manager starts no controller of MindIO")
        }
        Value::Absent => Verdict::pass("it isn't set, which equals on"),
        Value::Text(text) => Verdict::pass(format!("it is {text}")),
        _ => Verdict::unknown("it comes from another object"),
    })
}

fn save_limit(pod: &PodView<'_>, object: &JobObject) -> Judged {
    Ok(match pod.variable(SAVE_LIMIT) {
        Value::Absent if object.dumps_only() => {
            Verdict::warn("it isn't set: a save of more than 180 seconds is thrown away")
        }
        Value::Absent => Verdict::pass("it isn't set, so that all actions have MindIO's 180 seconds"),
        Value::Text(text) => match text.trim().parse::<u64>() {
            Ok(seconds) if SAVE_LIMITS.contains(&seconds) => {
                Verdict::pass(format!("it is {seconds} seconds"))
            }
            _ => Verdict::fail(format!("it is {text:?}, not 30 to 1800 seconds")),
        },
        _ => Verdict::unknown("it comes from another object"),
    })
}

fn order_limit(pod: &PodView<'_>) -> Judged {
    Ok(match pod.variable(ORDER_LIMIT) {
        Value::Absent => Verdict::pass("it isn't set, which equals 30 seconds"),
        Value::Text(text) => match text.trim().parse::<u64>() {
            Ok(seconds) if !ORDER_LIMITS.contains(&seconds) => {
                Verdict::fail(format!("it is {seconds}, not 1 to 3600 seconds"))
            }
            Ok(seconds) if seconds < DEFAULT_ORDER_LIMIT => {
                Verdict::warn(format!("it is {seconds} seconds: without an order by then nothing is saved"))
            }
            Ok(seconds) => Verdict::pass(format!("it is {seconds} seconds")),
            Err(_) => Verdict::fail(format!("it is {text:?}, no number of seconds")),
        },
        _ => Verdict::unknown("it comes from another object"),
    })
}

/// Declared ports are only documentation, except for ascend-operator's Service, which has its own check.
fn ports(pod: &PodView<'_>) -> Judged {
    let spec = pod.spec.ok_or_else(|| Verdict::unknown("it has no spec"))?;
    let name = pod.container.map(|container| container.name.as_str());
    // That another port can't work is another check's.
    let is_usable = ttp_port(pod).is_ok_and(|verdict| verdict.status == super::Status::Pass);
    let port = if is_usable { pod.controller_port() } else { TTP };
    let found = has_ports(&container_ports(spec, name), port, "the training container");
    found.map(
        |verdict| {
            if verdict.status == super::Status::Fail { Verdict::warn(verdict.seen) } else { verdict }
        },
    )
}

fn restart_policy(pod: &PodView<'_>) -> Judged {
    let policy = pod.spec.and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    Ok(Verdict::of(policy == "Never", format!("it is {policy}")))
}

fn host_network<'a>(pods: &JobPods<'a>) -> Vec<(&'a str, Judged)> {
    let on_host = |pod: &PodView<'_>| pod.spec.and_then(|spec| spec.host_network) == Some(true);
    let node = |pod: &PodView<'a>| pod.spec.and_then(|spec| spec.node_name.as_deref());
    let mut per_node: HashMap<Option<&str>, usize> = HashMap::new();
    for (_, pod) in pods.pods.iter().filter(|(_, pod)| on_host(pod)) {
        *per_node.entry(node(pod)).or_default() += 1;
    }
    let is_forced = pods.object.label(FAULT_SCHEDULING) == Some("force");
    let judge = |pod: &PodView<'a>| match node(pod) {
        _ if !on_host(pod) => Verdict::pass("they have their own network, or a node each"),
        Some(node) if per_node.get(&Some(node)).is_some_and(|count| *count > 1) => {
            Verdict::fail(format!("several Pods of the job need the same ports of node {node}"))
        }
        _ if is_forced => Verdict::warn("hostNetwork and fault-scheduling: force exclude each other"),
        _ => Verdict::pass("they have their own network, or a node each"),
    };
    pods.pods.iter().map(|(name, pod)| (*name, Ok(judge(pod)))).collect()
}

fn devices(pod: &PodView<'_>) -> Judged {
    Ok(match (pod.devices(), pod.rank()) {
        (None | Some(0), _) => Verdict::fail(
            "it has no device in ascend.kubectl.kubernetes.io/ascend-910-configuration, so ClusterD doesn't know its ranks",
        ),
        (_, None) => Verdict::fail("it has no rank in hccl/rankIndex"),
        (Some(_), Some(_)) => Verdict::pass("ClusterD knows their ranks"),
    })
}

fn launcher_hook(pod: &PodView<'_>, object: &JobObject) -> Judged {
    const LOSS: &str = "a fault on rank 0's node, or on one with ranks that save, loses the checkpoint";
    Ok(if pod.has_hook() {
        Verdict::pass("they carry it")
    } else if pod.annotation(PROTECT_DUMP).is_some() || object.dumps_only() {
        Verdict::warn(format!("it doesn't carry the hook: {LOSS}"))
    } else {
        Verdict::warn(format!("other strategies than dump act, so the hook isn't added: {LOSS}"))
    })
}

//! The processes of a job, as the agents of their nodes see them.

use swansong_api::env::{POD_IP, SAVE_LIMIT, TASKD_PROCESS_ENABLE, TTP_PORT};
use swansong_api::pod_status::PodStatus;
use swansong_api::ports::TASKD;

use super::finding::{Checks, Judged, Verdict, known, required};
use super::image;
use super::link::Link;
use super::pod::PodView;
use super::pods::JobPods;
use crate::snapshot::{AgentStatus, ContainerVerdict, NodeSnapshot, PodVerdict, Snapshot, phase};

/// For how long after the container's start the training may still be starting, in milliseconds.
const STARTING: u64 = 5 * 60 * 1000;
/// The same for the TaskD Manager, which the start script starts first.
const MANAGER_STARTING: u64 = 60 * 1000;

pub(super) fn check(pods: &JobPods<'_>, checks: &mut Checks) {
    let running = || pods.pods.iter().filter(|(_, pod)| phase(pod.pod) == "Running");
    let each = |judge: &dyn Fn(&PodView<'_>) -> Option<Judged>| -> Vec<(&str, Judged)> {
        running().filter_map(|(name, pod)| Some((*name, judge(pod)?))).collect()
    };
    let snapshot = pods.snapshot;
    let mut add = |link, judged| checks.add_all(link, "Pods", judged);
    // A Pod whose search can't run waits, or has failed.
    let all = pods.job.pods.read().into_iter().flatten();
    let all = all.map(|pod| (pod.metadata.name.as_deref().unwrap_or_default(), PodView::of(pod)));
    let searched: Vec<(&str, PodView<'_>)> = all.filter(|(_, pod)| pod.is_searched()).collect();
    add(
        Link::LibrariesFound,
        searched.iter().map(|(name, pod)| (*name, image::libraries(pod, snapshot))).collect::<Vec<_>>(),
    );
    add(Link::LauncherHookActive, each(&|pod| pod.has_hook().then(|| hook(pod, snapshot))));
    add(Link::Preload, each(&|pod| pod.has_preload().then(|| preload(pod, snapshot))));
    add(Link::Image, each(&|pod| pod.has_record().then(|| image::image(pod, snapshot))));
    add(Link::Trainer, each(&|pod| pod.requests_devices().then(|| image::trainer(pod, snapshot))));
    add(Link::ManagerListening, each(&|pod| pod.is_first().then(|| listening(pod, snapshot, TASKD))));
    let controller =
        |pod: &PodView<'_>| pod.is_first().then(|| listening(pod, snapshot, pod.controller_port()));
    let environment =
        |pod: &PodView<'_>| pod.is_first().then(|| manager_environment(pod, snapshot)).flatten();
    add(Link::ManagerEnvironment, each(&environment));
    add(Link::ControllerListening, each(&controller));
    add(Link::ProcessorsConnected, each(&|pod| pod.requests_devices().then(|| processors(pod, pods))));
}

/// Whether the agent sees a connection of the Pod to MindIO's controller.
pub(super) fn is_connected(pod: &PodView<'_>, snapshot: &Snapshot) -> bool {
    observed(pod, snapshot).is_ok_and(|status| status.connected.is_some_and(|count| count > 0))
}

fn node<'a>(pod: &PodView<'_>, snapshot: &'a Snapshot) -> Option<&'a NodeSnapshot> {
    snapshot.node(pod.spec?.node_name.as_deref()?)
}

fn agent<'a>(pod: &PodView<'_>, snapshot: &'a Snapshot) -> Result<&'a AgentStatus, Verdict> {
    let node = node(pod, snapshot).ok_or_else(|| Verdict::unknown("its node isn't known"))?;
    if known(&node.agent, "the agent's Pod of its node")?.is_none() {
        return Err(Verdict::unknown("no agent runs on its node"));
    }
    // A failure of the agent itself is another check's.
    required(&node.status, "the /status of its node's agent")
        .map_err(|verdict| Verdict::unknown(verdict.seen))
}

pub(super) fn observed<'a>(pod: &PodView<'_>, snapshot: &'a Snapshot) -> Result<&'a PodStatus, Verdict> {
    let agent = agent(pod, snapshot)?;
    if agent.pods.is_none() {
        return Err(Verdict::unknown(format!(
            "the agent's version, {}, doesn't show sockets",
            agent.version
        )));
    }
    agent.pod(pod.uid()).ok_or_else(|| Verdict::unknown("its node's agent hasn't seen it yet"))
}

pub(super) fn verdict<'a>(pod: &PodView<'_>, snapshot: &'a Snapshot) -> Result<&'a PodVerdict, Verdict> {
    let found = agent(pod, snapshot)?.verdict(pod.uid());
    found.ok_or_else(|| Verdict::unknown("its node's agent hasn't inspected its processes yet"))
}

fn verdicts<'a>(pod: &PodView<'_>, snapshot: &'a Snapshot) -> Result<&'a [ContainerVerdict], Verdict> {
    Ok(&verdict(pod, snapshot)?.containers)
}

fn hook(pod: &PodView<'_>, snapshot: &Snapshot) -> Judged {
    let hook = verdicts(pod, snapshot)?.iter().find_map(|container| container.launcher_hook.as_ref());
    let hook = hook.ok_or_else(|| Verdict::unknown("its node's agent says nothing of the hook"))?;
    Ok(match hook.is_active {
        Some(true) => Verdict::pass("it is active"),
        Some(false) => Verdict::fail(format!("{}: {}", hook.reason, hook.message)),
        None => Verdict::unknown(format!("{}: {}", hook.reason, hook.message)),
    })
}

/// A dump works without the preload, so a missing one is a warning.
fn preload(pod: &PodView<'_>, snapshot: &Snapshot) -> Judged {
    let mut outcomes = verdicts(pod, snapshot)?
        .iter()
        .filter_map(|container| Some((container.preload.outcome.as_deref()?, &container.preload)));
    let bad = outcomes.clone().find(|(outcome, _)| *outcome != "Live");
    let Some((outcome, preload)) = bad.or_else(|| outcomes.next()) else {
        return Err(Verdict::unknown("its node's agent says nothing of the preload"));
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let seen = format!("{}: {}", text(&preload.reason), text(&preload.message));
    Ok(match outcome {
        "Live" => Verdict::pass("they have the libraries"),
        "NotLive" | "PartlyLive" => Verdict::warn(seen),
        _ => Verdict::unknown(seen),
    })
}

/// A start script may have changed what the Pod says.
fn manager_environment(pod: &PodView<'_>, snapshot: &Snapshot) -> Option<Judged> {
    let status = match observed(pod, snapshot) {
        Ok(status) => status,
        Err(unknown) => return Some(Err(unknown)),
    };
    // That it doesn't listen is another check's.
    let listens = status.listening.iter().flatten().any(|listener| listener.port == TASKD);
    listens.then(|| {
        let environment = status.manager.as_ref().and_then(|manager| manager.environment.as_ref());
        let environment = environment
            .ok_or_else(|| Verdict::unknown("its node's agent may not read the environment of processes"))?;
        let value = |name: &str| environment.get(name).map(String::as_str);
        let number = |name: &str| value(name).and_then(|value| value.trim().parse::<u16>().ok());
        Ok(if value(TASKD_PROCESS_ENABLE) == Some("off") {
            Verdict::fail(format!("{TASKD_PROCESS_ENABLE} is off in the Manager's process"))
        } else if value(POD_IP).is_none() || number(TTP_PORT).is_none() {
            Verdict::fail(format!("the Manager's process lacks {POD_IP} or {TTP_PORT}"))
        } else if number(TTP_PORT) != Some(pod.controller_port()) {
            Verdict::fail(format!(
                "{TTP_PORT} is {} in the Manager's process",
                value(TTP_PORT).unwrap_or_default()
            ))
        } else if pod.variable(SAVE_LIMIT).text().is_some_and(|limit| value(SAVE_LIMIT) != Some(limit)) {
            let found = value(SAVE_LIMIT).unwrap_or("not set");
            Verdict::fail(format!("{SAVE_LIMIT} is {found} in the Manager's process, unlike in the Pod"))
        } else {
            Verdict::pass("it has what the Pod says")
        })
    })
}

fn listening(pod: &PodView<'_>, snapshot: &Snapshot, port: u16) -> Judged {
    let status = observed(pod, snapshot)?;
    let Some(listeners) = &status.listening else {
        return Err(Verdict::unknown("its node's agent can't read its sockets"));
    };
    let addresses: Vec<&str> =
        listeners.iter().filter(|one| one.port == port).map(|one| one.address.as_str()).collect();
    let is_reached = |address: &&str| {
        matches!(*address, "0.0.0.0" | "::") || pod.address() == Some(*address) || pod.has_proxy()
    };
    let has_manager = listeners.iter().any(|one| one.port == TASKD);
    Ok(match addresses.first() {
        None if is_starting(pod, snapshot, if port == TASKD { MANAGER_STARTING } else { STARTING }) => {
            Verdict::unknown("the Pod has just started")
        }
        None if port != TASKD && !has_manager => {
            Verdict::unknown("the TaskD Manager, which starts it, doesn't listen")
        }
        None => Verdict::fail(format!("nothing listens on port {port}")),
        Some(_) if addresses.iter().any(is_reached) => Verdict::pass(format!("it listens on port {port}")),
        Some(address) => {
            Verdict::fail(format!("it listens on {address}:{port}, where other Pods don't reach it"))
        }
    })
}

fn processors(pod: &PodView<'_>, pods: &JobPods<'_>) -> Judged {
    let snapshot = pods.snapshot;
    let status = observed(pod, snapshot)?;
    let Some(connected) = status.connected else {
        return Err(Verdict::unknown("its node's agent can't read its sockets"));
    };
    let Some(devices) = pod.devices() else {
        return Err(Verdict::unknown(format!("{connected} connections, and its devices aren't known")));
    };
    let seen = format!("{connected} of {devices} processes are connected");
    Ok(if usize::try_from(connected).is_ok_and(|connected| connected >= devices) {
        Verdict::pass("all processes are connected")
    } else if !has_controller(pods) {
        Verdict::unknown(format!("{seen}, since MindIO's controller doesn't listen"))
    } else if super::pods::is_unprocessed(pod) {
        Verdict::unknown(format!("{seen}, since the webhook didn't process it"))
    } else if is_starting(pod, snapshot, STARTING) {
        Verdict::unknown(format!("{seen}, and the Pod has just started"))
    } else {
        Verdict::fail(seen)
    })
}

/// Whether MindIO's controller may listen, as far as that is known.
fn has_controller(pods: &JobPods<'_>) -> bool {
    let mut first = pods.pods.iter().filter(|(_, pod)| pod.is_first());
    first.all(|(_, pod)| {
        let listening = observed(pod, pods.snapshot).ok().and_then(|status| status.listening.as_ref());
        let port = pod.controller_port();
        listening.is_none_or(|listeners| listeners.iter().any(|listener| listener.port == port))
    })
}

/// Whether the training container has started within this time, in milliseconds.
fn is_starting(pod: &PodView<'_>, snapshot: &Snapshot, within: u64) -> bool {
    let Some(status) = &pod.pod.status else { return false };
    let name = pod.container.map(|container| container.name.as_str());
    let mut containers = status.container_statuses.iter().flatten();
    let container = containers.find(|container| Some(container.name.as_str()) == name);
    let running = container.and_then(|container| container.state.as_ref()?.running.as_ref());
    // Before its container starts, a Pod may pull its image for long.
    let started = running.and_then(|running| running.started_at.as_ref()).or(status.start_time.as_ref());
    let started = started.and_then(|time| u64::try_from(time.0.as_millisecond()).ok());
    started.is_some_and(|at| snapshot.taken_at.saturating_sub(at) < within)
}

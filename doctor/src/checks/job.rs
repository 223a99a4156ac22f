//! A job and the objects that ascend-operator, Volcano and ClusterD keep for it.

use k8s_openapi::api::core::v1::PodSpec;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use swansong_api::annotations::RECOVER_STRATEGY;
use swansong_api::labels::{FAULT_SCHEDULING, PROCESS_RECOVER_ENABLE};
use swansong_api::node::RehearsalResult;
use swansong_api::ports::{TASKD, TTP};
use swansong_api::strategy::{KNOWN, Strategies, hint};
use swansong_clusterd::reset_config;

use super::cluster::{RECENT, age};
use super::finding::{Check, Checks, Judged, Verdict, known, required};
use super::link::Link;
use super::pod::PodView;
use crate::snapshot::{
    Job, JobKind, JobObject, Snapshot, last_rehearsal, ready_endpoints, training_container,
};

/// Makes ClusterD wait for a platform's decisions.
const PLATFORM: &str = "ProcessRecoverStrategy";
const RETRIES: &str = "fault-retry-times";
const STATUS: &str = "job_status";

pub(super) fn check(job: &Job, snapshot: &Snapshot) -> Vec<Check> {
    let mut checks = Checks::of(job.reference());
    let object = match required(&job.object, "the job") {
        Ok(object) => object,
        Err(verdict) => {
            checks.add(Link::Strategy, verdict);
            return checks.all;
        }
    };
    checks.add(Link::Strategy, strategy(object));
    match required(&job.group, "its PodGroup") {
        Ok(group) => {
            checks.add(Link::PodGroup, pod_group(object, group));
            checks.add(Link::RecoveryEnabled, recovery(group));
            checks.add(Link::PlatformMode, platform(group));
            checks.add(Link::Queue, queue(group, snapshot));
        }
        Err(verdict) => checks.add(Link::PodGroup, verdict),
    }
    if object.kind == JobKind::AscendJob {
        checks.add(Link::TemplatePorts, template_ports(job, object));
        match required(&job.service, "the Service of rank 0") {
            Ok(service) => {
                let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
                let ports: Vec<i32> = ports.map(|port| port.port).collect();
                checks.add(
                    Link::ServicePorts,
                    has_ports(&ports, controller_port(job), "the Service of rank 0"),
                );
                checks.add(Link::ServiceEndpoints, endpoints(job));
            }
            Err(verdict) => checks.add(Link::ServicePorts, verdict),
        }
    }
    checks.add(Link::ResetConfig, reset_config_state(job));
    checks.add(Link::JobSummary, summary(job));
    if object.kind == JobKind::AscendJob {
        checks.add(Link::CleanPodPolicy, clean_pod_policy(object));
    }
    checks.add(Link::FaultScheduling, fault_scheduling(object));
    checks.add(Link::FaultRetryTimes, retries(job, object));
    if let Some(result) = last_rehearsal(&object.object.metadata) {
        checks.add(Link::JobRehearsal, rehearsal(&result, snapshot.taken_at));
    }
    checks.add(Link::OtherPods, other_pods(object));
    checks.all
}

/// A failed rehearsal is only a warning, because the other checks show what is broken now.
fn rehearsal(result: &RehearsalResult, now: u64) -> Judged {
    let elapsed = now.saturating_sub(result.at);
    let seen = format!("the one {} ago: {}, {}", age(elapsed), result.status, result.message);
    Ok(if result.status == "pass" && elapsed <= RECENT { Verdict::pass(seen) } else { Verdict::warn(seen) })
}

fn strategy(object: &JobObject) -> Judged {
    let Some(raw) = object.strategy() else {
        return Err(Verdict::fail(format!("the job has no annotation {RECOVER_STRATEGY}")));
    };
    let strategies = Strategies::parse(raw);
    let seen = format!("{RECOVER_STRATEGY}: {raw:?}");
    Ok(if !reads(raw, "dump") {
        let why = if strategies.tokens().contains(&"dump") {
            "because blanks surround it"
        } else {
            "because it isn't in the list"
        };
        Verdict::fail(format!("{seen}: ascend-operator doesn't find dump in it, {why}"))
    } else if strategies.is_padded() {
        Verdict::warn(format!("{seen}: tokens with blanks are ignored"))
    } else if let Some(unknown) = strategies.unknown().next() {
        let hint = hint(unknown).map(|hint| format!("; {hint}")).unwrap_or_default();
        Verdict::warn(format!("{seen}: {unknown:?} is ignored{hint}"))
    } else {
        Verdict::pass(seen)
    })
}

/// Whether MindCluster reads a strategy in the list: it compares exactly.
fn reads(list: &str, strategy: &str) -> bool {
    list.split(',').any(|token| token == strategy)
}

/// Whether MindCluster reads different strategies in two lists.
fn differ(one: &str, other: &str) -> bool {
    KNOWN.iter().any(|strategy| reads(one, strategy) != reads(other, strategy))
}

fn pod_group(object: &JobObject, group: &DynamicObject) -> Judged {
    let strategy = group.annotations().get(RECOVER_STRATEGY).map(String::as_str);
    let name = group.name_any();
    Ok(match strategy {
        None => Verdict::fail(format!("PodGroup {name} has no annotation {RECOVER_STRATEGY}")),
        Some(strategy) if !reads(strategy, "dump") => {
            Verdict::fail(format!("PodGroup {name} says {strategy:?}, in which ClusterD reads no dump"))
        }
        // A job in which MindCluster reads no dump is another check's.
        Some(strategy)
            if object.strategy().is_some_and(|of_job| reads(of_job, "dump") && differ(of_job, strategy)) =>
        {
            Verdict::warn(format!("PodGroup {name} says {strategy:?}, and the job something else"))
        }
        Some(strategy) => Verdict::pass(format!("PodGroup {name} says {strategy:?}")),
    })
}

fn recovery(group: &DynamicObject) -> Judged {
    let label = group.labels().get(PROCESS_RECOVER_ENABLE).map(String::as_str);
    Ok(match label {
        Some("on") => Verdict::pass("it is on"),
        Some("pause") => Verdict::warn("it is pause: ClusterD waits until a handled fault has ended"),
        Some(other) => Verdict::fail(format!("it is {other:?}, so ClusterD lets no TaskD Manager register")),
        None => Verdict::fail("the PodGroup has no such label, so ClusterD lets no TaskD Manager register"),
    })
}

fn platform(group: &DynamicObject) -> Judged {
    Ok(if group.annotations().contains_key(PLATFORM) {
        Verdict::warn(format!(
            "the PodGroup has the annotation {PLATFORM}: ClusterD waits for a platform to answer"
        ))
    } else {
        Verdict::pass("ClusterD decides by itself")
    })
}

fn queue(group: &DynamicObject, snapshot: &Snapshot) -> Judged {
    let name = group.data["spec"]["queue"].as_str().unwrap_or("default");
    let Some(cluster) = &snapshot.cluster else { return Err(Verdict::unknown("queues weren't read")) };
    let queues = required(&cluster.queues, "Volcano's queues")?;
    Ok(match queues.get(name).map(String::as_str) {
        Some("Open") => Verdict::pass(format!("queue {name} is open")),
        Some("") => Verdict::unknown(format!("queue {name} shows no state: no Volcano runs that keeps it")),
        Some(state) => Verdict::fail(format!("queue {name} is {state}")),
        None => Verdict::fail(format!("queue {name} doesn't exist")),
    })
}

/// Whether `ports` has those of MindIO's controller and the TaskD Manager.
pub(super) fn has_ports(ports: &[i32], controller: u16, what: &str) -> Judged {
    let wanted = [controller, TASKD];
    let missing: Vec<String> =
        wanted.iter().filter(|port| !ports.contains(&i32::from(**port))).map(u16::to_string).collect();
    Ok(if missing.is_empty() {
        Verdict::pass(format!("{what} has {controller} and {TASKD}"))
    } else {
        Verdict::fail(format!("{what} lacks {}", missing.join(" and ")))
    })
}

/// The port of MindIO's controller, by the Pod of rank 0.
fn controller_port(job: &Job) -> u16 {
    let mut pods = job.running_pods().map(PodView::of);
    pods.find(PodView::is_first).map_or(TTP, |pod| pod.controller_port())
}

/// The ports of the training container.
pub(super) fn container_ports(spec: &PodSpec, container: Option<&str>) -> Vec<i32> {
    let containers = spec.containers.iter().filter(|one| container.is_none_or(|name| one.name == name));
    containers.flat_map(|one| one.ports.iter().flatten()).map(|port| port.container_port).collect()
}

fn template_ports(job: &Job, object: &JobObject) -> Judged {
    let templates = object.templates();
    let Some((name, _, Some(spec))) = templates.first() else {
        return Err(Verdict::unknown("the job has no template that can be read"));
    };
    let container = training_container(spec, None).map(|container| container.name.as_str());
    has_ports(&container_ports(spec, container), controller_port(job), &format!("the template of {name}"))
}

fn endpoints(job: &Job) -> Judged {
    let slices = required(&job.endpoints, "the endpoints of that Service")?;
    let ready = ready_endpoints(slices);
    Ok(Verdict::of(ready > 0, format!("the Service of rank 0 has {ready} ready endpoints")))
}

fn reset_config_state(job: &Job) -> Judged {
    let name = reset_config::name_for(&job.name);
    let data = known(&job.reset_config, &format!("ConfigMap {name}"))?;
    Ok(match reset_config::state(data) {
        reset_config::State::Usable => Verdict::pass(format!("ConfigMap {name} can be used")),
        reset_config::State::Missing => Verdict::fail(format!("ConfigMap {name} doesn't exist")),
        reset_config::State::Unusable(why) => Verdict::fail(format!("ConfigMap {name} {why}")),
    })
}

fn summary(job: &Job) -> Judged {
    let summary = required(&job.summary, &format!("ConfigMap job-summary-{}", job.name))?;
    let status = summary.get(STATUS).map_or("nothing", String::as_str);
    Ok(Verdict::of(status == "running", format!("ClusterD says of the job: {status}")))
}

fn clean_pod_policy(object: &JobObject) -> Judged {
    let policy = object.object.data["spec"]["runPolicy"]["cleanPodPolicy"].as_str().unwrap_or("None");
    Ok(if matches!(policy, "Running" | "All") {
        Verdict::warn(format!(
            "it is {policy}: when one Pod has failed, the others are deleted while they save"
        ))
    } else {
        Verdict::pass(format!("it is {policy}"))
    })
}

fn fault_scheduling(object: &JobObject) -> Judged {
    Ok(match object.label(FAULT_SCHEDULING) {
        Some("force") => {
            Verdict::warn("it is force: a Pod with a faulty device is deleted before anything is saved")
        }
        Some(other) => Verdict::pass(format!("it is {other}")),
        None => Verdict::pass("the job has no such label"),
    })
}

fn retries(job: &Job, object: &JobObject) -> Judged {
    Ok(match object.label(RETRIES).map(|value| (value, value.parse::<u32>())) {
        Some((value, Ok(1..))) => Verdict::pass(format!("it is {value}")),
        Some((value, _)) => Verdict::warn(format!("it is {value:?}, no positive number")),
        None if required(&job.pods, "its Pods")?.iter().all(|pod| PodView::of(pod).has_hook()) => {
            Verdict::pass("the job has no such label, and its Pods have the launcher hook")
        }
        None => Verdict::warn(
            "the job has no such label: when a Pod has failed, its PodGroup is deleted, and with it the outcome",
        ),
    })
}

fn other_pods(object: &JobObject) -> Judged {
    let pods: i64 = object.templates().iter().map(|(_, count, _)| count).sum();
    Ok(if pods > 1 {
        Verdict::pass(format!("the job has {pods} Pods"))
    } else {
        Verdict::warn("the job has one Pod: nothing is saved if its node is lost")
    })
}

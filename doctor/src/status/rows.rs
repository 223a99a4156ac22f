//! From what was observed to the rows of the table. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use swansong_api::documented::Documented as _;
use swansong_api::node::{DUMP_READY, FAULTS_RELAYED};

use super::{JobRow, NodeRow, Observed, Ready, Reason, Table};
use crate::checks::{Check, Link, Status, of_job, of_node};
use crate::collect::{group_name, owner};
use crate::fault_course::{Happening, event_time, is_of_fault, is_outcome};
use crate::snapshot::{Job, JobObject, NodeSnapshot, Seen, Snapshot, phase};

/// The checks of jobs and Pods for which the watched objects suffice.
const WATCHED: [Link; 20] = [
    Link::Strategy,
    Link::PodGroup,
    Link::RecoveryEnabled,
    Link::PlatformMode,
    Link::TemplatePorts,
    Link::CleanPodPolicy,
    Link::FaultScheduling,
    Link::PodsRunning,
    Link::Admitted,
    Link::OperatorEnvironment,
    Link::PodIp,
    Link::TtpPort,
    Link::MasterAddress,
    Link::TaskdEnabled,
    Link::SaveLimit,
    Link::OrderLimit,
    Link::RestartPolicy,
    Link::HostNetwork,
    Link::PodDevices,
    Link::LauncherHook,
];
/// ClusterD's result of the last recovery of a job, on its PodGroup.
const RECOVER_STATUS: &str = "ProcessRecoverStatus";

/// The table of what was observed.
pub fn table(observed: &Observed) -> Table {
    let events: &[Event] = observed.events.read().map_or(&[], Vec::as_slice);
    let snapshot = snapshot(observed);
    let mut used: HashMap<&str, usize> = HashMap::new();
    for pod in snapshot.jobs.iter().flat_map(Job::running_pods) {
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            *used.entry(node).or_default() += 1;
        }
    }
    let by_object = by_object(events);
    let jobs = snapshot.jobs.iter().filter_map(|job| job_row(job, &snapshot, &by_object));
    let nodes = snapshot.nodes.iter().filter(|node| {
        used.contains_key(node.name.as_str())
            || node.condition(DUMP_READY).is_some()
            || node.condition(FAULTS_RELAYED).is_some()
    });
    let nodes = nodes.map(|node| {
        let pods = used.get(node.name.as_str()).copied().unwrap_or_default();
        node_row(node, pods, observed.now, &by_object)
    });
    Table { jobs: jobs.collect(), nodes: nodes.collect(), problems: problems(observed) }
}

fn problems(observed: &Observed) -> Vec<String> {
    let mut problems = BTreeSet::new();
    for jobs in &observed.jobs {
        problems.extend(jobs.known().err().map(|why| format!("jobs: {why}")));
    }
    let others = [
        ("PodGroups", observed.groups.known().err()),
        ("Pods", observed.pods.known().err()),
        ("Nodes", observed.nodes.known().err()),
        ("Events", observed.events.known().err()),
    ];
    for (what, why) in others {
        problems.extend(why.map(|why| format!("{what}: {why}")));
    }
    problems.extend(observed.interrupted.as_ref().map(|why| format!("a watch is interrupted: {why}")));
    problems.into_iter().collect()
}

/// The Events by the UID of what they are about; those of Nodes, by its name.
fn by_object(events: &[Event]) -> HashMap<&str, Vec<&Event>> {
    let mut by_object: HashMap<&str, Vec<&Event>> = HashMap::new();
    for event in events {
        if let Some(uid) = event.involved_object.uid.as_deref() {
            by_object.entry(uid).or_default().push(event);
        }
    }
    by_object
}

/// What is known of the jobs, in the form that the checks read.
fn snapshot(observed: &Observed) -> Snapshot {
    let mut pods: BTreeMap<&str, Vec<Pod>> = BTreeMap::new();
    for pod in observed.pods.read().into_iter().flatten() {
        if let Some(owner) = owner(pod) {
            pods.entry(owner).or_default().push(pod.clone());
        }
    }
    let jobs = observed.jobs.iter().filter_map(Seen::read).flatten();
    let jobs = jobs.filter(|job| job.asks_for_dump()).map(|object| {
        let uid = object.object.metadata.uid.as_deref().unwrap_or_default();
        let mut own = pods.remove(uid).unwrap_or_default();
        own.sort_by_key(kube::ResourceExt::name_any);
        let namespace = object.object.namespace().unwrap_or_default();
        let name = group_name(object, &own);
        let group = observed.groups.as_ref().find(|groups| {
            groups.iter().find(|group| {
                group.namespace().as_deref() == Some(namespace.as_str()) && group.name_any() == name
            })
        });
        // Its Pods have its name.
        let group = if observed.pods.read().is_none() { group.or_unknown() } else { group };
        job(namespace, object, observed.pods.as_ref().map(|_| own), group)
    });
    let mut jobs: Vec<Job> = jobs.collect();
    jobs.sort_by_key(Job::reference);
    let node = |node: &Node| NodeSnapshot {
        name: node.name_any(),
        node: Seen::Read(node.clone()),
        device_info: Seen::NotAsked,
        agent: Seen::NotAsked,
        status: Seen::NotAsked,
    };
    let mut nodes: Vec<NodeSnapshot> = observed.nodes.read().into_iter().flatten().map(node).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Snapshot { taken_at: observed.now, installation: None, cluster: None, jobs, nodes }
}

fn job(namespace: String, object: &JobObject, pods: Seen<Vec<Pod>>, group: Seen<&DynamicObject>) -> Job {
    Job {
        namespace,
        name: object.object.name_any(),
        object: Seen::Read(object.clone()),
        pods,
        group: group.map(Clone::clone),
        reset_config: Seen::NotAsked,
        summary: Seen::NotAsked,
        service: Seen::NotAsked,
        endpoints: Seen::NotAsked,
    }
}

/// `None` for a job that has ended without a known fault.
fn job_row(job: &Job, snapshot: &Snapshot, events: &HashMap<&str, Vec<&Event>>) -> Option<JobRow> {
    let object = job.object.read()?;
    let pods: &[Pod] = job.pods.read().map_or(&[], Vec::as_slice);
    let uids = pods.iter().map(|pod| &pod.metadata).chain([&object.object.metadata]);
    let own: Vec<&Event> =
        uids.filter_map(|metadata| events.get(metadata.uid.as_deref()?)).flatten().copied().collect();
    let last_fault = newest(own.iter().copied().filter(|event| is_of_fault(event)));
    let outcome = newest(own.iter().copied().filter(|event| is_outcome(event)));
    // That of an earlier fault isn't the last one's.
    let outcome = outcome.filter(|outcome| last_fault.as_ref().is_none_or(|fault| fault.at <= outcome.at));
    let outcome = outcome.or_else(|| {
        let status = job.group.read()?.annotations().get(RECOVER_STATUS)?;
        (last_fault.is_none() && !status.is_empty()).then(|| Happening {
            reason: status.clone(),
            message: format!("{RECOVER_STATUS} of the PodGroup"),
            ..Happening::default()
        })
    });
    let has_ended = object.is_finished() || (!pods.is_empty() && job.running_pods().next().is_none());
    if has_ended && last_fault.is_none() && outcome.is_none() {
        return None;
    }
    let mut reasons = Reasons::default();
    if !has_ended {
        for check in of_job(job, snapshot).iter().filter(|check| WATCHED.contains(&check.link)) {
            reasons.add_check(check);
        }
        let used = job.running_pods().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
        for name in used.collect::<BTreeSet<_>>() {
            match snapshot.node(name) {
                Some(node) => {
                    for (link, status, seen) in of_node(node, snapshot.taken_at) {
                        reasons.add(link, status, format!("{name}: {seen}"));
                    }
                }
                None => {
                    reasons.add(Link::DumpReady, Status::Unknown, format!("{name}: the Node isn't known"));
                }
            }
        }
    }
    let running = job.pods.read().map(|pods| pods.iter().filter(|pod| phase(pod) == "Running").count());
    let (ready, why) = reasons.result();
    Some(JobRow {
        namespace: job.namespace.clone(),
        name: job.name.clone(),
        running_pods: running,
        wanted_pods: object.templates().iter().map(|(_, count, _)| count).sum(),
        ready: if has_ended { Ready::Ended } else { ready },
        why,
        last_fault,
        outcome,
    })
}

fn node_row(node: &NodeSnapshot, pods: usize, now: u64, events: &HashMap<&str, Vec<&Event>>) -> NodeRow {
    let mut reasons = Reasons::default();
    for (link, status, seen) in of_node(node, now) {
        reasons.add(link, status, seen);
    }
    let (ready, why) = reasons.result();
    let relayed = node.condition(FAULTS_RELAYED);
    let own = events.get(node.name.as_str()).into_iter().flatten().copied();
    NodeRow {
        name: node.name.clone(),
        ready,
        why,
        faults_relayed: relayed.map(|condition| condition.reason.clone().unwrap_or_default()),
        pods,
        last_fault: newest(own.filter(|event| is_of_fault(event))),
    }
}

fn newest<'a>(events: impl Iterator<Item = &'a Event>) -> Option<Happening> {
    events.max_by_key(|event| event_time(event)).map(Happening::of)
}

/// Why something isn't ready. If a check fails, those that aren't known say nothing more.
#[derive(Debug, Default)]
struct Reasons {
    failed: Vec<Reason>,
    unknown: Vec<Reason>,
}

impl Reasons {
    fn add_check(&mut self, check: &Check) {
        self.add(check.link, check.status, check.seen.clone());
    }

    fn add(&mut self, link: Link, status: Status, seen: String) {
        let reason = Reason { check: link.as_str().to_owned(), seen };
        match status {
            Status::Fail => self.failed.push(reason),
            Status::Unknown => self.unknown.push(reason),
            Status::Pass | Status::Warn => {}
        }
    }

    fn result(self) -> (Ready, Vec<Reason>) {
        if !self.failed.is_empty() {
            (Ready::No, self.failed)
        } else if !self.unknown.is_empty() {
            (Ready::Unknown, self.unknown)
        } else {
            (Ready::Yes, Vec::new())
        }
    }
}

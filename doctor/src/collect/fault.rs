//! What is left of the last fault of a job.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use swansong_api::annotations::FAULT_ID;

use super::jobs::collect_one;
use super::nodes::agent_status;
use super::reader::Reader;
use crate::checks::is_first;
use crate::fault_course::{AgentView, Evidence, LogLine, LogSource, event_time, is_of_fault, is_outcome};
use crate::snapshot::{Job, Seen};

/// The component that writes Events about faults.
const AGENT: &str = "reportingComponent=swansong-agent";
/// The logs of so many Pods are read: that of rank 0, those of the fault's node, and others.
const MOST_LOGS: usize = 16;
/// ClusterD's result of the last recovery of a job, on its PodGroup.
const RECOVER_STATUS: &str = "ProcessRecoverStatus";

/// Reads what is left of the last fault of a job.
pub async fn evidence(client: Client, namespace: &str, name: &str, on_progress: &dyn Fn(&str)) -> Evidence {
    let reader = Reader::new(client);
    on_progress("the job");
    let job = collect_one(&reader, namespace, name).await;
    evidence_of(&reader, &job, on_progress).await
}

/// The same for a job that was read.
pub(super) async fn evidence_of(reader: &Reader, job: &Job, on_progress: &dyn Fn(&str)) -> Evidence {
    on_progress("the Events of agents");
    let namespace = job.namespace.as_str();
    let events = |namespace: &str| {
        let events: Api<Event> = Api::namespaced(reader.client(), namespace);
        async move { reader.list(&events, &ListParams::default().fields(AGENT), Some).await }
    };
    // Events about Nodes are in the namespace default.
    let (own, of_nodes) = futures::join!(events(namespace), events("default"));
    let mut evidence = Evidence { job: job.reference(), ..Evidence::default() };
    let mut unread = |what: &str, why: Result<(), String>| {
        evidence.unread.extend(why.err().map(|why| format!("{what} {why}")));
    };
    unread(&format!("Events of namespace {namespace}"), own.known().map(drop));
    unread("Events of Nodes", of_nodes.known().map(drop));
    unread("the job", job.object.known().map(drop));
    if matches!(job.object, Seen::Absent) {
        evidence.unread.push("the job doesn't exist any more, and its logs went with its Pods".to_owned());
    }
    let status = job.group.read().and_then(|group| group.annotations().get(RECOVER_STATUS));
    evidence.recover_status = status.filter(|status| !status.is_empty()).cloned();

    let all: Vec<&Event> = [&own, &of_nodes].into_iter().filter_map(Seen::read).flatten().collect();
    // Of an earlier fault only the outcome may be left.
    let last = all.iter().filter(|event| is_of_job(event, job) && (is_of_fault(event) || is_outcome(event)));
    let last = last.max_by_key(|event| event_time(event)).and_then(|event| fault_id(event));
    let node = last.and_then(|id| {
        let host = |event: &&Event| event.source.as_ref().and_then(|source| source.host.clone());
        all.iter().find(|event| fault_id(event) == Some(id)).and_then(host)
    });
    if let Some(id) = last {
        let of_fault = all.iter().filter(|event| fault_id(event) == Some(id));
        // Those of other jobs that the same fault hit aren't part of this one's course.
        let own = of_fault
            .filter(|event| event.involved_object.kind.as_deref() == Some("Node") || is_of_job(event, job));
        evidence.events = own.map(|event| (*event).clone()).collect();
    }
    if let (Some(id), Some(node)) = (last, &node) {
        on_progress("the agent of the fault's node");
        match agent_status(reader, node).await.known() {
            Ok(Some(status)) => evidence.agent = Some(agent_view(node, id, status.faults.as_ref())),
            Ok(None) => evidence.unread.push(format!("the agent of node {node} doesn't run any more")),
            Err(why) => evidence.unread.push(format!("the /status of the agent of node {node} {why}")),
        }
    }
    on_progress("logs");
    let (lines, unread) = logs(reader, namespace, job, node.as_deref()).await;
    evidence.lines = lines;
    evidence.unread.extend(unread);
    evidence
}

fn fault_id(event: &Event) -> Option<&str> {
    event.metadata.annotations.as_ref()?.get(FAULT_ID).map(String::as_str)
}

/// Whether an Event is about the job or one of its Pods. Of what was deleted only the name is known.
fn is_of_job(event: &Event, job: &Job) -> bool {
    let object = &event.involved_object;
    if object.namespace.as_deref() != Some(job.namespace.as_str()) {
        return false;
    }
    let name = object.name.as_deref().unwrap_or_default();
    match object.kind.as_deref() {
        Some("Pod") => {
            let known = job.pods.read().is_some_and(|pods| pods.iter().any(|pod| pod.name_any() == name));
            known
                || (job.object.read().is_none()
                    && name.strip_prefix(&job.name).is_some_and(|rest| rest.starts_with('-')))
        }
        Some("Node") | None => false,
        Some(_) => name == job.name,
    }
}

fn agent_view(node: &str, id: &str, faults: Option<&crate::snapshot::AgentFaults>) -> AgentView {
    let fault = faults.and_then(|faults| faults.faults.iter().find(|fault| fault.id == id));
    AgentView {
        node: node.to_owned(),
        phase: fault.map(|fault| match fault.phase.as_str() {
            Some(phase) => phase.to_owned(),
            None => fault.phase.to_string(),
        }),
        is_awaited: faults.is_some_and(|faults| faults.outcomes.contains_key(id)),
    }
}

/// The lines of logs that say something. Why logs can't be read is said once.
async fn logs(
    reader: &Reader,
    namespace: &str,
    job: &Job,
    node: Option<&str>,
) -> (Vec<LogLine>, Vec<String>) {
    let mut pods: Vec<&Pod> = job.pods.read().into_iter().flatten().collect();
    let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == node;
    pods.sort_by_key(|pod| (!is_first(pod), !on_node(pod), pod.name_any()));
    let mut unread = Vec::new();
    if pods.len() > MOST_LOGS {
        unread.push(format!("the logs of {} other Pods weren't read", pods.len() - MOST_LOGS));
    }
    let sources = pods.into_iter().take(MOST_LOGS).flat_map(|pod| {
        containers(pod).map(|container| LogSource { pod: pod.name_any(), container: container.to_owned() })
    });
    let read = Reader::each(sources.collect::<Vec<_>>(), |source| async move {
        let log = reader.log(namespace, &source.pod, &source.container).await;
        (source, log)
    });
    let mut read: Vec<(LogSource, Seen<String>)> = read.collect().await;
    read.sort_by(|(a, _), (b, _)| (&a.pod, &a.container).cmp(&(&b.pod, &b.container)));
    let mut lines = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    for (source, log) in read {
        match log.known() {
            Ok(log) => lines.extend(log.map(|log| LogLine::of(&source, log)).unwrap_or_default()),
            Err(why) => problems.push(format!("the log of {}/{} {why}", source.pod, source.container)),
        }
    }
    let others = problems.len().saturating_sub(1);
    if let Some(first) = problems.into_iter().next() {
        let more = if others > 0 { format!(", and {others} other logs") } else { String::new() };
        unread.push(format!("{first}{more}"));
    }
    (lines, unread)
}

/// The containers that may run a trainer or the TaskD Manager.
pub(super) fn containers(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.iter();
    let names = spec.flat_map(|spec| {
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        spec.containers.iter().chain(sidecars)
    });
    names.map(|container| container.name.as_str())
}

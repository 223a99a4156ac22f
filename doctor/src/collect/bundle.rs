//! What a bundle is made of, beside the snapshot.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::fault::{containers, evidence_of};
use super::nodes::status_text;
use super::reader::Reader;
use super::{AGENT_NAMESPACE, Scope, WEBHOOK_NAMESPACE, collect};
use crate::bundle::Material;
use crate::fault_course::{Course, LogSource};
use crate::snapshot::{Job, Seen, Snapshot};

/// The namespace of ClusterD, and how the names of its Pods begin.
const CLUSTERD: (&str, &str) = ("mindx-dl", "clusterd");
/// The logs of so many Pods of jobs are read, and of so many agents.
const MOST_PODS: usize = 64;
const MOST_AGENTS: usize = 32;
/// So many Events of a namespace are kept.
const MOST_EVENTS: usize = 5000;

/// Reads everything for a bundle.
pub async fn material(client: Client, scope: &Scope, on_progress: &dyn Fn(&str)) -> Material {
    let snapshot = collect(client.clone(), scope, on_progress).await;
    let reader = Reader::new(client);
    let mut unread = Vec::new();
    on_progress("versions, Events and agents");
    let namespaces: BTreeSet<String> = snapshot.jobs.iter().map(|job| job.namespace.clone()).collect();
    let all =
        [WEBHOOK_NAMESPACE, AGENT_NAMESPACE, "default"].map(str::to_owned).into_iter().chain(namespaces);
    let mut events = Vec::new();
    for namespace in all.collect::<BTreeSet<_>>().into_iter().filter(|namespace| namespace != "*") {
        let api: Api<Event> = Api::namespaced(reader.client(), &namespace);
        match reader.list(&api, &ListParams::default(), Some).await {
            Seen::Read(mut found) => {
                let surplus = found.len().saturating_sub(MOST_EVENTS);
                found.sort_by_key(crate::fault_course::event_time);
                events.extend(found.drain(surplus..));
            }
            other => unread.extend(other.known().err().map(|why| format!("Events of {namespace}: {why}"))),
        }
    }
    let api_server = reader.version().await;
    unread.extend(api_server.known().err().map(|why| format!("the version of the API server {why}")));
    let agents = agents(&reader, &snapshot).await;
    on_progress("the last fault of each job");
    let courses: Vec<Option<Course>> =
        Reader::each(&snapshot.jobs, |job| course(&reader, job)).collect().await;
    let courses = courses.into_iter().flatten().collect();
    on_progress("logs");
    let pods = own_pods(&reader, &snapshot, &mut unread).await;
    let logs = logs(&reader, &snapshot, &pods, &mut unread).await;
    Material { snapshot, api_server, courses, events, agents, pods, logs, unread }
}

/// `None` for a job without a known fault.
async fn course(reader: &Reader, job: &Job) -> Option<Course> {
    job.object.read()?;
    let course = Course::new(evidence_of(reader, job, &|_| {}).await);
    course.fault.is_some().then_some(course)
}

async fn agents(reader: &Reader, snapshot: &Snapshot) -> BTreeMap<String, Seen<Value>> {
    let asked = snapshot.nodes.iter().filter(|node| !matches!(node.status, Seen::NotAsked));
    let asked: Vec<_> = asked.filter_map(|node| Some((node.name.clone(), node.agent.read()?))).collect();
    let read = Reader::each(asked, |(node, pod)| async move {
        let text = status_text(reader, pod).await;
        (node, text.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text))))
    });
    read.collect().await
}

/// The Pods of the webhook, of ClusterD, and of the agents of the jobs' nodes.
async fn own_pods(reader: &Reader, snapshot: &Snapshot, unread: &mut Vec<String>) -> Vec<Pod> {
    let mut found = Vec::new();
    let webhook = (WEBHOOK_NAMESPACE, "swansong-webhook");
    for (namespace, prefix) in [webhook, CLUSTERD] {
        let pods: Api<Pod> = Api::namespaced(reader.client(), namespace);
        let own = |pod: Pod| pod.name_any().starts_with(prefix).then_some(pod);
        match reader.list(&pods, &ListParams::default(), own).await {
            Seen::Read(pods) => found.extend(pods),
            other => unread.extend(other.known().err().map(|why| format!("Pods of {namespace} {why}"))),
        }
    }
    let asked = snapshot.nodes.iter().filter(|node| !matches!(node.status, Seen::NotAsked));
    found.extend(asked.filter_map(|node| node.agent.read().cloned()).take(MOST_AGENTS));
    found
}

async fn logs(
    reader: &Reader,
    snapshot: &Snapshot,
    own: &[Pod],
    unread: &mut Vec<String>,
) -> Vec<(String, LogSource, Seen<String>)> {
    let mut of_jobs: Vec<&Pod> = snapshot.jobs.iter().filter_map(|job| job.pods.read()).flatten().collect();
    // Those with the TaskD Manager and MindIO's controller first.
    of_jobs.sort_by_key(|pod| !crate::checks::is_first(pod));
    if of_jobs.len() > MOST_PODS {
        unread.push(format!("the logs of {} Pods of jobs", of_jobs.len() - MOST_PODS));
    }
    let pods = own.iter().chain(of_jobs.into_iter().take(MOST_PODS));
    let sources = pods.flat_map(|pod| {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        containers(pod).map(move |container| {
            (namespace.clone(), LogSource { pod: name.clone(), container: container.to_owned() })
        })
    });
    let read = Reader::each(sources.collect::<Vec<_>>(), |(namespace, source)| async move {
        let log = reader.log(&namespace, &source.pod, &source.container).await;
        (namespace, source, log)
    });
    let mut logs: Vec<_> = read.collect().await;
    logs.sort_by(|(a, a_source, _), (b, b_source, _)| {
        (a, &a_source.pod, &a_source.container).cmp(&(b, &b_source.pod, &b_source.container))
    });
    logs
}

//! The watches: lists in pages, then only changes. Large members that nothing reads are dropped on arrival.

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::{DynamicResourceScope, GroupVersionKind};
use kube::runtime::reflector::{Lookup, Store, store::Writer};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::Event as Change};
use kube::{Client, Resource};
use strum::VariantArray as _;
use swansong_api::annotations::{LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH};
use swansong_runtime::backoff::{API_SERVER, WatchBackoff};
use swansong_runtime::kube::{error_message, status_code};
use tokio::time::{Instant, sleep_until};

use super::Observed;
use crate::collect::now;
use crate::snapshot::{JobKind, JobObject, Seen};

/// How many objects an answer to a list may have.
const PAGE: u32 = 500;
/// How long the first lists may take.
const TIMEOUT: Duration = Duration::from_mins(1);
/// For how long changes are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// After this time without a change ages and heartbeats are judged anyway.
const REFRESH: Duration = Duration::from_mins(1);
/// Labels of the Pods of AscendJobs and Volcano Jobs.
const POD_LABELS: [&str; 2] = ["training.kubeflow.org/job-name", "volcano.sh/job-name"];
/// The component that writes Events about faults.
const AGENT: &str = "reportingComponent=swansong-agent";

/// All watches of a table.
pub struct Watches {
    jobs: Vec<(JobKind, Source<DynamicObject>)>,
    groups: Source<PartialObjectMeta<DynamicObject>>,
    pods: Vec<Source<Pod>>,
    nodes: Source<Node>,
    events: Vec<Source<Event>>,
    changes: SelectAll<BoxStream<'static, ()>>,
    is_first: bool,
}

impl Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("is_first", &self.is_first).finish_non_exhaustive()
    }
}

impl Watches {
    /// Watches one namespace, or all, and all nodes.
    pub fn new(client: &Client, namespace: Option<&str>) -> Self {
        let mut changes = SelectAll::new();
        let config = || watcher::Config::default().page_size(PAGE);
        let jobs = JobKind::VARIANTS.iter().map(|&kind| {
            let stream = watcher(dynamic(client, namespace, &kind.resource()), config());
            (kind, Source::follow(stream, kind.resource(), &mut changes, forget_fields))
        });
        let jobs = jobs.collect();
        let group =
            ApiResource::from_gvk(&GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "PodGroup"));
        let stream = watcher(dynamic(client, namespace, &group), config());
        let groups = Source::follow(stream, group, &mut changes, forget_fields);
        let pods = POD_LABELS.map(|label| {
            let stream = watcher(namespaced::<Pod>(client, namespace), config().labels(label));
            Source::follow(stream, (), &mut changes, reduce_pod)
        });
        let nodes = Source::follow(
            watcher(Api::<Node>::all(client.clone()), config()),
            (),
            &mut changes,
            reduce_node,
        );
        // Events about Nodes are in the namespace default.
        let namespaces = match namespace {
            None => vec![None],
            Some("default") => vec![Some("default")],
            Some(namespace) => vec![Some(namespace), Some("default")],
        };
        let events = namespaces.into_iter().map(|namespace| {
            let stream = watcher(namespaced::<Event>(client, namespace), config().fields(AGENT));
            Source::follow(stream, (), &mut changes, forget_fields)
        });
        let events = events.collect();
        Self { jobs, groups, pods: pods.into(), nodes, events, changes, is_first: true }
    }

    /// What is observed after the first lists, and then after each change.
    pub async fn next(&mut self) -> Observed {
        let mut deadline = Instant::now() + if self.is_first { TIMEOUT } else { REFRESH };
        let mut is_gathering = false;
        while !(self.is_first && self.have_all_answered()) {
            tokio::select! {
                Some(()) = self.changes.next() => {
                    if !self.is_first && !is_gathering {
                        (deadline, is_gathering) = (deadline.min(Instant::now() + GATHER), true);
                    }
                }
                () = sleep_until(deadline) => break,
            }
        }
        self.is_first = false;
        self.observed()
    }

    fn have_all_answered(&self) -> bool {
        self.jobs.iter().all(|(_, source)| source.has_answered())
            && self.groups.has_answered()
            && self.pods.iter().all(Source::has_answered)
            && self.nodes.has_answered()
            && self.events.iter().all(Source::has_answered)
    }

    fn observed(&self) -> Observed {
        let job = |kind: JobKind| move |object: DynamicObject| JobObject { kind, object };
        let jobs = self
            .jobs
            .iter()
            .map(|(kind, source)| source.seen().map(|objects| objects.into_iter().map(job(*kind)).collect()));
        let groups = self.groups.seen().map(|groups| groups.into_iter().map(without_content).collect());
        let interrupted = [
            self.jobs.iter().find_map(|(_, source)| source.interruption()),
            self.groups.interruption(),
            self.pods.iter().find_map(Source::interruption),
            self.nodes.interruption(),
            self.events.iter().find_map(Source::interruption),
        ];
        Observed {
            now: now(),
            jobs: jobs.collect(),
            groups,
            pods: together(&self.pods),
            nodes: self.nodes.seen(),
            events: together(&self.events),
            interrupted: interrupted.into_iter().flatten().next(),
        }
    }
}

fn namespaced<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn dynamic<K>(client: &Client, namespace: Option<&str>, resource: &ApiResource) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

fn without_content(group: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    DynamicObject { types: group.types, metadata: group.metadata, data: serde_json::Value::Null }
}

/// Drops the managed fields, which may be larger than all the rest.
fn forget_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

fn reduce_pod(pod: &mut Pod) {
    forget_fields(pod);
    // That the launcher hook is there matters; its text is large.
    for (name, value) in pod.metadata.annotations.iter_mut().flatten() {
        if [LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH].contains(&name.as_str()) {
            value.clear();
        }
    }
}

fn reduce_node(node: &mut Node) {
    forget_fields(node);
    if let Some(status) = &mut node.status {
        status.images = None;
    }
}

/// What several watches of one kind show; the first that fails is the result.
fn together<K>(sources: &[Source<K>]) -> Seen<Vec<K>>
where
    K: Lookup + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let mut all = Vec::new();
    for source in sources {
        match source.seen() {
            Seen::Read(found) => all.extend(found),
            other => return other,
        }
    }
    Seen::Read(all)
}

/// The objects of one watch.
struct Source<K>
where
    K: Lookup + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    objects: Store<K>,
    state: Arc<Mutex<State>>,
}

/// How far a watch has come.
#[derive(Debug, Clone)]
struct State {
    /// The result of the first list.
    list: Seen<()>,
    /// The last failure, if nothing has come since.
    failure: Option<String>,
}

impl<K> Source<K>
where
    K: Lookup + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Follows a watch. Each change of it is an item of `changes`.
    fn follow(
        stream: impl Stream<Item = watcher::Result<Change<K>>> + Send + 'static,
        kind: K::DynamicType,
        changes: &mut SelectAll<BoxStream<'static, ()>>,
        reduce: fn(&mut K),
    ) -> Self
    where
        K: Send + Sync,
        K::DynamicType: Send + Sync,
    {
        let mut writer = Writer::new(kind);
        let objects = writer.as_reader();
        let state = Arc::new(Mutex::new(State { list: Seen::NotAsked, failure: None }));
        let shared = Arc::clone(&state);
        let followed = stream.backoff(WatchBackoff::new(API_SERVER)).modify(reduce).map(move |change| {
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            match change {
                Ok(change) => {
                    state.failure = None;
                    if matches!(change, Change::InitDone) {
                        state.list = Seen::Read(());
                    }
                    writer.apply_watcher_event(&change);
                }
                Err(error) => state.fail(&error),
            }
        });
        changes.push(followed.boxed());
        Self { objects, state }
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has_answered(&self) -> bool {
        !matches!(self.state().list, Seen::NotAsked)
    }

    /// Its objects; those of the last list while the watch is interrupted.
    fn seen(&self) -> Seen<Vec<K>> {
        let State { list, failure } = self.state();
        match list {
            Seen::NotAsked => {
                Seen::Failed(failure.unwrap_or_else(|| format!("no answer within {TIMEOUT:?}")))
            }
            list => list.map(|()| self.objects.state().iter().map(|object| K::clone(object)).collect()),
        }
    }

    /// Why the objects may be stale.
    fn interruption(&self) -> Option<String> {
        let State { list, failure } = self.state();
        failure.filter(|_| matches!(list, Seen::Read(())))
    }
}

impl State {
    fn fail(&mut self, error: &watcher::Error) {
        let (code, message) = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => (status_code(error), error_message(error)),
            watcher::Error::WatchError(status) => (Some(status.code), status.message.clone()),
            watcher::Error::NoResourceVersion => (None, error.to_string()),
        };
        self.failure = Some(message.clone());
        if matches!(self.list, Seen::Read(())) {
            return;
        }
        self.list = match code {
            // The cluster doesn't define the kind.
            Some(404) => Seen::Absent,
            Some(401 | 403) => Seen::Forbidden(message),
            // It limits its clients, and answers later.
            Some(429) => return,
            _ => Seen::Failed(message),
        };
    }
}

//! Events, joined and rate-limited.
//!
//! kube's `Recorder` keeps the message of the first of several Events with the same reason, and has no limit. Here the last
//! message is kept, annotations are possible, and a flood is joined to one Event with a count. An Event may be lost, so
//! conditions, metrics and status pages show the same information.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as KubeEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::warn;

use crate::backoff::{API_SERVER, Backoff};
use crate::kube::{error_message, is_namespace_terminating, retry_after, status_code};
use crate::supervisor::Progress;

/// The number of waiting Events; further ones are dropped and counted.
const QUEUE: usize = 256;

/// The number of requests in a burst for one object, of which one returns after each [`REFILL`].
const BURST: u32 = 10;
const REFILL: Duration = Duration::from_secs(30);

/// The API server keeps Events for an hour by default.
const LIFETIME: Duration = Duration::from_hours(1);

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// An Event to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The object that it is about.
    pub regarding: ObjectReference,
    /// Whether its type is `Warning`.
    pub warning: bool,
    /// The CamelCase reason.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// Annotations for programs.
    pub annotations: BTreeMap<&'static str, String>,
    /// Whether it describes a state. The same state is sent once in the lifetime of an Event, also after a restart.
    pub is_state: bool,
}

/// Counts of Events by their result.
#[derive(Debug, Clone, Default)]
pub struct EventMetrics(Family<[(&'static str, &'static str); 1], Counter>);

impl EventMetrics {
    pub fn register(&self, registry: &mut Registry) {
        let help = "Events sent, dropped because too many waited, and failed requests";
        registry.register("events", help, self.0.clone());
        // Alerts need the series before the first increment.
        for result in ["sent", "dropped", "failed"] {
            let _ = self.0.get_or_create(&[("result", result)]);
        }
    }

    fn count(&self, result: &'static str) {
        self.0.get_or_create(&[("result", result)]).inc();
    }
}

/// The sending end of the queue.
#[derive(Debug, Clone)]
pub struct EventSender {
    queue: mpsc::Sender<Event>,
    metrics: EventMetrics,
}

impl EventSender {
    /// Queues an Event without waiting. If the queue is full the Event is dropped and counted.
    pub fn send(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.metrics.count("dropped");
        }
    }
}

/// Writes Events to the API server.
#[derive(Debug)]
pub struct EventWriter {
    queue: mpsc::Receiver<Event>,
    metrics: EventMetrics,
    component: String,
    host: String,
    joined: JoinedEvents,
}

/// Creates both ends of the queue. The Events' source is `component` on `host`.
pub fn channel(component: &str, host: &str, metrics: &EventMetrics) -> (EventSender, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let writer = EventWriter {
        queue,
        metrics: metrics.clone(),
        component: component.to_owned(),
        host: host.to_owned(),
        joined: JoinedEvents::default(),
    };
    (EventSender { queue: sender, metrics: metrics.clone() }, writer)
}

/// An object of kind Event and its unsent changes.
#[derive(Debug)]
struct Entry {
    event: Event,
    name: String,
    first: Timestamp,
    last: Timestamp,
    count: i32,
    sent_count: i32,
    touched: Instant,
}

impl Entry {
    const fn is_pending(&self) -> bool {
        self.count > self.sent_count
    }
}

/// Object, reason and, for a state, the hash of its message.
type Key = (String, &'static str, Option<u64>);

#[derive(Debug, Default)]
struct JoinedEvents {
    entries: HashMap<Key, Entry>,
    /// The requests left for each object, and the time of the last refill.
    budgets: HashMap<String, (u32, Instant)>,
}

impl EventWriter {
    /// Writes Events until it is aborted.
    pub async fn run(&mut self, client: &Client, progress: &Progress) -> Infallible {
        let mut backoff = Backoff::new(API_SERVER);
        loop {
            progress.alive();
            let due = self.joined.next_due().unwrap_or_else(|| Instant::now() + LIFETIME / 10);
            tokio::select! {
                event = self.queue.recv() => match event {
                    Some(event) => self.joined.add(event),
                    // All senders were dropped.
                    None => std::future::pending().await,
                },
                () = sleep_until(due) => {}
            }
            // Waiting Events are joined before any is written.
            while let Ok(event) = self.queue.try_recv() {
                self.joined.add(event);
            }
            self.joined.expire();
            while let Some(key) = self.joined.take_pending() {
                progress.alive();
                let Some(entry) = self.joined.entries.get_mut(&key) else { break };
                match write(client, entry, &self.component, &self.host).await {
                    Ok(()) => {
                        self.metrics.count("sent");
                        progress.succeeded();
                        backoff.reset();
                    }
                    Err((error, retry_after)) => {
                        self.metrics.count("failed");
                        let delay = backoff.next_delay(retry_after);
                        warn!(error, ?delay, "an Event can't be written, retrying");
                        progress.failed(&error);
                        sleep(delay).await;
                    }
                }
            }
        }
    }
}

impl JoinedEvents {
    fn add(&mut self, event: Event) {
        let object = &event.regarding;
        let parts = [&object.kind, &object.namespace, &object.name, &object.uid, &object.field_path];
        let object_key = parts.map(|part| part.as_deref().unwrap_or_default()).join("/");
        let mut hasher = DefaultHasher::new();
        (&object_key, event.reason).hash(&mut hasher);
        let state = event.is_state.then(|| {
            event.message.hash(&mut hasher);
            hasher.finish()
        });
        // A state has the same name in every process, so the API server recognises it.
        let suffix = state.unwrap_or_else(|| hasher.finish() ^ fastrand::u64(..));
        // Names have at most 253 characters.
        let object_name: String = object.name.iter().flat_map(|name| name.chars()).take(230).collect();
        let now = Timestamp::now();
        let entry = self.entries.entry((object_key, event.reason, state)).or_insert_with(|| Entry {
            event: event.clone(),
            name: format!("{object_name}.{suffix:016x}"),
            first: now,
            last: now,
            count: 0,
            sent_count: 0,
            touched: Instant::now(),
        });
        entry.event = event;
        entry.last = now;
        entry.touched = Instant::now();
        if state.is_none() || entry.count == 0 {
            entry.count += 1;
        }
    }

    /// A pending entry that may be written now.
    fn take_pending(&mut self) -> Option<Key> {
        let now = Instant::now();
        let pending = self.entries.iter().filter(|(_, entry)| entry.is_pending());
        let pending: Vec<Key> = pending.map(|(key, _)| key.clone()).collect();
        pending.into_iter().find(|(object, _, _)| {
            let (left, refilled) = self.budgets.entry(object.clone()).or_insert((BURST, now));
            while *left < BURST && now.duration_since(*refilled) >= REFILL {
                *left += 1;
                *refilled += REFILL;
            }
            if *left == BURST {
                *refilled = now;
            }
            let may_write = *left > 0;
            *left = left.saturating_sub(1);
            may_write
        })
    }

    /// When the next pending entry may be written.
    fn next_due(&self) -> Option<Instant> {
        let pending = self.entries.iter().filter(|(_, entry)| entry.is_pending());
        let due = pending.map(|((object, _, _), _)| {
            self.budgets.get(object).map_or_else(Instant::now, |(_, refilled)| *refilled + REFILL)
        });
        due.min()
    }

    fn expire(&mut self) {
        self.entries.retain(|_, entry| entry.is_pending() || entry.touched.elapsed() < LIFETIME);
        self.budgets.retain(|_, (_, refilled)| refilled.elapsed() < LIFETIME);
    }
}

async fn write(
    client: &Client,
    entry: &mut Entry,
    component: &str,
    host: &str,
) -> Result<(), (String, Option<Duration>)> {
    match timeout(REQUEST_TIMEOUT, try_write(client, entry, component, host)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err((error_message(&error), retry_after(&error))),
        Err(_) => Err((format!("no answer within {REQUEST_TIMEOUT:?}"), None)),
    }
}

async fn try_write(client: &Client, entry: &mut Entry, component: &str, host: &str) -> Result<(), Error> {
    let count = entry.count;
    // Events about cluster-scoped objects are in the namespace default.
    let namespace = entry.event.regarding.namespace.as_deref().unwrap_or("default");
    let events: Api<KubeEvent> = Api::namespaced(client.clone(), namespace);
    if entry.sent_count > 0 {
        let patch = json!({
            "count": count,
            "lastTimestamp": Time(entry.last),
            "message": entry.event.message,
            "metadata": {"annotations": entry.event.annotations},
        });
        match events.patch(&entry.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {
                entry.sent_count = count;
                return Ok(());
            }
            // It has expired; a new one replaces it.
            Err(error) if status_code(&error) == Some(404) => {
                let object = entry.name.rsplit_once('.').map_or("", |(object, _)| object);
                entry.name = format!("{object}.{:016x}", fastrand::u64(..));
            }
            Err(error) => return Err(error),
        }
    }
    match events.create(&PostParams::default(), &object(entry, namespace, component, host)).await {
        Ok(_) => {}
        Err(error) if entry.event.is_state && status_code(&error) == Some(409) => {}
        // A repetition would only delay the Events of other namespaces.
        Err(error) if status_code(&error) == Some(404) || is_namespace_terminating(&error) => {
            warn!(error = error_message(&error), "an Event is dropped, since its namespace doesn't exist");
        }
        Err(error) => return Err(error),
    }
    entry.sent_count = count;
    Ok(())
}

fn object(entry: &Entry, namespace: &str, component: &str, host: &str) -> KubeEvent {
    let event = &entry.event;
    let annotations = event.annotations.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
    KubeEvent {
        metadata: ObjectMeta {
            name: Some(entry.name.clone()),
            namespace: Some(namespace.to_owned()),
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        },
        involved_object: event.regarding.clone(),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(event.message.clone()),
        source: Some(EventSource { component: Some(component.to_owned()), host: Some(host.to_owned()) }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(host.to_owned()),
        first_timestamp: Some(Time(entry.first)),
        last_timestamp: Some(Time(entry.last)),
        count: Some(entry.count),
        ..KubeEvent::default()
    }
}

/// A reference to a Node. Its UID is the Node's name, as in the kubelet's Events, because `kubectl describe node` selects
/// Events by that.
pub fn node_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// A reference to a container of a Pod.
pub fn container_reference(namespace: &str, pod: &str, uid: &str, container: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(pod.to_owned()),
        uid: Some(uid.to_owned()),
        field_path: Some(format!("spec.containers{{{container}}}")),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;

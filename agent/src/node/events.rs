//! Events on the node and its pods, many of the same told as one with a count.
//!
//! API servers and clients drop Events of a source that has too many of them (25 at once, then one in five minutes for
//! each object), silently. So they are joined here, and nothing is told by an Event alone: condition, metrics and
//! status say it too.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::api::{ApiError, ApiServer};
use super::follow::Timing;
use super::write::time;
use crate::metrics::Metrics;
use swansong_runtime::backoff::Backoff;
use swansong_runtime::supervisor::Progress;

/// What waits to be told; more is counted as dropped.
const QUEUE: usize = 256;

/// As many requests at once for one object, and one more for each [`REFILL`].
const BURST: u32 = 10;
const REFILL: Duration = Duration::from_secs(30);

/// API servers keep Events for an hour unless told otherwise.
const LIFE: Duration = Duration::from_hours(1);

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// This node.
    Node(String),
    /// A container of a pod.
    Container {
        /// The pod's namespace.
        namespace: String,
        /// Its name.
        pod: String,
        /// Its UID.
        uid: String,
        /// The container's name.
        container: String,
    },
    /// A job.
    Job {
        /// As `mindxdl.gitee.com/v1`.
        api_version: String,
        /// As `AscendJob`.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// About whom.
    pub(crate) about: About,
    /// Whether it is bad.
    pub(crate) warning: bool,
    /// One word.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    /// Further facts for programs.
    pub(crate) annotations: BTreeMap<&'static str, String>,
    /// Told once in the life of an Event, also by the next process: it says how something is, not that it happened.
    pub(crate) once: bool,
}

/// Takes Events from everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<Outgoing>,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Never waits; what finds no place is counted.
    pub(crate) fn tell(&self, event: Outgoing) {
        if self.queue.try_send(event).is_err() {
            self.metrics.event_dropped();
        }
    }
}

/// Carries them to the API server.
#[derive(Debug)]
pub(crate) struct Recorder {
    queue: mpsc::Receiver<Outgoing>,
    metrics: Arc<Metrics>,
    node: String,
    known: Known,
}

/// One Event of the API server.
#[derive(Debug)]
struct Entry {
    event: Outgoing,
    name: String,
    first: SystemTime,
    last: SystemTime,
    seen: u32,
    told: u32,
    touched: Instant,
}

#[derive(Debug, Default)]
struct Known {
    entries: HashMap<(About, &'static str, Option<u64>), Entry>,
    allowance: HashMap<About, (u32, Instant)>,
}

impl Recorder {
    /// Both ends of the queue.
    pub(crate) fn new(node: &str, metrics: Arc<Metrics>) -> (Events, Self) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let events = Events { queue: sender, metrics: Arc::clone(&metrics) };
        (events, Self { queue, metrics, node: node.to_owned(), known: Known::default() })
    }

    /// Tells what comes, as fast as it may.
    pub(crate) async fn run(&mut self, api: &ApiServer, timing: &Timing, progress: &Progress) -> Infallible {
        let mut backoff = Backoff::new(timing.backoff);
        loop {
            progress.alive();
            let wake = self.known.next_due();
            let timer = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => sleep(LIFE / 10).await,
                }
            };
            tokio::select! {
                event = self.queue.recv() => match event {
                    Some(event) => self.known.take_in(event),
                    // Nobody can tell anything any more.
                    None => std::future::pending().await,
                },
                () = timer => {}
            }
            // What came meanwhile is joined first.
            while let Ok(event) = self.queue.try_recv() {
                self.known.take_in(event);
            }
            self.known.forget();
            while let Some(key) = self.known.pay() {
                progress.alive();
                let Some(entry) = self.known.entries.get_mut(&key) else { break };
                match send(api, entry, &self.node).await {
                    Ok(()) => {
                        self.metrics.event_told();
                        progress.succeeded();
                        backoff.reset();
                    }
                    Err(error) => {
                        self.metrics.api_failed("events");
                        let wait = backoff.next_delay(error.retry_after());
                        warn!(%error, ?wait, "an Event can't be told; trying again");
                        progress.failed(&error);
                        sleep(wait).await;
                    }
                }
            }
        }
    }
}

impl Known {
    fn take_in(&mut self, event: Outgoing) {
        let mut hasher = DefaultHasher::new();
        (&event.about, event.reason).hash(&mut hasher);
        if event.once {
            event.message.hash(&mut hasher);
        }
        let mark = event.once.then(|| hasher.finish());
        // What is told once has the same name in every process, so that the API server knows it.
        let suffix = mark.unwrap_or_else(|| hasher.finish() ^ fastrand::u64(..));
        let object = match &event.about {
            About::Node(name) | About::Job { name, .. } => name,
            About::Container { pod, .. } => pod,
        };
        // A name has at most 253 characters.
        let object: String = object.chars().take(230).collect();
        let now = SystemTime::now();
        let key = (event.about.clone(), event.reason, mark);
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            event: event.clone(),
            name: format!("{object}.{suffix:016x}"),
            first: now,
            last: now,
            seen: 0,
            told: 0,
            touched: Instant::now(),
        });
        entry.event = event;
        entry.last = now;
        entry.touched = Instant::now();
        if mark.is_none() || entry.seen == 0 {
            entry.seen += 1;
        }
    }

    /// An entry that waits and may be told now.
    fn pay(&mut self) -> Option<(About, &'static str, Option<u64>)> {
        let now = Instant::now();
        let waiting: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.seen > entry.told)
            .map(|(key, _)| key.clone())
            .collect();
        waiting.into_iter().find(|(about, _, _)| {
            let (left, since) = self.allowance.entry(about.clone()).or_insert((BURST, now));
            while *left < BURST && now.duration_since(*since) >= REFILL {
                *left += 1;
                *since += REFILL;
            }
            if *left == BURST {
                *since = now;
            }
            let paid = *left > 0;
            *left = left.saturating_sub(1);
            paid
        })
    }

    /// When something that waits may be told.
    fn next_due(&self) -> Option<Instant> {
        let waiting = self.entries.iter().filter(|(_, entry)| entry.seen > entry.told);
        waiting
            .map(|((about, _, _), _)| {
                self.allowance.get(about).map_or_else(Instant::now, |(_, since)| *since + REFILL)
            })
            .min()
    }

    fn forget(&mut self) {
        self.entries.retain(|_, entry| entry.seen > entry.told || entry.touched.elapsed() < LIFE);
        self.allowance.retain(|_, (_, since)| since.elapsed() < LIFE);
    }
}

async fn send(api: &ApiServer, entry: &mut Entry, node: &str) -> Result<(), ApiError> {
    let seen = entry.seen;
    let namespace = match &entry.event.about {
        // Where the kubelet's are.
        About::Node(_) => "default",
        About::Container { namespace, .. } | About::Job { namespace, .. } => namespace,
    };
    let events = format!("/api/v1/namespaces/{namespace}/events");
    if entry.told > 0 {
        let change = json!({
            "count": seen,
            "lastTimestamp": time(entry.last),
            "message": entry.event.message,
            "metadata": {"annotations": entry.event.annotations},
        });
        let path = format!("{events}/{}", entry.name);
        let body = change.to_string().into_bytes();
        match api.call(Method::PATCH, &path, "application/merge-patch+json", body).await {
            // Its life is over; another one takes its place.
            Err(error) if error.code() == Some(StatusCode::NOT_FOUND) => {
                entry.name = format!(
                    "{}.{:016x}",
                    entry.name.split('.').next().unwrap_or_default(),
                    fastrand::u64(..)
                );
            }
            Ok(_) => {
                entry.told = seen;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    let body = body(entry, namespace, node).to_string().into_bytes();
    match api.call(Method::POST, &events, "application/json", body).await {
        Err(error) if entry.event.once && error.code() == Some(StatusCode::CONFLICT) => {}
        // Names last, namespaces end: nobody is there to read it.
        Err(error) if matches!(error.code(), Some(StatusCode::NOT_FOUND)) => {
            warn!(%error, "an Event finds no place");
        }
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    entry.told = seen;
    Ok(())
}

fn body(entry: &Entry, namespace: &str, node: &str) -> Value {
    let event = &entry.event;
    let involved = match &event.about {
        // The kubelet writes the name for the UID too, and `kubectl describe node` looks for that, in old versions
        // for nothing else.
        About::Node(name) => json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}),
        About::Container { namespace, pod, uid, container } => json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid,
            "fieldPath": format!("spec.containers{{{container}}}"),
        }),
        About::Job { api_version, kind, namespace, name, uid } => json!({
            "apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name, "uid": uid,
        }),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": entry.name, "namespace": namespace, "annotations": event.annotations},
        "involvedObject": involved,
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "message": event.message,
        "source": {"component": "swansong-agent", "host": node},
        "reportingComponent": "swansong.dev/agent",
        "reportingInstance": node,
        "firstTimestamp": time(entry.first),
        "lastTimestamp": time(entry.last),
        "count": entry.seen,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(reason: &'static str, message: &str, once: bool) -> Outgoing {
        let about = About::Node("n".to_owned());
        Outgoing {
            about,
            warning: true,
            reason,
            message: message.to_owned(),
            annotations: BTreeMap::new(),
            once,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn b84_many_of_one_kind_are_one_with_a_count() {
        let mut known = Known::default();
        let mut told = 0;
        for number in 0..200 {
            known.take_in(about("Fault", &format!("number {number}"), false));
            while let Some(key) = known.pay() {
                let entry = known.entries.get_mut(&key).expect("there");
                entry.told = entry.seen;
                told += 1;
            }
        }
        assert_eq!(told, BURST);
        let due = known.next_due().expect("the rest waits");
        tokio::time::advance(due.duration_since(Instant::now())).await;
        let key = known.pay().expect("may be told");
        let entry = &known.entries[&key];
        assert_eq!((entry.seen, entry.event.message.as_str()), (200, "number 199"));
        assert_eq!(known.entries.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_once_has_one_name() {
        let (mut first, mut second) = (Known::default(), Known::default());
        for _ in 0..3 {
            first.take_in(about("Live", "both", true));
        }
        second.take_in(about("Live", "both", true));
        let entry =
            |known: &Known| known.entries.values().map(|e| (e.name.clone(), e.seen)).collect::<Vec<_>>();
        assert_eq!(entry(&first), entry(&second));
        tokio::time::advance(LIFE).await;
        let key = first.pay().expect("waits");
        first.entries.get_mut(&key).expect("there").told = 1;
        first.forget();
        assert!(first.entries.is_empty());
    }
}

//! The watches and the work, one thing at a time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api as Objects, DynamicObject, PartialObjectMeta};
use kube::core::metadata::ObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, utils::StreamBackoff};
use kube::{Client, Config};
use swansong_clusterd::reset_config::LABEL;
use tokio::time::{Instant, sleep_until};

use crate::agenda::{Agenda, Key, Outcome};
use crate::api::{Api, Failed, Failure, causes};
use crate::config_map::job_of;
use crate::decide::needs;
use crate::event::Telling;
use crate::job::{Job, JobKind};
use crate::news::{About, News, Observer, Watched};
use crate::work::{Looked, look};

/// Objects in one page of a list: what is read at once is memory.
const PAGE: u32 = 50;

/// Seconds that a watch lives. One that has died without a word is noticed five seconds later.
const WATCH: u32 = 110;

/// Pauses after failures, for everything but what was refused.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// What ends the guard, which should never end.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The client can't be made.
    #[error("no client of the API server can be made: {0}")]
    NoClient(String),
    /// All watches have ended.
    #[error("the watches have ended")]
    Watches,
}

/// Sees to the ConfigMaps of all jobs of a cluster.
///
/// It needs `get`, `list` and `watch` of both kinds of job, `get`, `list`, `watch` and `create` of ConfigMaps, `get` of
/// namespaces, and `create` of Events.
pub struct Guard {
    api: Api,
    triggers: Vec<String>,
    observer: Arc<dyn Observer>,
    agenda: Agenda,
    /// Until when nothing is asked, and after how many failures in a row.
    pause: Option<Instant>,
    failures: u32,
    events: BoxStream<'static, Change>,
    /// What was told last of each watch.
    told: [Option<News>; 3],
}

/// What a watch tells.
type Change = (Watched, watcher::Result<Event<Box<ObjectMeta>>>);

impl Guard {
    /// A guard of the jobs that ask for one of `triggers`, words of `recover-strategy`.
    ///
    /// # Errors
    ///
    /// When no client can be made of the configuration.
    pub fn new(config: Config, triggers: Vec<String>, observer: Arc<dyn Observer>) -> Result<Self, Ended> {
        let client =
            |config: Config| Client::try_from(config).map_err(|error| Ended::NoClient(causes(&error)));
        // Single requests have to know Retry-After, and not to be repeated behind the guard's back.
        let mut single = config.clone();
        single.default_retry = false;
        let api = Api::new(client(single)?);
        let watching = client(config)?;
        let jobs = JobKind::ALL.map(|kind| {
            let what = match kind {
                JobKind::AscendJob => Watched::AscendJobs,
                JobKind::VolcanoJob => Watched::VolcanoJobs,
            };
            let jobs: Objects<PartialObjectMeta<DynamicObject>> =
                Objects::all_with(watching.clone(), &kind.resource());
            metadata(what, watcher(jobs, watched()))
        });
        let labelled = watched().labels(&format!("{}={}", LABEL.0, LABEL.1));
        let config_maps: Objects<PartialObjectMeta<ConfigMap>> = Objects::all(watching.clone());
        let config_maps = metadata(Watched::ConfigMaps, watcher(config_maps, labelled));
        let events = stream::select_all(jobs.into_iter().chain([config_maps])).boxed();
        let agenda = Agenda::default();
        Ok(Self {
            api,
            triggers,
            observer,
            agenda,
            pause: None,
            failures: 0,
            events,
            told: [None, None, None],
        })
    }

    /// Guards for ever.
    ///
    /// # Errors
    ///
    /// When it ends all the same.
    pub async fn run(mut self) -> Result<Infallible, Ended> {
        loop {
            let due = self.agenda.next().map(|due| self.pause.map_or(due, |pause| due.max(pause)));
            let before = self.agenda.standings();
            tokio::select! {
                change = self.events.next() => self.take_in(change.ok_or(Ended::Watches)?),
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => self.work().await,
            }
            let after = self.agenda.standings();
            if after != before {
                self.observer.observe(&News::Standings(after));
            }
        }
    }

    fn take_in(&mut self, (what, change): Change) {
        let now = Instant::now();
        let event = match change {
            Ok(event) => event,
            Err(error) => return self.not_watching(what, &error),
        };
        let kind = match what {
            Watched::AscendJobs => Some(JobKind::AscendJob),
            Watched::VolcanoJobs => Some(JobKind::VolcanoJob),
            Watched::ConfigMaps => None,
        };
        match (kind, event) {
            (Some(kind), Event::Init) => self.agenda.list_begins(kind),
            (None, Event::Init) => self.agenda.config_map_list_begins(),
            (kind, Event::InitDone) => {
                match kind {
                    Some(kind) => self.agenda.list_ends(kind),
                    None => self.agenda.config_map_list_ends(now),
                }
                self.tell_of_watch(what, News::Watching(what));
            }
            (Some(kind), Event::Apply(metadata) | Event::InitApply(metadata)) => {
                let key = key(kind, &metadata);
                let job = Job::of_metadata(kind, &metadata);
                match needs(&job, &self.triggers) {
                    Ok(()) => self.agenda.needed(&key, &job.uid, now),
                    Err(_) => self.agenda.forget(&key),
                }
            }
            (Some(kind), Event::Delete(metadata)) => self.agenda.forget(&key(kind, &metadata)),
            (None, Event::Apply(metadata) | Event::InitApply(metadata)) => {
                let version = metadata.resource_version.as_deref().unwrap_or_default();
                if let Some((namespace, job)) = job_behind(&metadata) {
                    self.agenda.config_map_changed(namespace, job, version, now);
                }
            }
            (None, Event::Delete(metadata)) => {
                if let Some((namespace, job)) = job_behind(&metadata) {
                    self.agenda.config_map_gone(namespace, job, now);
                }
            }
        }
    }

    fn not_watching(&mut self, what: Watched, error: &watcher::Error) {
        let absent = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
        let news = match error {
            watcher::Error::InitialListFailed(error) if what != Watched::ConfigMaps && absent(error) => {
                // With its definition went all jobs of the kind.
                let kind = if what == Watched::AscendJobs { JobKind::AscendJob } else { JobKind::VolcanoJob };
                self.agenda.list_ends(kind);
                News::Absent(what)
            }
            // A watch that is too old or was cut is followed by another, of which nothing is missed.
            watcher::Error::WatchError(status) if status.code == 410 => return,
            error => News::NotWatching { what, problem: causes(error) },
        };
        self.tell_of_watch(what, news);
    }

    /// Once for each change: a watch that fails is tried again for ever.
    fn tell_of_watch(&mut self, what: Watched, news: News) {
        let told = &mut self.told[what as usize];
        if told.as_ref() != Some(&news) {
            self.observer.observe(&news);
            *told = Some(news);
        }
    }

    async fn work(&mut self) {
        let Some((key, uid)) = self.agenda.take(Instant::now()) else { return };
        let outcome = match look(&self.api, &key, &uid, &self.triggers).await {
            Ok(looked) => self.follow(&key, &uid, looked).await,
            Err(failed) => Err(failed),
        };
        let outcome = match outcome {
            Ok(outcome) => {
                self.recovered();
                outcome
            }
            Err(failed) => self.failed(failed),
        };
        self.agenda.settle(&key, outcome, Instant::now(), fastrand::f64());
    }

    /// Tells what is to be told of a look.
    async fn follow(&mut self, key: &Key, uid: &str, looked: Looked) -> Result<Outcome, Failed> {
        match looked {
            Looked::Calm(outcome) => Ok(outcome),
            Looked::Created(version) => {
                self.observer.observe(&News::Created { job: key.clone() });
                let message = "created the ConfigMap in which ClusterD notes lost ranks, without which it saves nothing";
                self.tell(key, uid, false, "ResetConfigCreated", message).await;
                Ok(Outcome::Sound(version))
            }
            Looked::Complaint(complaint) => {
                let message = complaint.to_string();
                if self.tell(key, uid, true, complaint.reason(), &message).await {
                    self.observer.observe(&News::Complained { job: key.clone(), message });
                }
                Ok(Outcome::Unusable)
            }
            Looked::Refused(failure) => {
                let message = format!("{failure}. Without the ConfigMap ClusterD saves nothing at a fault");
                if self.tell(key, uid, true, "ResetConfigNotCreated", &message).await {
                    self.observer.observe(&News::Refused { job: key.clone(), problem: failure.to_string() });
                }
                let Failure::Refused { retry_after, .. } = failure else { return Ok(Outcome::Unknown) };
                Ok(Outcome::Refused(retry_after))
            }
        }
    }

    /// Tells people, unless they know. Whether it was time to; an Event that can't be written ends nothing.
    async fn tell(
        &mut self,
        key: &Key,
        uid: &str,
        warning: bool,
        reason: &'static str,
        message: &str,
    ) -> bool {
        let now = Instant::now();
        let Some(before) = self.agenda.may_tell(key, message, now) else { return false };
        let telling = Telling { about: key, uid, warning, reason, message };
        if let Err(failure) = telling.tell(&self.api, before).await {
            let problem = failure.to_string();
            self.observer.observe(&News::Failed { about: About::Event, problem });
        }
        self.agenda.told(key, message, now);
        true
    }

    /// An object that can't be read is set aside; a server that can't be asked is left alone for a while.
    fn failed(&mut self, (about, failure): Failed) -> Outcome {
        self.observer.observe(&News::Failed { about, problem: failure.to_string() });
        match failure {
            Failure::Refused { retry_after, .. } => Outcome::Refused(retry_after),
            Failure::Unknown { retry_after, .. } => {
                let (first, last) = PAUSES;
                let pause = first.saturating_mul(1 << self.failures.min(16)).min(last);
                let pause =
                    (pause + pause.mul_f64(fastrand::f64() / 4.0)).max(retry_after.unwrap_or_default());
                self.failures = self.failures.saturating_add(1);
                self.pause = Some(Instant::now() + pause);
                Outcome::Unknown
            }
        }
    }

    fn recovered(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            self.observer.observe(&News::Recovered);
        }
        self.pause = None;
    }
}

fn watched() -> watcher::Config {
    watcher::Config::default().page_size(PAGE).timeout(WATCH)
}

/// Nothing but metadata, and of that nothing but what is looked at, from where the watch is read on.
fn metadata<K: Send + 'static>(
    what: Watched,
    events: impl futures::Stream<Item = watcher::Result<Event<PartialObjectMeta<K>>>> + Send + 'static,
) -> BoxStream<'static, Change> {
    let events: StreamBackoff<_, _> = events.default_backoff();
    events.map(move |event| (what, event.map(bare))).boxed()
}

fn bare<K>(event: Event<PartialObjectMeta<K>>) -> Event<Box<ObjectMeta>> {
    let bare = |object: PartialObjectMeta<K>| Box::new(object.metadata);
    match event {
        Event::Apply(object) => Event::Apply(bare(object)),
        Event::Delete(object) => Event::Delete(bare(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(bare(object)),
        Event::InitDone => Event::InitDone,
    }
}

fn key(kind: JobKind, metadata: &ObjectMeta) -> Key {
    Key {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        kind,
    }
}

/// Namespace and name of the job that a ConfigMap is made for.
fn job_behind(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    Some((metadata.namespace.as_deref()?, job_of(metadata.name.as_deref()?)?))
}

//! The relay as a task: what the pure parts decide, carried out.

mod intake;
mod looks;
mod outcomes;
mod sending;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swansong_clusterd::SendError;
use swansong_clusterd::process_fault::ReportError;
use swansong_fault_model::device_plugin::{DevicePluginTracker, PluginReport};
use swansong_fault_model::{EscalationTracker, Level, SourceUpdate, Subject};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::condition::Told;
use super::episode::Episode;
use super::episodes::Episodes;
use super::metrics::Metrics;
use super::plan::{Relay, VOUCH};
use super::pod::NpuPod;
use super::reconcile::View;
use super::route::{Route, Routes};
use super::settings::Settings;
use super::store::{Store, with};
use super::story::Story;
use super::terms::{JobNote, Parcel, Preflight, Step, World};
use crate::api::{ApiError, ApiServer};
use crate::fault::{Clock, Levels, millis};
use crate::node::NodeState;
use swansong_runtime::supervisor::{Progress, TaskError};

/// The longest between two rounds: what is only told by time is looked at so often.
const TICK: Duration = Duration::from_secs(5);
/// How long the cluster's classification is waited for.
const LEVELS_PATIENCE: Duration = Duration::from_secs(10);
/// How much is taken in at once.
const MOST: usize = 512;

/// What the relay reads of others.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    /// `None` until they were listed.
    pub(crate) pods: watch::Receiver<Option<Arc<Vec<NpuPod>>>>,
    pub(crate) device_plugin: watch::Receiver<DevicePluginTracker>,
    pub(crate) levels: watch::Receiver<Arc<Levels>>,
    pub(crate) node: watch::Receiver<Option<Arc<NodeState>>>,
    /// How many NPUs the configuration demands.
    pub(crate) npus: Option<u32>,
}

impl Inputs {
    /// Physical ids of the node's devices: they are counted from 0.
    fn devices(&self) -> Vec<u32> {
        let capacity = self.node.borrow().as_ref().and_then(|node| node.npus);
        (0..self.npus.or(capacity).unwrap_or(0)).take(32).collect()
    }
}

/// What the relay is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) node: String,
    pub(crate) folder: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) routes: Arc<Routes>,
    pub(crate) api: Arc<ApiServer>,
    pub(crate) inputs: Inputs,
    pub(crate) story: Story,
    pub(crate) metrics: Arc<Metrics>,
    /// What is to be told on the Node.
    pub(crate) told: watch::Sender<Option<Told>>,
    /// What `/status` shows.
    pub(crate) view: watch::Sender<Option<Arc<super::view::View>>>,
    /// What the outbox remembers as standing when it is opened, with who told it.
    pub(crate) remembered: watch::Sender<Option<Arc<Vec<Episode>>>>,
    /// The one that the device plugin's view goes by.
    pub(crate) clock: Clock,
    /// The sources that run.
    pub(crate) sources: Vec<&'static str>,
}

/// The queue from the sources; kept over restarts of the relay.
pub(crate) type Queue = Arc<Mutex<mpsc::Receiver<(&'static str, SourceUpdate)>>>;

/// What was done beside.
enum Done {
    Sent { route: Route, batch: Vec<Parcel>, answer: Result<(), SendError> },
    Preflighted(Subject, Preflight),
    Looked(Result<View, ApiError>),
    Outcomes(Vec<(String, usize, String)>),
    Reported(Box<Reported>),
}

/// ClusterD was told directly which ranks of a job are lost.
struct Reported {
    /// Of the fault.
    id: String,
    job: JobNote,
    result: Result<(), ReportError>,
}

/// Relays until it can't.
pub(crate) async fn run(
    parts: Arc<Parts>,
    queue: Queue,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    let folder = parts.folder.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open(&folder)).await;
    let store = opened
        .map_err(|panic| TaskError(panic.to_string()))?
        .map_err(|error| TaskError(error.to_string()))?;
    let mut episodes = Episodes::of(&parts.node, &parts.sources);
    let over = store.restore(&mut episodes);
    let remembered = episodes.standing().map(|(_, episode)| episode.clone()).collect();
    parts.remembered.send_replace(Some(Arc::new(remembered)));
    let mut levels = parts.inputs.levels.clone();
    // Before the cluster was asked a fault may be taken for graver than it is. An API server that is down holds up nothing.
    let _ = timeout(LEVELS_PATIENCE, levels.wait_for(|levels| levels.has_checked_config_map)).await;
    let mut queue = queue.lock().await;
    let first = levels.borrow_and_update().clone();
    let mut task = Task {
        relay: Relay::new(parts.settings.clone()),
        escalation: EscalationTracker::new(first.rules.clone()),
        episodes,
        levels: first,
        accepted: false,
        rejoined: false,
        classified: false,
        weaker_since: None,
        rules_remember_at: Some(parts.clock.now() + millis_of(VOUCH)),
        place_not_before: Duration::ZERO,
        preflights: BTreeMap::new(),
        objected: BTreeMap::new(),
        carried: BTreeSet::new(),
        full: false,
        blind: BTreeMap::new(),
        accepted_at: BTreeMap::new(),
        jobs: JoinSet::new(),
        sending: false,
        preflighting: BTreeSet::new(),
        looking: false,
        look_not_before: Duration::ZERO,
        outcomes_at: None,
        asking: false,
        retry_at: Duration::ZERO,
        view_not_before: Duration::ZERO,
        parts: &parts,
    };
    let mut store = Some(task.keep(store, over).await?);
    let mut device_plugin = parts.inputs.device_plugin.clone();
    loop {
        progress.alive();
        let Some(mut own) = store.take() else { return Err(TaskError("the outbox is gone".to_owned())) };
        let mut seen = Vec::new();
        while seen.len() < MOST
            && let Ok(one) = queue.try_recv()
        {
            seen.push(one);
        }
        own = task.take_in(own, &seen).await?;
        let (after, wake) = task.decide(own).await?;
        task.tell(&after);
        let wake = wake.into_iter().chain(task.show(&after)).min();
        store = Some(after);
        progress.succeeded();
        let tick = Instant::now() + TICK;
        let wake = wake.map_or(tick, |at| parts.clock.instant(millis_of(at)).min(tick));
        tokio::select! {
            one = queue.recv() => match one {
                Some(one) => {
                    let Some(own) = store.take() else { continue };
                    store = Some(task.take_in(own, &[one]).await?);
                }
                None => return Err(TaskError("no source is left".to_owned())),
            },
            Some(done) = task.jobs.join_next(), if !task.jobs.is_empty() => {
                let done = done.map_err(|panic| TaskError(panic.to_string()))?;
                let Some(own) = store.take() else { continue };
                store = Some(task.done(own, done).await?);
            }
            () = sleep_until(wake) => {}
            Ok(()) = device_plugin.changed() => {}
            Ok(()) = levels.changed() => {}
        }
    }
}

#[expect(clippy::struct_excessive_bools, reason = "each says whether something is under way")]
struct Task<'a> {
    relay: Relay,
    escalation: EscalationTracker,
    episodes: Episodes,
    /// By what episodes are classified.
    levels: Arc<Levels>,
    /// Whether what an earlier process left standing has been classified by that.
    accepted: bool,
    /// Whether what a disk brought back has to be.
    rejoined: bool,
    /// Whether the cluster had been asked when the episodes were last classified.
    classified: bool,
    /// Since when there is no list any more, where there was one.
    weaker_since: Option<Duration>,
    /// When the rules are told what an earlier process left standing: the sources need a moment to say what still does.
    rules_remember_at: Option<u64>,
    /// When what found no place is tried again.
    place_not_before: Duration,
    preflights: BTreeMap<Subject, Preflight>,
    /// Faults that are held back: since when, and why.
    objected: BTreeMap<String, (Duration, String)>,
    /// What was said to be carried by the device plugin.
    carried: BTreeSet<String>,
    full: bool,
    /// What each source can't see, and why.
    blind: BTreeMap<(&'static str, Subject), String>,
    /// When ClusterD took a fault, in the life of this process.
    accepted_at: BTreeMap<String, Duration>,
    jobs: JoinSet<Done>,
    sending: bool,
    preflighting: BTreeSet<Subject>,
    looking: bool,
    look_not_before: Duration,
    outcomes_at: Option<Duration>,
    asking: bool,
    retry_at: Duration,
    view_not_before: Duration,
    parts: &'a Arc<Parts>,
}

impl Task<'_> {
    fn now(&self) -> Duration {
        Duration::from_millis(self.parts.clock.now())
    }

    /// Decides and begins what is to be done. The answer is when to look again.
    async fn decide(&mut self, store: Store) -> Result<(Store, Option<Duration>), TaskError> {
        let now = self.now();
        let mut step = self.step(&store, now);
        self.note_holds(&store, &step);
        let (withdraw, skip) = (step.withdraw.clone(), step.skip.clone());
        let mut store = store;
        if !withdraw.is_empty() || !skip.is_empty() {
            store = with(store, move |store| {
                store.withdraw(&withdraw);
                store.skip(&skip, millis());
            })
            .await?
            .0;
            // What came behind is looked at at once.
            step.wake(Some(now));
        }
        for subject in &step.preflight {
            self.preflight(*subject);
        }
        store = self.send(store, std::mem::take(&mut step.send)).await?;
        if store.problem().is_some() && now >= self.retry_at {
            self.retry_at = now + TICK;
            store = with(store, Store::retry).await?.0;
        }
        if store.take_returned() {
            // What the file held from before is known from now on.
            store = self.join(store).await?;
        }
        let anything = store.counts().pending + store.counts().standing > 0;
        if let Some(at) = self.relay.look_at(anything) {
            let at = at.max(self.look_not_before);
            if at > now {
                step.wake(Some(at));
            } else if !self.looking {
                self.look();
            }
        }
        step.wake(self.ask_outcomes(&store, now));
        step.wake(self.escalation.next_deadline().map(Duration::from_millis));
        Ok((store, step.wake.map(|wake| wake.max(now))))
    }

    fn step(&mut self, store: &Store, now: Duration) -> Step {
        let device_plugin = self.parts.inputs.device_plugin.borrow().clone();
        let mark = millis_of(now);
        let carried = |episode: &Episode| {
            // What a rule made of a fault is known here only.
            !episode.raised
                && match device_plugin.report_of(episode.subject, &episode.code, mark) {
                    PluginReport::Reported { level, .. } => {
                        !episode.kills() || level.is_none_or(Level::kills)
                    }
                    PluginReport::NotReported | PluginReport::Stale => false,
                }
        };
        self.relay.step(&World {
            now,
            heads: store.heads(&self.episodes),
            passed: store.passed(),
            stands: store.stands(&self.episodes),
            carried: &carried,
            preflights: &self.preflights,
            classified: self.classified,
            busy: self.sending,
        })
    }

    async fn done(&mut self, store: Store, done: Done) -> Result<Store, TaskError> {
        match done {
            Done::Sent { route, batch, answer } => {
                self.sending = false;
                self.sent(store, route, &batch, &answer).await
            }
            Done::Preflighted(subject, preflight) => {
                self.preflighted(subject, preflight);
                Ok(store)
            }
            Done::Looked(view) => {
                self.looking = false;
                self.looked(store, view).await
            }
            Done::Outcomes(outcomes) => {
                self.asking = false;
                self.outcomes(store, outcomes).await
            }
            Done::Reported(reported) => {
                self.reported(&reported);
                Ok(store)
            }
        }
    }
}

fn millis_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

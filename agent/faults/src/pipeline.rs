//! The pipeline as a task: it connects the pure parts with sources, disk, API server and ClusterD.

mod announce;
mod exchange;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swansong_clusterd::SendError;
use swansong_fault_model::device_plugin::{DevicePluginTracker, PluginReport, PluginState};
use swansong_fault_model::rank_process::NoRankEnded;
use swansong_fault_model::reconcile::{
    Inputs as ReconcileInputs, Observed, OutboundFault, Preflight, Reconciler, Settings,
};
use swansong_fault_model::{Context, Fault, FaultKind, FaultTracker, Handling, SourceUpdate, Subject};
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use self::announce::Announced;
use crate::classification::CurrentLevels;
use crate::clock::{Clock, as_millis};
use crate::cluster::{Cluster, JobChecks};
use crate::condition::ConditionState;
use crate::events::FaultEvents;
use crate::levels::Levels;
use crate::metrics::Metrics;
use crate::outcomes::{CheckedOutcome, Outcomes};
use crate::pod::{NpuPod, PodReference};
use crate::processes::{Activity, Processes};
use crate::sender::{Route, Transports};
use crate::state::{Saver, State, StateFile};
use crate::status::Status;

/// The longest time between two rounds.
const TICK: Duration = Duration::from_secs(5);
/// How long the pipeline waits for the cluster's classification at its start.
const LEVELS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an agent that is being replaced may keep the state's folder.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);
/// How many updates are applied at once.
const MAX_UPDATES: usize = 512;
/// Between two writes of the state, unless a batch waits for one.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The queue from the sources; it outlives the pipeline's task.
pub type Queue = Arc<Mutex<mpsc::Receiver<(&'static str, SourceUpdate)>>>;

/// What the pipeline reads of other tasks.
#[derive(Clone)]
pub struct Inputs {
    /// The Pods that use NPUs; `None` until they were listed.
    pub pods: watch::Receiver<Option<Arc<Vec<NpuPod>>>>,
    /// What is seen of their dumps.
    pub activity: watch::Receiver<Arc<Activity>>,
    pub processes: Arc<dyn Processes>,
    /// What the device plugin publishes.
    pub device_plugin: watch::Receiver<DevicePluginTracker>,
    pub levels: watch::Receiver<Arc<Levels>>,
    /// The physical ids of the node's devices; empty while their number isn't known.
    pub devices: Arc<dyn Fn() -> Vec<u32> + Send + Sync>,
}

/// What the pipeline shows.
#[derive(Debug)]
pub struct Outputs {
    /// The Node condition.
    pub condition: watch::Sender<Option<ConditionState>>,
    /// The faults for `/status`.
    pub status: watch::Sender<Option<Arc<Status>>>,
    /// The faults that an earlier process left active; `None` until the state is open.
    pub restored: watch::Sender<Option<Arc<Vec<Fault>>>>,
}

/// What the pipeline consists of.
pub struct Parts {
    pub node: String,
    /// The folder of the state.
    pub folder: PathBuf,
    /// What an operator configures.
    pub settings: Settings,
    /// The transports to ClusterD.
    pub transports: Transports,
    /// The API server.
    pub cluster: Cluster,
    /// What other tasks provide.
    pub inputs: Inputs,
    /// What the pipeline shows.
    pub outputs: Outputs,
    pub events: FaultEvents,
    pub metrics: Arc<Metrics>,
    /// The clock, which the watch of the device plugin uses too.
    pub clock: Clock,
    /// The sources that are enabled.
    pub sources: Vec<&'static str>,
}

/// What a background job did.
enum Done {
    Sent { route: Route, batch: Vec<OutboundFault>, answer: Result<(), SendError> },
    CheckedJobs(Subject, JobChecks),
    Observed(Result<Observed, String>),
    CheckedOutcomes(Vec<CheckedOutcome>),
    EndedRank { id: String, subject: Subject, pod: Box<PodReference>, result: Result<i32, NoRankEnded> },
}

/// The last checks of the jobs on a subject.
struct Checked {
    preflight: Preflight,
    checks: JobChecks,
}

/// The pipeline at work.
struct Pipeline {
    parts: Arc<Parts>,
    cluster: Cluster,
    tracker: FaultTracker,
    reconciler: Reconciler,
    levels: CurrentLevels,
    checked: BTreeMap<Subject, Checked>,
    outcomes: Outcomes,
    saver: Saver,
    jobs: JoinSet<Done>,
    under_way: UnderWay,
    announced: Announced,
}

/// The background jobs that are under way, and when they are due again.
struct UnderWay {
    checks: BTreeSet<Subject>,
    is_observing: bool,
    observe_not_before: Duration,
    refresh_not_before: Duration,
    is_dirty: bool,
    save_not_before: Duration,
}

/// Runs the pipeline until it fails.
///
/// # Errors
///
/// When the state's folder belongs to another process, or a part has failed.
pub async fn run(parts: Arc<Parts>, queue: Queue, progress: Progress) -> Result<Infallible, TaskError> {
    let mut pipeline = Pipeline::start(parts).await?;
    let mut queue = queue.lock().await;
    let mut device_plugin = pipeline.parts.inputs.device_plugin.clone();
    let mut levels = pipeline.parts.inputs.levels.clone();
    let mut saved = pipeline.saver.saved();
    loop {
        progress.alive();
        let mut updates = Vec::new();
        while updates.len() < MAX_UPDATES
            && let Ok(update) = queue.try_recv()
        {
            updates.push(update);
        }
        let wake = pipeline.round(&updates);
        progress.succeeded();
        let tick = Instant::now() + TICK;
        let wake = wake.map_or(tick, |at| pipeline.parts.clock.instant(at).min(tick));
        tokio::select! {
            update = queue.recv() => match update {
                Some(update) => pipeline.apply(&[update]),
                None => return Err(TaskError("all sources have ended".to_owned())),
            },
            Some(done) = pipeline.jobs.join_next(), if !pipeline.jobs.is_empty() => {
                pipeline.done(done.map_err(|panic| TaskError(panic.to_string()))?);
            }
            () = sleep_until(wake) => {}
            Ok(()) = device_plugin.changed() => {}
            Ok(()) = levels.changed() => {}
            Ok(()) = saved.changed() => {}
        }
    }
}

impl Pipeline {
    async fn start(parts: Arc<Parts>) -> Result<Self, TaskError> {
        let folder = parts.folder.clone();
        let open = spawn_blocking(move || StateFile::open(&folder, LOCK_TIMEOUT));
        let (file, opened) = open
            .await
            .map_err(|panic| TaskError(panic.to_string()))?
            .map_err(|error| TaskError(error.to_string()))?;
        if let Some(why) = &opened.set_aside {
            warn!(why, "the state of faults can't be used and was set aside; starting without");
        }
        let mut tracker = FaultTracker::new(&parts.node, Some(parts.sources.clone()));
        tracker.restore(opened.state.faults, opened.state.escalation);
        let active = tracker.active().cloned().collect();
        parts.outputs.restored.send_replace(Some(Arc::new(active)));
        let mut levels = parts.inputs.levels.clone();
        // Before, a level may be higher than the cluster's. An API server that is down holds up nothing.
        let _ = timeout(LEVELS_TIMEOUT, levels.wait_for(|levels| levels.has_checked_config_map)).await;
        let now = parts.clock.now();
        let levels = CurrentLevels::new(levels.borrow_and_update().clone());
        let mut pipeline = Self {
            cluster: parts.cluster.clone(),
            reconciler: Reconciler::new(parts.settings.clone(), now),
            tracker,
            levels,
            checked: BTreeMap::new(),
            outcomes: Outcomes::restore(opened.state.outcomes),
            saver: Saver::start(file, opened.problem),
            jobs: JoinSet::new(),
            under_way: UnderWay {
                checks: BTreeSet::new(),
                is_observing: false,
                observe_not_before: Duration::ZERO,
                refresh_not_before: Duration::ZERO,
                // A disk that is away now takes it later.
                is_dirty: true,
                save_not_before: Duration::ZERO,
            },
            announced: Announced::new(opened.set_aside),
            parts,
        };
        pipeline.set_rules();
        Ok(pipeline)
    }

    fn now(&self) -> Duration {
        self.parts.clock.now()
    }

    /// Applies updates, decides what to do, starts it and shows the result. The answer is when the next round is due.
    fn round(&mut self, updates: &[(&'static str, SourceUpdate)]) -> Option<Duration> {
        self.apply(updates);
        let now = self.now();
        let plan = self.reconcile(now);
        let mut due = vec![plan.wake, self.tracker.next_escalation().map(Duration::from_millis)];
        for subject in plan.preflights {
            self.check_jobs(subject);
        }
        for (id, subject) in plan.lost {
            self.end_ranks(&id, subject, now);
        }
        due.push(self.save(now, !plan.batch.is_empty()));
        self.send(plan.batch, now);
        due.push(self.observe(now));
        due.push(self.check_outcomes(now));
        due.push(self.publish(now));
        due.into_iter().flatten().min()
    }

    fn reconcile(&mut self, now: Duration) -> swansong_fault_model::reconcile::Plan {
        let Self { tracker, reconciler, checked, parts, .. } = self;
        let device_plugin = parts.inputs.device_plugin.borrow();
        let millis = as_millis(now);
        reconciler.reconcile(
            tracker,
            &ReconcileInputs {
                now,
                is_reported_by_device_plugin: &|fault| is_reported(&device_plugin, fault, millis),
                preflight: &|subject| checked.get(&subject).map(|checked| checked.preflight),
                is_classified: parts.inputs.levels.borrow().has_checked_config_map,
            },
        )
    }

    /// Applies what sources report, and the newest classification.
    fn apply(&mut self, updates: &[(&'static str, SourceUpdate)]) {
        let now = self.now();
        let newest = self.parts.inputs.levels.borrow().clone();
        let (is_replaced, is_reclassifying) = self.levels.update(&newest, now);
        if is_replaced {
            self.set_rules();
        }
        let is_refreshing = now >= self.under_way.refresh_not_before
            || self.tracker.next_escalation().is_some_and(|at| at <= as_millis(now));
        let devices = (self.parts.inputs.devices)();
        let levels = &self.levels;
        let context = Context {
            classify: &|code, severity| levels.classify(code, severity),
            devices: &devices,
            now: as_millis(now),
            notices: self.parts.settings.notices,
        };
        let mut changes = Vec::new();
        if is_reclassifying {
            changes.extend(self.tracker.reclassify(context));
        }
        for (source, update) in updates {
            self.announced.note_availability(source, update);
            changes.extend(self.tracker.apply(source, update, context));
        }
        if is_refreshing {
            self.under_way.refresh_not_before = now + TICK;
            changes.extend(self.tracker.refresh(context));
        }
        self.announce(&changes);
    }

    fn set_rules(&mut self) {
        let now = as_millis(self.now());
        let levels = self.levels.levels();
        self.tracker.set_rules(levels.rules.clone(), levels.has_checked_config_map, now);
    }

    /// Has the state written if it has changed. A batch isn't sent before what it changes is on disk.
    fn save(&mut self, now: Duration, is_urgent: bool) -> Option<Duration> {
        self.under_way.is_dirty |= self.tracker.take_changed() | self.outcomes.take_changed();
        if !self.under_way.is_dirty {
            return None;
        }
        if now < self.under_way.save_not_before && !is_urgent {
            return Some(self.under_way.save_not_before);
        }
        let state = State {
            faults: self.tracker.faults().cloned().collect(),
            outcomes: self.outcomes.followed().clone(),
            escalation: self.tracker.tracks(),
        };
        match serde_json::to_string(&state) {
            Ok(text) => self.saver.save(text),
            Err(error) => warn!(%error, "the state of faults can't be written; please report this"),
        }
        self.under_way.is_dirty = false;
        self.under_way.save_not_before = now + SAVE_INTERVAL;
        None
    }
}

/// Whether ClusterD learns of a fault from the device plugin.
fn is_reported(device_plugin: &DevicePluginTracker, fault: &Fault, now: u64) -> bool {
    // A raised fault is known here only.
    fault.kind == FaultKind::Condition
        && match device_plugin.report_of(fault.subject, &fault.code, now) {
            PluginReport::Reported { level, .. } => {
                !fault.ends_ranks() || level.is_none_or(|level| level.handling() == Handling::EndRanks)
            }
            PluginReport::NotReported | PluginReport::Stale => false,
        }
}

/// Why ClusterD would drop a fault of this node.
fn device_info_problem(state: &PluginState) -> Option<String> {
    match state {
        PluginState::Fresh | PluginState::Stale { .. } => None,
        PluginState::Missing => Some("is missing".to_owned()),
        PluginState::Invalid(invalid) => Some(format!("can't be used: {invalid}")),
        PluginState::Unknown => Some("wasn't read yet".to_owned()),
    }
}

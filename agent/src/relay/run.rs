//! The relay as a task: what the pure parts decide, carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swansong_clusterd::process_fault::Cause;
use swansong_clusterd::{PublicFault, SendError};
use swansong_fault::device_plugin::{Carried, DevicePlugin, Publishes};
use swansong_fault::{Assertion, Code, Escalation, Level, Seen, Severity, Subject, Why};
use swansong_outbox::Appended;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::condition::{self, Known, Told};
use super::episode::Episode;
use super::episodes::{Change, Classify, Episodes};
use super::look;
use super::metrics::Metrics;
use super::plan::{Hold, JobNote, Note, Parcel, Preflight, Relay, Step, Verdict, World};
use super::pod::NpuPod;
use super::reconcile::View;
use super::route::{Route, Routes, millis};
use super::settings::Settings;
use super::store::{Store, with};
use super::story::{GONE, Story, UNKNOWN};
use crate::fault::{Clock, Levels};
use crate::node::{ApiError, ApiServer, NodeState};
use crate::run::{Ended, Progress};

/// The longest between two rounds: what is only told by time is looked at so often.
const TICK: Duration = Duration::from_secs(5);
/// How often ClusterD is asked what became of the jobs.
const OUTCOME_PACE: Duration = Duration::from_secs(2);
/// ClusterD waits at most fifteen minutes for a dump; then comes what it does afterwards.
const OUTCOME_PATIENCE: Duration = Duration::from_mins(20);
/// How long the cluster's classification is waited for.
const LEVELS_PATIENCE: Duration = Duration::from_secs(10);
/// How much is taken in at once.
const MOST: usize = 512;
/// MindCluster's code of a device that has dropped.
const DROPPED: u32 = 0x40F8_4E00;

/// What the relay reads of others.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    /// `None` until they were listed.
    pub(crate) pods: watch::Receiver<Option<Arc<Vec<NpuPod>>>>,
    pub(crate) device_plugin: watch::Receiver<DevicePlugin>,
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
}

/// The queue from the sources; kept over restarts of the relay.
pub(crate) type Queue = Arc<Mutex<mpsc::Receiver<(&'static str, Seen)>>>;

/// What was done beside.
enum Done {
    Sent { route: Route, batch: Vec<Parcel>, answer: Result<(), SendError> },
    Preflighted(Subject, Preflight),
    Looked(Result<View, ApiError>),
    Outcomes(Vec<(String, usize, String)>),
    Reported(Result<(), String>),
}

/// Relays until it can't.
pub(crate) async fn run(parts: Arc<Parts>, queue: Queue, progress: Progress) -> Result<Infallible, Ended> {
    let folder = parts.folder.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open(&folder)).await;
    let store =
        opened.map_err(|panic| Ended(panic.to_string()))?.map_err(|error| Ended(error.to_string()))?;
    let mut episodes = Episodes::new(&parts.node);
    store.restore(&mut episodes);
    let remembered = episodes.standing().map(|(_, episode)| episode.clone()).collect();
    parts.remembered.send_replace(Some(Arc::new(remembered)));
    let mut levels = parts.inputs.levels.clone();
    // Before the cluster was asked a fault may be taken for graver than it is. An API server that is down holds up nothing.
    let _ = timeout(LEVELS_PATIENCE, levels.wait_for(|levels| levels.asked_the_cluster)).await;
    let mut queue = queue.lock().await;
    let mut task = Task {
        relay: Relay::new(parts.settings.clone()),
        escalation: Escalation::new(levels.borrow_and_update().rules.clone()),
        episodes,
        preflights: BTreeMap::new(),
        objected: None,
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
        parts: &parts,
    };
    let mut store = Some(store);
    let mut device_plugin = parts.inputs.device_plugin.clone();
    loop {
        progress.alive();
        let Some(mut own) = store.take() else { return Err(Ended("the outbox is gone".to_owned())) };
        let mut seen = Vec::new();
        while seen.len() < MOST
            && let Ok(one) = queue.try_recv()
        {
            seen.push(one);
        }
        own = task.take_in(own, &seen).await?;
        let (after, wake) = task.decide(own).await?;
        task.tell(&after);
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
                None => return Err(Ended("no source is left".to_owned())),
            },
            Some(done) = task.jobs.join_next(), if !task.jobs.is_empty() => {
                let done = done.map_err(|panic| Ended(panic.to_string()))?;
                let Some(own) = store.take() else { continue };
                store = Some(task.done(own, done).await?);
            }
            () = sleep_until(wake) => {}
            Ok(()) = device_plugin.changed() => {}
            Ok(()) = levels.changed() => {
                let rules = levels.borrow_and_update().rules.clone();
                task.escalation.replace(rules);
            }
        }
    }
}

#[expect(clippy::struct_excessive_bools, reason = "each says whether something is under way")]
struct Task<'a> {
    relay: Relay,
    escalation: Escalation,
    episodes: Episodes,
    preflights: BTreeMap<Subject, Preflight>,
    /// Since when something has been held back, and why.
    objected: Option<(Duration, String)>,
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
    parts: &'a Arc<Parts>,
}

/// The classification of the moment.
struct Classes(Arc<Levels>);

impl Classify for Classes {
    fn level(&self, code: &Code, severity: Option<Severity>) -> (Level, String) {
        let (level, because) = self.0.classifier.level(code, severity);
        (level, format!("{}, {}", because.as_str(), self.0.origin.as_str()))
    }
}

impl Task<'_> {
    fn now(&self) -> Duration {
        Duration::from_millis(self.parts.clock.now())
    }

    /// From what the sources say to the outbox.
    async fn take_in(&mut self, store: Store, seen: &[(&'static str, Seen)]) -> Result<Store, Ended> {
        let classes = Classes(self.parts.inputs.levels.borrow().clone());
        let devices = self.parts.inputs.devices();
        let now = self.parts.clock.now();
        let mut changes = Vec::new();
        for (source, seen) in seen {
            self.note_blindness(source, seen);
            for change in self.episodes.take_in(source, seen, &classes, &devices) {
                self.follow(&change, now);
                changes.push(change);
            }
        }
        changes.extend(self.apply_rules(now));
        self.parts.metrics.dropped(self.episodes.dropped());
        self.keep(store, changes).await
    }

    fn note_blindness(&mut self, source: &'static str, seen: &Seen) {
        match seen {
            Seen::Blind { subject, why } => drop(self.blind.insert((source, *subject), why.clone())),
            Seen::All { subject, .. } => drop(self.blind.remove(&(source, *subject))),
            Seen::Event(_) => {}
        }
    }

    fn follow(&mut self, change: &Change, now: u64) {
        let Episode { subject, code, .. } = &change.episode;
        match change.assertion {
            Assertion::Occur => self.escalation.occurred(*subject, code, now),
            Assertion::Recover => self.escalation.recovered(*subject, code, now),
            Assertion::Once => drop(self.escalation.happened(*subject, code, now)),
        }
    }

    /// What the rules on frequency and duration make of what stands.
    fn apply_rules(&mut self, now: u64) -> Vec<Change> {
        self.escalation.advance(now);
        let standing: Vec<Episode> = self.episodes.standing().map(|(_, episode)| episode.clone()).collect();
        let mut changes = Vec::new();
        for episode in standing {
            let raise = self.escalation.raised(episode.subject, &episode.code, now);
            match raise {
                Some(raise) if !episode.raised && raise.level > episode.level => {
                    let because = match raise.why {
                        Why::Repeated { times, window } => format!("raised: {times} times within {window:?}"),
                        Why::Lasted { after } => format!("raised: it stands for more than {after:?}"),
                    };
                    changes.extend(self.episodes.raise(&episode, raise.level, because, millis()));
                }
                None if episode.raised => changes.extend(self.episodes.lower(episode.subject, &episode.code)),
                _ => {}
            }
        }
        changes
    }

    async fn keep(&mut self, store: Store, changes: Vec<Change>) -> Result<Store, Ended> {
        for change in &changes {
            self.parts.metrics.saw(change.assertion);
            self.announce(change);
        }
        let notices = self.parts.settings.notices;
        let changes: Vec<Change> =
            changes.into_iter().filter(|change| notices || is_told(&change.episode)).collect();
        if changes.is_empty() {
            return Ok(store);
        }
        let (store, (changes, appended)) = with(store, move |store| {
            let appended = store.append(&changes);
            (changes, appended)
        })
        .await?;
        self.full = false;
        for (change, appended) in changes.iter().zip(&appended) {
            match appended {
                Appended::Full => {
                    self.full = true;
                    self.episodes.forget(&change.id);
                }
                Appended::Unfit(why) => warn!(id = change.id, %why, "a fault can't be kept"),
                _ => {}
            }
        }
        Ok(store)
    }

    fn announce(&self, change: &Change) {
        let Change { id, assertion, episode } = change;
        let pods = self.parts.inputs.pods.borrow().clone().unwrap_or_default();
        info!(id, ?assertion, fault = episode.describe(), because = episode.because, "a fault");
        let told = is_told(episode) || self.parts.settings.notices;
        match assertion {
            Assertion::Occur if told => self.parts.story.came(id, episode, &pods),
            Assertion::Recover if told => self.parts.story.went(id, episode),
            Assertion::Once if told => self.parts.story.happened(id, episode),
            _ => {}
        }
    }

    /// Decides and begins what is to be done. The answer is when to look again.
    async fn decide(&mut self, store: Store) -> Result<(Store, Option<Duration>), Ended> {
        let now = self.now();
        let step = self.step(&store, now);
        let mut wake = step.wake;
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
            wake = Some(now);
        }
        for subject in &step.preflight {
            self.preflight(*subject);
        }
        store = self.send(store, step.send).await?;
        if store.problem().is_some() && now >= self.retry_at {
            self.retry_at = now + TICK;
            let (after, again) = with(store, Store::retry).await?;
            store = after;
            if again {
                // What the file held from before is known from now on.
                store.restore(&mut self.episodes);
            }
        }
        let anything = store.counts().pending + store.counts().standing > 0;
        if let Some(at) = self.relay.look_at(anything) {
            let at = at.max(self.look_not_before);
            if self.looking {
            } else if at <= now {
                self.look();
            } else {
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
            }
        }
        if let Some(at) = self.ask_outcomes(&store, now) {
            wake = Some(wake.map_or(at, |wake| wake.min(at)));
        }
        if let Some(next) = self.escalation.next().map(Duration::from_millis) {
            wake = Some(wake.map_or(next, |wake| wake.min(next)));
        }
        Ok((store, wake.map(|wake| wake.max(now))))
    }

    fn step(&mut self, store: &Store, now: Duration) -> Step {
        let device_plugin = self.parts.inputs.device_plugin.borrow().clone();
        let mark = millis_of(now);
        let carried = |episode: &Episode| {
            // What a rule made of a fault is known here only.
            !episode.raised
                && match device_plugin.carries(episode.subject, &episode.code, mark) {
                    Carried::Carried { level, .. } => !episode.kills() || level.is_none_or(Level::kills),
                    Carried::NotCarried | Carried::Stale => false,
                }
        };
        self.relay.step(&World {
            now,
            heads: store.heads(&self.episodes),
            passed: store.passed(),
            stands: store.stands(),
            carried: &carried,
            preflights: &self.preflights,
            classified: self.parts.inputs.levels.borrow().asked_the_cluster,
            busy: self.sending,
        })
    }

    fn note_holds(&mut self, store: &Store, step: &Step) {
        let holds: Vec<Hold> = step.holds.values().copied().collect();
        self.parts.metrics.holds(&holds);
        let heads = store.heads(&self.episodes);
        let held = |hold| heads.iter().filter(move |head| step.holds.get(&head.seq) == Some(&hold));
        let mut carried = BTreeSet::new();
        for head in held(Hold::Carried) {
            if !self.carried.contains(head.id) {
                self.parts.story.carried(head.id, head.episode);
            }
            carried.insert(head.id.to_owned());
        }
        let objected = held(Hold::Objected).next().and_then(|head| {
            let preflight = self.preflights.get(&head.episode.subject)?;
            Some((head.id.to_owned(), head.episode.clone(), preflight.objections.clone()))
        });
        let objection =
            objected.as_ref().and_then(|(_, _, objections)| Some(objections.first()?.to_string()));
        if let (Some((id, episode, objections)), Some(text)) = (&objected, &objection)
            && self.objected.as_ref().is_none_or(|(_, before)| before != text)
        {
            warn!(id, objection = text, "a fault isn't told, since nothing would be saved");
            let pods = self.parts.inputs.pods.borrow().clone().unwrap_or_default();
            self.parts.story.held_back(id, episode, objections, &pods);
        }
        let since = self.objected.as_ref().map_or_else(|| self.now(), |(since, _)| *since);
        let waits = held(Hold::Preflight).next().is_some();
        drop(heads);
        self.carried = carried;
        // While the jobs are looked at anew, what was objected stands.
        if objection.is_some() || !waits {
            self.objected = objection.map(|text| (since, text));
        }
    }

    fn preflight(&mut self, subject: Subject) {
        if !self.preflighting.insert(subject) {
            return;
        }
        let parts = Arc::clone(self.parts);
        let now = self.now();
        self.jobs.spawn(async move {
            let device_info = device_info(&parts.inputs.device_plugin.borrow(), millis_of(now));
            let pods = parts.inputs.pods.borrow().clone();
            let preflight = look::preflight(&parts.api, subject, pods.as_deref(), device_info).await;
            Done::Preflighted(subject, preflight)
        });
    }

    fn look(&mut self) {
        self.looking = true;
        let parts = Arc::clone(self.parts);
        self.jobs.spawn(async move { Done::Looked(look::view(&parts.api, &parts.node).await) });
    }

    async fn send(&mut self, mut store: Store, batch: Vec<Parcel>) -> Result<Store, Ended> {
        let mut parcels = Vec::new();
        let mut faults: Vec<PublicFault> = Vec::new();
        let mut refused: Vec<Verdict> = Vec::new();
        for parcel in batch {
            match parcel.episode.fault(&self.parts.node, &parcel.id, parcel.assertion) {
                Ok(fault) => {
                    faults.push(fault);
                    parcels.push(parcel);
                }
                Err(invalid) => {
                    warn!(id = parcel.id, %invalid, "ClusterD would never take it");
                    self.parts.story.refused(&parcel.id, &invalid.to_string());
                    refused.extend(self.relay.refused(&parcel, &invalid.to_string(), self.now()));
                }
            }
        }
        if !refused.is_empty() {
            store = with(store, move |store| store.settle(&refused, |_| Note::default(), millis())).await?.0;
        }
        if parcels.is_empty() {
            return Ok(store);
        }
        let places: Vec<u64> = parcels.iter().filter_map(Parcel::place).collect();
        let (store, ()) = with(store, move |store| store.offer(&places)).await?;
        self.sending = true;
        let parts = Arc::clone(self.parts);
        self.jobs.spawn(async move {
            let (route, answer) = parts.routes.send(&faults).await;
            Done::Sent { route, batch: parcels, answer }
        });
        Ok(store)
    }

    async fn done(&mut self, store: Store, done: Done) -> Result<Store, Ended> {
        match done {
            Done::Sent { route, batch, answer } => {
                self.sending = false;
                self.sent(store, route, &batch, &answer).await
            }
            Done::Preflighted(subject, preflight) => {
                self.preflighting.remove(&subject);
                // It counts from when it was known: an API server may be slow.
                let now = self.now();
                let before = self.preflights.get(&subject).filter(|before| !before.objections.is_empty());
                let since = before.map_or(now, |before| before.since);
                let preflight = Preflight { at: now, since, ..preflight };
                self.parts.metrics.objects(&preflight.objections);
                self.preflights.insert(subject, preflight);
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
            Done::Reported(result) => {
                match result {
                    Ok(()) => info!("told ClusterD which ranks are lost"),
                    Err(error) => warn!(error, "ClusterD can't be told directly which ranks are lost"),
                }
                Ok(store)
            }
        }
    }

    async fn sent(
        &mut self,
        store: Store,
        route: Route,
        batch: &[Parcel],
        answer: &Result<(), SendError>,
    ) -> Result<Store, Ended> {
        self.parts.metrics.sent(route, answer);
        let now = self.now();
        match answer {
            Ok(()) => info!(route = route.as_str(), faults = batch.len(), "ClusterD took a batch"),
            Err(error) => warn!(route = route.as_str(), %error, "ClusterD didn't take a batch"),
        }
        let verdicts = self.relay.answered(batch, answer, now, fastrand::f64());
        let mut notes = BTreeMap::new();
        if answer.is_ok() {
            for parcel in batch {
                self.arrived(parcel, route, now, &mut notes);
            }
        }
        for (parcel, verdict) in batch.iter().zip(&verdicts) {
            if let Verdict::Refuse(_, why) = verdict {
                self.parts.story.refused(&parcel.id, why);
            }
        }
        let (store, ()) = with(store, move |store| {
            store.settle(&verdicts, |id| notes.get(id).cloned().unwrap_or_default(), millis());
        })
        .await?;
        Ok(store)
    }

    fn arrived(&mut self, parcel: &Parcel, route: Route, now: Duration, notes: &mut BTreeMap<String, Note>) {
        let Parcel { id, assertion, episode, .. } = parcel;
        let is_first = parcel.place().is_some();
        if is_first {
            #[expect(clippy::cast_precision_loss, reason = "a time of days in milliseconds")]
            let seconds = millis().saturating_sub(episode.began) as f64 / 1000.0;
            self.parts.metrics.accepted(*assertion, (*assertion == Assertion::Occur).then_some(seconds));
        }
        match assertion {
            Assertion::Occur if is_first => {
                let preflight = self.preflights.get(&episode.subject).filter(|_| episode.kills());
                let jobs = preflight.map(|preflight| preflight.jobs.clone()).unwrap_or_default();
                self.parts.story.relayed(id, episode, &jobs, route.as_str());
                self.report_ranks(episode, &jobs);
                self.accepted_at.insert(id.clone(), now);
                notes.insert(id.clone(), Note { jobs, ..Note::default() });
            }
            Assertion::Recover if is_first => self.parts.story.recovered(id, episode),
            Assertion::Recover => self.parts.story.recalled(id, episode),
            _ => {}
        }
    }

    /// The direct way, for jobs that ask for it and a device that is certainly lost.
    fn report_ranks(&mut self, episode: &Episode, jobs: &[JobNote]) {
        if !self.parts.settings.fast_dump || episode.code != Code::from(DROPPED) {
            return;
        }
        for job in jobs.iter().filter(|job| !job.fast_ranks.is_empty()) {
            let (parts, uid, ranks) = (Arc::clone(self.parts), job.job.uid.clone(), job.fast_ranks.clone());
            self.jobs.spawn(async move {
                let report = parts.routes.grpc.report_process_fault(&uid, &ranks, Cause::Other).await;
                Done::Reported(report.map_err(|error| error.to_string()))
            });
        }
    }

    async fn looked(&mut self, store: Store, view: Result<View, ApiError>) -> Result<Store, Ended> {
        let now = self.now();
        let view = match view {
            Ok(view) => view,
            Err(error) => {
                warn!(%error, "what ClusterD has can't be looked at");
                self.look_not_before = now + TICK.max(error.retry_after().unwrap_or_default());
                return Ok(store);
            }
        };
        let verdicts = self.relay.confirm(&view, &store.heads(&self.episodes), &store.stands(), now);
        if verdicts.is_empty() {
            return Ok(store);
        }
        let (store, ()) =
            with(store, move |store| store.settle(&verdicts, |_| Note::default(), millis())).await?;
        Ok(store)
    }

    /// Asks what became of the jobs that standing faults hit. The answer is when to ask again.
    fn ask_outcomes(&mut self, store: &Store, now: Duration) -> Option<Duration> {
        let mut open = Vec::new();
        for stands in store.stands() {
            let jobs = stands.note.jobs.iter().enumerate();
            open.extend(
                jobs.filter(|(_, job)| job.outcome.is_none())
                    .map(|(place, job)| (stands.id.to_owned(), place, job.clone())),
            );
        }
        if open.is_empty() {
            self.outcomes_at = None;
            return None;
        }
        let at = *self.outcomes_at.get_or_insert(now);
        if at > now || self.asking {
            return Some(at.max(now + OUTCOME_PACE));
        }
        self.asking = true;
        self.outcomes_at = Some(now + OUTCOME_PACE);
        let parts = Arc::clone(self.parts);
        let waited: BTreeMap<String, Duration> = open
            .iter()
            .map(|(id, _, _)| {
                let since = *self.accepted_at.entry(id.clone()).or_insert(now);
                (id.clone(), now.saturating_sub(since))
            })
            .collect();
        self.jobs.spawn(async move {
            let mut outcomes = Vec::new();
            for (id, place, job) in open {
                let outcome = outcome(&parts.api, &job, waited[&id]).await;
                outcomes.extend(outcome.map(|outcome| (id, place, outcome)));
            }
            Done::Outcomes(outcomes)
        });
        Some(now + OUTCOME_PACE)
    }

    async fn outcomes(
        &mut self,
        store: Store,
        outcomes: Vec<(String, usize, String)>,
    ) -> Result<Store, Ended> {
        if outcomes.is_empty() {
            return Ok(store);
        }
        for stands in store.stands() {
            let mut jobs = stands.note.jobs.clone();
            for (_, place, outcome) in outcomes.iter().filter(|(id, _, _)| id == stands.id) {
                let Some(job) = jobs.get_mut(*place) else { continue };
                let took = self.accepted_at.get(stands.id).map(|at| self.now().saturating_sub(*at));
                self.parts.metrics.outcome(outcome, took.map(|took| took.as_secs_f64()));
                self.parts.story.outcome(stands.id, stands.episode.subject, job, outcome);
                info!(id = stands.id, job = job.job.name, outcome, ?took, "what became of a job");
                job.outcome = Some(outcome.clone());
            }
            let ended = !jobs.is_empty() && jobs.iter().all(|job| job.outcome.is_some());
            if ended {
                info!(id = stands.id, "all jobs that it hit have ended");
            }
        }
        let (store, ()) = with(store, move |store| {
            for (id, place, outcome) in outcomes {
                store.change(&id, |note| {
                    if let Some(job) = note.jobs.get_mut(place) {
                        job.outcome = Some(outcome);
                    }
                });
            }
        })
        .await?;
        Ok(store)
    }

    /// What the Node and `/status` show.
    fn tell(&mut self, store: &Store) {
        let counts = store.counts();
        if self.accepted_at.len() > counts.standing {
            let stands = store.stands();
            let standing: BTreeSet<&str> = stands.iter().map(|stands| stands.id).collect();
            self.accepted_at.retain(|id, _| standing.contains(id.as_str()));
        }
        self.parts.metrics.outbox(counts, store.problem().is_none());
        let standing: BTreeSet<&str> = self.episodes.standing().map(|(id, _)| id).collect();
        let mut blind =
            self.blind.iter().map(|((source, subject), why)| format!("{source} can't see {subject}: {why}"));
        let known = Known {
            now: self.now(),
            trouble: self.relay.trouble(),
            objection: self.objected.clone(),
            not_durable: store.problem(),
            full: self.full,
            unheard: self.relay.unheard().next(),
            refused: store.last_refused().filter(|(id, _)| standing.contains(id)),
            blind: blind.next(),
            waiting: counts.pending,
        };
        let told = condition::decide(&known);
        self.parts.told.send_if_modified(|before| {
            let new = before.as_ref() != Some(&told);
            if new {
                *before = Some(told.clone());
            }
            new
        });
        let view = super::view::View::of(&told, &self.episodes, store, &self.relay, self.now());
        self.parts.view.send_replace(Some(Arc::new(view)));
    }
}

fn millis_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether it is told at all, unless notices are.
fn is_told(episode: &Episode) -> bool {
    episode.class() != swansong_clusterd::Class::Notice
}

/// Why ClusterD wouldn't take a fault of this node.
fn device_info(device_plugin: &DevicePlugin, now: u64) -> Option<String> {
    match device_plugin.publishes(now) {
        Publishes::Fresh | Publishes::Stale { .. } => None,
        Publishes::Missing => Some("is missing".to_owned()),
        Publishes::Invalid(invalid) => Some(format!("can't be taken: {invalid}")),
        Publishes::NotLooked => Some("hasn't been looked at yet".to_owned()),
    }
}

/// What became of a job, if that can be told.
///
/// That the pod has gone says nothing: the one on the faulty node ends before the others have saved.
async fn outcome(api: &ApiServer, job: &JobNote, waited: Duration) -> Option<String> {
    if !job.group.is_empty() {
        match look::group(api, &job.namespace, &job.group).await {
            Ok(None) => return Some(GONE.to_owned()),
            Ok(Some(group)) => {
                if group.status.is_some() && group.status != job.before {
                    return group.status;
                }
            }
            Err(error) => {
                warn!(%error, "what became of a job can't be looked at");
                return None;
            }
        }
    }
    (waited >= OUTCOME_PATIENCE).then(|| UNKNOWN.to_owned())
}

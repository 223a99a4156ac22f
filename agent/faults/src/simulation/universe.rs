//! A node, its agent and ClusterD, in simulated time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use swansong_clusterd::message::Message;
use swansong_clusterd::{PublicFault, SendError};
use swansong_clusterd_client::public_fault_request;
use swansong_fake_clusterd::{Core, Settings as Clusterd};
use swansong_fault_model::reconcile::{Inputs, Observed, Plan, Preflight, Reconciler, Settings};
use swansong_fault_model::{
    ActiveFault, Assertion, Classification, Code, Context, Fault, FaultEvent, FaultTracker, Level, Phase,
    Severity, SourceUpdate, Subject,
};
use tempfile::TempDir;

use crate::cluster::observed;
use crate::public::public_fault;
use crate::sender::batch_error;
use crate::state::{State, StateFile};

const NODE: &str = "worker-7";
const START: u64 = 1_784_000_000_000;
pub(super) const NPUS: u32 = 3;
pub(super) const CODES: [u32; 2] = [0x80E0_1801, 0x40F8_4E00];

#[derive(Debug, Clone)]
pub(super) enum Action {
    /// A fault begins or ends, and the source reports an event.
    Toggle(u32, usize),
    /// A fault begins or ends, and the source notices it by the next poll only.
    Unnoticed(u32, usize),
    Poll,
    Pass(u64),
    Behave(Mood),
    /// The agent is killed, between two rounds or while a batch is in flight.
    Kill,
    KillInFlight,
    /// The disk is away, or there again.
    Disk(bool),
    RestartClusterd,
    /// The outcome of the jobs that a fault hit is known.
    Withdraw(u32, usize),
    /// The host's clock jumps by so many seconds.
    Jump(i64),
    /// The cluster changes the level of all faults.
    Classify(Level),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mood {
    Normal,
    TooMany,
    /// There is no answer, and the batch didn't arrive.
    Away,
    /// There is no answer, and the batch arrived.
    Mute,
}

/// An agent's process.
pub(super) struct Process {
    pub(super) tracker: FaultTracker,
    pub(super) reconciler: Reconciler,
    file: StateFile,
    is_dirty: bool,
}

impl Process {
    fn start(folder: &Path, now: Duration) -> Self {
        let (file, opened) = StateFile::open(folder, Duration::ZERO).expect("not in use");
        let mut tracker = FaultTracker::new(NODE, None);
        tracker.restore(opened.state.faults, opened.state.escalation);
        let reconciler = Reconciler::new(Settings::default(), now);
        Self { tracker, reconciler, file, is_dirty: true }
    }

    /// Whether the state is on disk.
    fn save(&mut self) -> bool {
        self.is_dirty |= self.tracker.take_changed();
        if self.is_dirty {
            let state = State { faults: self.tracker.faults().cloned().collect(), ..State::default() };
            let text = serde_json::to_string(&state).expect("serializes");
            self.is_dirty = self.file.write(&text).is_err();
        }
        !self.is_dirty
    }

    fn plan(&mut self, now: Duration) -> Plan {
        let cleared = Preflight { at: now, objects_since: None };
        let inputs = Inputs {
            now,
            is_reported_by_device_plugin: &|_| false,
            preflight: &|_| Some(cleared),
            is_classified: true,
        };
        self.reconciler.reconcile(&mut self.tracker, &inputs)
    }
}

pub(super) struct Universe {
    _folder: TempDir,
    pub(super) path: PathBuf,
    pub(super) process: Option<Process>,
    pub(super) clusterd: Core,
    mood: Mood,
    level: Level,
    /// An agent was killed while it had no disk, so that the next one didn't know what ClusterD had.
    forgetful: bool,
    /// The next batch is the last thing that the agent does.
    dies_in_flight: bool,
    /// The faults whose ranks were to be ended.
    pub(super) lost: BTreeSet<String>,
    /// Which faults there really are.
    truth: BTreeSet<(u32, u32)>,
    /// Milliseconds of a clock that never goes back, and by how much the host's differs from it.
    now: u64,
    jumped: i64,
    pub(super) batches: usize,
}

impl Universe {
    pub(super) fn new() -> Self {
        // In memory where there is such a file system, since each state is synced.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("a folder");
        let path = folder.path().join("state");
        let process = Some(Process::start(&path, Duration::ZERO));
        Self {
            _folder: folder,
            path,
            process,
            clusterd: Core::new(Clusterd::default()),
            mood: Mood::Normal,
            level: Level::SeparateNPU,
            forgetful: false,
            dies_in_flight: false,
            lost: BTreeSet::new(),
            truth: BTreeSet::new(),
            now: 0,
            jumped: 0,
            batches: 0,
        }
    }

    pub(super) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it lives between actions")
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    fn wall(&self) -> u64 {
        (START + self.now).saturating_add_signed(self.jumped)
    }

    pub(super) fn kill(&mut self) {
        self.process.take();
        self.forgetful |= self.path.is_file();
        // A container doesn't start at once.
        self.now += 1000;
        self.process = Some(Process::start(&self.path, self.time()));
        self.reclassify();
        self.poll();
    }

    /// A file where the folder was makes every write fail.
    fn disk(&mut self, is_there: bool) {
        let aside = self.path.with_extension("aside");
        if is_there != aside.exists() {
            return;
        }
        if is_there {
            std::fs::remove_file(&self.path).expect("removed");
            std::fs::rename(&aside, &self.path).expect("renamed");
        } else {
            std::fs::rename(&self.path, &aside).expect("renamed");
            std::fs::write(&self.path, "").expect("written");
        }
    }

    fn update(&mut self, change: impl FnOnce(&mut FaultTracker, Context<'_>)) {
        let (level, now) = (self.level, self.now);
        let classify =
            move |_: &Code, _: Option<Severity>| Classification { level, reason: "all alike".to_owned() };
        let context = Context { classify: &classify, devices: &[], now, notices: false };
        change(&mut self.process().tracker, context);
    }

    fn report(&mut self, update: &SourceUpdate) {
        self.update(|tracker, context| drop(tracker.apply("dcmi", update, context)));
    }

    fn reclassify(&mut self) {
        self.update(|tracker, context| drop(tracker.reclassify(context)));
    }

    pub(super) fn toggle(&mut self, npu: u32, code: usize) -> bool {
        let fault = (npu, CODES[code]);
        if self.truth.remove(&fault) { false } else { self.truth.insert(fault) }
    }

    fn poll(&mut self) {
        for npu in 0..NPUS {
            let active = self.truth.iter().filter(|(other, _)| *other == npu);
            let faults =
                active.map(|&(_, code)| ActiveFault { code: Code::from(code), severity: None, name: None });
            let (faults, at) = (faults.collect(), self.wall());
            self.report(&SourceUpdate::Snapshot { subject: Subject::Npu(npu), faults, at });
        }
    }

    pub(super) fn apply(&mut self, action: &Action) {
        match *action {
            Action::Toggle(npu, code) => {
                let assertion = if self.toggle(npu, code) { Assertion::Occur } else { Assertion::Recover };
                let (subject, code, at) = (Subject::Npu(npu), Code::from(CODES[code]), self.wall());
                let event = FaultEvent { subject, code, severity: None, assertion, name: None, at };
                self.report(&SourceUpdate::Event(event));
            }
            Action::Unnoticed(npu, code) => drop(self.toggle(npu, code)),
            Action::Poll => self.poll(),
            Action::Pass(time) => self.pass(time),
            Action::Behave(mood) => self.mood = mood,
            Action::Kill => self.kill(),
            Action::KillInFlight => self.dies_in_flight = true,
            Action::Disk(is_there) => self.disk(is_there),
            Action::Withdraw(npu, code) => self.withdraw(npu, code),
            Action::RestartClusterd => self.clusterd.restart(START + self.now),
            Action::Jump(seconds) => self.jumped = seconds * 1000,
            Action::Classify(level) => {
                self.level = level;
                self.reclassify();
            }
        }
        self.work();
    }

    fn withdraw(&mut self, npu: u32, code: usize) {
        let Process { tracker, reconciler, .. } = self.process();
        let is_it =
            |fault: &&Fault| fault.subject == Subject::Npu(npu) && fault.code == Code::from(CODES[code]);
        let id = tracker.active().find(is_it).map(|fault| fault.id.clone());
        if let Some(id) = id {
            reconciler.withdraw(tracker, &id);
        }
    }

    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            let next = self.work().unwrap_or(end);
            // A restart of the agent takes time too.
            self.now = next.clamp(self.now + 1, end.max(self.now + 1));
        }
        self.work();
    }

    /// Does what is due now. The answer is when something is due next.
    fn work(&mut self) -> Option<u64> {
        let mut wake = None;
        for _ in 0..100 {
            let (is_busy, due) = self.round();
            wake = due;
            if !is_busy {
                break;
            }
        }
        wake.map(|at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX))
    }

    /// One round. Whether anything was done, and when something is due next.
    fn round(&mut self) -> (bool, Option<Duration>) {
        let now = self.time();
        let plan = self.process().plan(now);
        let (mut wake, is_sending) = (plan.wake, !plan.batch.is_empty());
        for id in plan.lost.keys() {
            assert!(self.lost.insert(id.clone()) || self.forgetful, "a rank is ended once: {id}");
        }
        // The pipeline sends without the disk too, after a timeout.
        self.process().save();
        if is_sending {
            self.exchange(plan, now);
        }
        let process = self.process();
        let due = process.reconciler.next_observation(&process.tracker);
        let is_observing = due.is_some_and(|due| due <= now);
        if is_observing {
            let observed = self.observed();
            let Process { tracker, reconciler, .. } = self.process();
            reconciler.observe(tracker, &observed, now);
        } else {
            wake = wake.into_iter().chain(due).min();
        }
        (is_sending || is_observing, wake)
    }

    fn exchange(&mut self, plan: Plan, now: Duration) {
        let faults = plan.batch.iter().map(|outbound| public_fault(NODE, outbound).expect("valid"));
        let faults: Vec<PublicFault> = faults.collect();
        self.batches += 1;
        let answer = self.send(&faults);
        if std::mem::take(&mut self.dies_in_flight) {
            return self.kill();
        }
        let result = answer.map_err(|error| batch_error(&error));
        let Process { tracker, reconciler, .. } = self.process();
        reconciler.complete(tracker, plan.batch, result, now, 0.5);
    }

    fn send(&mut self, faults: &[PublicFault]) -> Result<(), SendError> {
        let unavailable = || Err(SendError::Unavailable("no answer".to_owned()));
        match self.mood {
            Mood::TooMany => return Err(SendError::TooMany("limiter".to_owned())),
            Mood::Away => return unavailable(),
            Mood::Normal | Mood::Mute => {}
        }
        let now = START + self.now;
        let message = public_fault_request(&Message::new(faults, now).expect("valid"));
        let answer = self.clusterd.send_public_fault(&message, now);
        if self.mood == Mood::Mute {
            return unavailable();
        }
        match answer.code {
            0 => Ok(()),
            410 => Err(SendError::TooMany(answer.info)),
            _ => Err(SendError::Invalid(answer.info)),
        }
    }

    pub(super) fn observed(&mut self) -> Observed {
        self.clusterd.tick(START + self.now);
        observed(&self.clusterd.statistic(), NODE).expect("a statistic")
    }

    /// Everything works again, for long enough.
    pub(super) fn heal(&mut self) {
        self.mood = Mood::Normal;
        self.dies_in_flight = false;
        self.disk(true);
        self.poll();
        self.pass(20 * 60 * 1000);
    }

    pub(super) fn check(&mut self) {
        let shown: BTreeSet<String> = self.observed().faults.into_keys().collect();
        let level = self.level;
        let process = self.process();
        assert!(process.save(), "the state is on disk");
        let active: BTreeMap<&str, (u32, u32)> = process
            .tracker
            .active()
            .map(|fault| match fault.subject {
                Subject::Npu(npu) => {
                    assert_eq!(fault.classification.level, level);
                    assert!(matches!(fault.phase, Phase::Confirmed | Phase::Withdrawn), "{fault:?}");
                    (fault.id.as_str(), (npu, u32::try_from(fault.code.number()).expect("the driver's")))
                }
                Subject::Node => panic!("no source reports that"),
            })
            .collect();
        assert_eq!(process.tracker.faults().count(), active.len(), "nothing waits");
        let confirmed = process.tracker.active().filter(|fault| fault.phase == Phase::Confirmed);
        let ids: BTreeSet<String> = confirmed.map(|fault| fault.id.clone()).collect();
        let known: BTreeSet<(u32, u32)> = active.into_values().collect();
        assert_eq!(known, self.truth, "the agent knows what is true");
        assert_eq!(shown, ids, "ClusterD has every active fault that isn't withdrawn, and no other");
        self.check_order();
    }

    /// The faults of a code follow each other, each under its own id, and none occurs again after its end.
    fn check_order(&self) {
        let mut open: BTreeMap<&str, &str> = BTreeMap::new();
        let mut ended = BTreeSet::new();
        for accepted in &self.clusterd.ledger().accepted {
            let (key, since) = accepted.fault_id.rsplit_once('.').expect("an id");
            assert_eq!(since, accepted.fault_time.to_string(), "the time is that of the occurrence");
            if accepted.assertion == "occur" {
                let before = open.insert(key, &accepted.fault_id);
                assert!(
                    self.forgetful || before.is_none_or(|id| id == accepted.fault_id),
                    "{} while {before:?} was active",
                    accepted.fault_id
                );
                assert!(
                    self.forgetful || !ended.contains(&accepted.fault_id),
                    "{} occurred again",
                    accepted.fault_id
                );
            } else {
                open.remove(key);
                ended.insert(accepted.fault_id.clone());
            }
        }
    }
}

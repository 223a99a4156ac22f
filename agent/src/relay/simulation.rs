//! Everything between the sources and ClusterD together, but for threads and network: days of faults, a ClusterD that
//! refuses, hangs and restarts, an agent that is killed at any point, an hour without anybody. The outbox is the real one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use swansong_clusterd::message::Message;
use swansong_clusterd::{PublicFault, SendError, statistic};
use swansong_clusterd_client::public_fault_request;
use swansong_fake_clusterd::{Core, Settings as Clusterd};
use swansong_fault_model::{
    ActiveFault, Assertion, Code, FaultEvent, Level, Severity, SourceUpdate, Subject,
};
use tempfile::TempDir;

use super::episode::Episode;
use super::episodes::{Change, Classify, Context, Episodes};
use super::plan::Relay;
use super::reconcile::View;
use super::settings::Settings;
use super::store::Store;
use super::terms::{Note, Preflight, World};

const NODE: &str = "worker-7";
const START: u64 = 1_784_000_000_000;
const NPUS: u32 = 3;
const CODES: [u32; 2] = [0x80E0_1801, 0x40F8_4E00];

#[derive(Debug, Clone)]
enum Action {
    /// A fault comes or goes, and the source says so.
    Toggle(u32, usize),
    /// A fault comes or goes, and nobody notices before the next poll.
    Unheard(u32, usize),
    Poll,
    Pass(u64),
    Behave(Mood),
    Kill,
    /// The disk is away, or there again.
    Disk(bool),
    RestartClusterd,
    /// The host's clock jumps by so many seconds.
    Jump(i64),
    /// The cluster classifies the faults as graver, or as milder.
    Classify(Level),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Normal,
    TooMany,
    /// Nobody answers, and the batch didn't arrive.
    Away,
    /// Nobody answers, and the batch did.
    Mute,
}

/// All faults have this level.
struct Same(Level);

impl Classify for Same {
    fn level(&self, _: &Code, _: Option<Severity>) -> (Level, String) {
        (self.0, "all are the same".to_owned())
    }
}

/// An agent's process.
struct Process {
    episodes: Episodes,
    relay: Relay,
    store: Store,
}

impl Process {
    fn start(folder: &std::path::Path) -> Self {
        let store = Store::open(folder).expect("nobody else has it");
        let mut episodes = Episodes::new(NODE);
        store.restore(&mut episodes);
        Self { episodes, relay: Relay::new(Settings::default()), store }
    }
}

struct Universe {
    _folder: TempDir,
    path: PathBuf,
    process: Option<Process>,
    clusterd: Core,
    mood: Mood,
    level: Level,
    /// An agent was killed while it had no disk, so that the next knew nothing of what ClusterD had.
    forgetful: bool,
    /// Which faults there really are.
    truth: BTreeSet<(u32, u32)>,
    /// Milliseconds of a clock that never goes back, and by how much the host's differs from it.
    now: u64,
    jumped: i64,
    /// The next send ends with the death of the agent, before or after ClusterD gets it.
    sent: usize,
}

impl Universe {
    fn new() -> Self {
        // In memory where there is such a place: each change is synced.
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("a folder");
        let path = folder.path().join("outbox");
        let process = Some(Process::start(&path));
        let clusterd = Core::new(Clusterd::default());
        Self {
            _folder: folder,
            path,
            process,
            clusterd,
            mood: Mood::Normal,
            level: Level::SeparateNPU,
            forgetful: false,
            truth: BTreeSet::new(),
            now: 0,
            jumped: 0,
            sent: 0,
        }
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it lives between actions")
    }

    fn wall(&self) -> u64 {
        (START + self.now).saturating_add_signed(self.jumped)
    }

    fn kill(&mut self) {
        drop(self.process.take());
        self.forgetful |= self.path.is_file();
        // Nobody starts within a millisecond.
        self.now += 1000;
        self.process = Some(Process::start(&self.path));
        self.classify();
        self.poll();
    }

    /// Where the outbox's folder was is a file now, which no write gets past; or the folder, as it was.
    fn disk(&mut self, there: bool) {
        let aside = self.path.with_extension("aside");
        if there != aside.exists() {
            return;
        }
        if there {
            std::fs::remove_file(&self.path).expect("removed");
            std::fs::rename(&aside, &self.path).expect("back");
            self.process().store.retry();
            self.join();
        } else {
            std::fs::rename(&self.path, &aside).expect("away");
            std::fs::write(&self.path, "").expect("a file");
        }
    }

    fn join(&mut self) {
        let Process { episodes, store, .. } = self.process();
        if store.take_returned() {
            let over = store.restore(episodes);
            store.append(&over);
            self.classify();
        }
    }

    fn hear(&mut self, seen: &SourceUpdate) {
        let level = Same(self.level);
        let process = self.process();
        let context = Context { classify: &level, devices: &[] };
        let changes: Vec<Change> = process.episodes.take_in("dcmi", seen, context);
        process.store.append(&changes);
    }

    fn classify(&mut self) {
        let level = Same(self.level);
        let process = self.process();
        let changes = process.episodes.reclassify(&level);
        process.store.append(&changes);
    }

    fn toggle(&mut self, npu: u32, code: usize) -> bool {
        let fault = (npu, CODES[code]);
        if self.truth.remove(&fault) { false } else { self.truth.insert(fault) }
    }

    fn poll(&mut self) {
        for npu in 0..NPUS {
            let standing = self.truth.iter().filter(|(other, _)| *other == npu);
            let standing = standing
                .map(|&(_, code)| ActiveFault { code: Code::from(code), severity: None, name: None })
                .collect();
            let at = self.wall();
            self.hear(&SourceUpdate::Snapshot { subject: Subject::Npu(npu), faults: standing, at });
        }
    }

    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Toggle(npu, code) => {
                let assertion = if self.toggle(npu, code) { Assertion::Occur } else { Assertion::Recover };
                let (subject, code, at) = (Subject::Npu(npu), Code::from(CODES[code]), self.wall());
                self.hear(&SourceUpdate::Event(FaultEvent {
                    subject,
                    code,
                    severity: None,
                    assertion,
                    name: None,
                    at,
                }));
            }
            Action::Unheard(npu, code) => drop(self.toggle(npu, code)),
            Action::Poll => self.poll(),
            Action::Pass(time) => self.pass(time),
            Action::Behave(mood) => self.mood = mood,
            Action::Kill => self.kill(),
            Action::Disk(there) => self.disk(there),
            Action::RestartClusterd => self.clusterd.restart(START + self.now),
            Action::Jump(seconds) => self.jumped = seconds * 1000,
            Action::Classify(level) => {
                self.level = level;
                self.classify();
            }
        }
        self.work();
    }

    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            let next = self.work().unwrap_or(end);
            self.now = next.clamp(self.now + 1, end);
        }
        self.work();
    }

    /// All that is to be done at this moment; when the next is.
    fn work(&mut self) -> Option<u64> {
        for _ in 0..100 {
            if !self.turn() {
                break;
            }
        }
        let now = Duration::from_millis(self.now);
        let process = self.process();
        let step = step(process, now);
        let anything = process.store.counts().pending + process.store.counts().standing > 0;
        let look = process.relay.look_at(anything);
        [step.wake, look]
            .into_iter()
            .flatten()
            .map(|at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX))
            .min()
    }

    /// One round; whether anything was done.
    fn turn(&mut self) -> bool {
        self.join();
        let (now, wall) = (Duration::from_millis(self.now), self.wall());
        let process = self.process();
        let step = step(process, now);
        let mut busy = !step.withdraw.is_empty() || !step.skip.is_empty();
        process.store.withdraw(&step.withdraw);
        process.store.skip(&step.skip, wall);
        if !step.send.is_empty() {
            busy = true;
            let places: Vec<u64> = step.send.iter().filter_map(super::terms::Parcel::place).collect();
            process.store.offer(&places);
            let faults: Vec<PublicFault> = step
                .send
                .iter()
                .map(|parcel| parcel.episode.fault(NODE, &parcel.id, parcel.assertion).expect("sound"))
                .collect();
            self.sent += 1;
            let answer = self.send(&faults);
            let process = self.process();
            let verdicts = process.relay.answered(&step.send, &answer, now, 0.5);
            process.store.settle(&verdicts, |_| Note::default(), wall);
        }
        let process = self.process();
        let anything = process.store.counts().pending + process.store.counts().standing > 0;
        if process.relay.look_at(anything).is_some_and(|at| at <= now) {
            let view = self.view();
            let Process { episodes, relay, store } = self.process();
            let verdicts = relay.confirm(&view, &store.heads(episodes), &store.stands(episodes), now);
            busy |= !verdicts.is_empty();
            store.settle(&verdicts, |_| Note::default(), wall);
        }
        busy
    }

    fn send(&mut self, faults: &[PublicFault]) -> Result<(), SendError> {
        let silent = || Err(SendError::Unavailable("nobody answers".to_owned()));
        match self.mood {
            Mood::TooMany => return Err(SendError::TooMany("limiter".to_owned())),
            Mood::Away => return silent(),
            Mood::Normal | Mood::Mute => {}
        }
        let now = START + self.now;
        let message = public_fault_request(&Message::new(faults, now).expect("sound"));
        let answer = self.clusterd.send_public_fault(&message, now);
        if self.mood == Mood::Mute {
            return silent();
        }
        match answer.code {
            0 => Ok(()),
            410 => Err(SendError::TooMany(answer.info)),
            _ => Err(SendError::Invalid(answer.info)),
        }
    }

    fn view(&mut self) -> View {
        self.clusterd.tick(START + self.now);
        let data = self.clusterd.statistic();
        let faults = data.get(statistic::FAULTS).map(String::as_str);
        let standing = statistic::node_faults(faults, None, NODE).expect("a statistic");
        View::Has { ids: standing.fault_ids.into_iter().map(Into::into).collect(), complete: true }
    }

    /// All is well again, for long enough.
    fn heal(&mut self) {
        self.mood = Mood::Normal;
        self.disk(true);
        self.poll();
        self.pass(20 * 60 * 1000);
    }

    fn check(&mut self) {
        let View::Has { ids: there, .. } = self.view() else { panic!("it is read") };
        let process = self.process();
        let standing: BTreeMap<String, Episode> =
            process.episodes.standing().map(|(id, episode)| (id.to_owned(), episode.clone())).collect();
        let seen: BTreeSet<(u32, u32)> = standing
            .values()
            .map(|episode| match episode.subject {
                Subject::Npu(npu) => (npu, u32::try_from(episode.code.number()).expect("the driver's")),
                Subject::Node => panic!("no source says so"),
            })
            .collect();
        let waiting = process.store.counts().pending;
        assert!(standing.values().all(|episode| episode.level == self.level), "as the cluster has it");
        assert_eq!(seen, self.truth, "what the agent knows is what is");
        assert_eq!(
            there,
            standing.keys().cloned().collect(),
            "ClusterD has what stands: nothing lost, nothing latched"
        );
        assert_eq!(waiting, 0);
        self.check_order();
    }

    /// Episodes of one fault come one after the other, each under an id of its own, and none comes back.
    fn check_order(&self) {
        let mut open: BTreeMap<&str, &str> = BTreeMap::new();
        let mut over = BTreeSet::new();
        for taken in &self.clusterd.ledger().taken {
            let (key, began) = taken.fault_id.rsplit_once('.').expect("an id");
            assert_eq!(began, taken.fault_time.to_string(), "the time is that of the occurrence");
            if taken.assertion == "occur" {
                let before = open.insert(key, &taken.fault_id);
                assert!(
                    self.forgetful || before.is_none_or(|id| id == taken.fault_id),
                    "{} while {before:?} stood",
                    taken.fault_id
                );
                assert!(self.forgetful || !over.contains(&taken.fault_id), "{} came back", taken.fault_id);
            } else {
                open.remove(key);
                over.insert(taken.fault_id.clone());
            }
        }
    }
}

fn step(process: &mut Process, now: Duration) -> super::terms::Step {
    let cleared = (0..NPUS).map(|npu| (Subject::Npu(npu), Preflight { at: now, ..Preflight::default() }));
    let Process { episodes, relay, store } = process;
    relay.step(&World {
        now,
        heads: store.heads(episodes),
        passed: store.passed(),
        stands: store.stands(episodes),
        carried: &|_| false,
        preflights: &cleared.collect(),
        classified: true,
        busy: false,
    })
}

fn action() -> impl Strategy<Value = Action> {
    let fault = || (0..NPUS, 0..CODES.len());
    prop_oneof![
        5 => fault().prop_map(|(npu, code)| Action::Toggle(npu, code)),
        2 => fault().prop_map(|(npu, code)| Action::Unheard(npu, code)),
        2 => Just(Action::Poll),
        6 => prop_oneof![0..2_000u64, 0..20_000u64, 0..300_000u64].prop_map(Action::Pass),
        3 => prop_oneof![Just(Mood::Normal), Just(Mood::TooMany), Just(Mood::Away), Just(Mood::Mute)]
            .prop_map(Action::Behave),
        3 => Just(Action::Kill),
        1 => any::<bool>().prop_map(Action::Disk),
        1 => Just(Action::RestartClusterd),
        1 => (-7200..7200i64).prop_map(Action::Jump),
        1 => prop_oneof![Just(Level::SeparateNPU), Just(Level::SubHealthFault)].prop_map(Action::Classify),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_latched_or_swapped(actions in prop::collection::vec(action(), 1..60)) {
        let mut universe = Universe::new();
        for action in &actions {
            universe.apply(action);
        }
        universe.heal();
        universe.check();
    }
}

/// An hour without ClusterD, in which faults come and go; then all that still stands is told, and nothing that is over.
#[test]
fn an_hour_without_clusterd() {
    for mood in [Mood::TooMany, Mood::Away, Mood::Mute] {
        let mut universe = Universe::new();
        universe.apply(&Action::Behave(mood));
        for minute in 0..60u32 {
            universe.apply(&Action::Toggle(minute % NPUS, (minute % 2) as usize));
            universe.apply(&Action::Pass(60_000));
            let waiting = universe.process().store.counts().pending;
            assert!(waiting <= 3 * (NPUS as usize) * CODES.len(), "bounded: {waiting}");
        }
        // Less than twice a minute.
        assert!(universe.sent < 130, "{mood:?}: {} times", universe.sent);
        assert!(universe.process().relay.trouble().is_some());
        universe.heal();
        universe.check();
    }
}

/// ClusterD comes back with a fault that was over before it went: it is taken back.
#[test]
fn a_restart_with_a_fault_that_is_over() {
    let mut universe = Universe::new();
    universe.apply(&Action::Toggle(0, 0));
    universe.apply(&Action::Pass(30_000));
    universe.apply(&Action::Toggle(0, 0));
    // The recovery is taken, and forgotten by a restart before it was carried out.
    universe.apply(&Action::RestartClusterd);
    universe.heal();
    universe.check();
    assert_eq!(universe.view(), View::Has { ids: BTreeSet::new(), complete: true });
}

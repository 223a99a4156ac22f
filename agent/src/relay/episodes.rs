//! From what the sources see to what is told: which faults stand, since when, and by whose word.
//!
//! Sources are joined by level, not by edge. A fault stands while any source says so; it is over when the last one that
//! said so says otherwise. A source that falls blind takes nothing back.

use std::collections::{BTreeMap, BTreeSet};

use swansong_fault::{Assertion, Code, Event, Level, Seen, Severity, Standing, Subject};

use super::episode::{Episode, key};

/// ClusterD takes no other physical ids.
const LAST_DEVICE: u32 = 31;

/// More at once are garbage; what stands is told again by the source's next poll.
const MOST: usize = 4096;

/// How a code's level is found, and why.
pub(crate) trait Classify {
    /// The level of `code`.
    fn level(&self, code: &Code, severity: Option<Severity>) -> (Level, String);
}

/// Something to be put into the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The same from occurrence to end.
    pub(crate) id: String,
    /// What happened.
    pub(crate) assertion: Assertion,
    /// To what.
    pub(crate) episode: Episode,
}

/// All that stands.
#[derive(Debug)]
pub(crate) struct Episodes {
    node: String,
    open: BTreeMap<String, Open>,
    /// When the last episode of a key began, so that no two have one id, whatever the clock does.
    last: BTreeMap<String, u64>,
    dropped: u64,
}

#[derive(Debug)]
struct Open {
    id: String,
    episode: Episode,
    /// The sources that say that it stands.
    holders: BTreeSet<String>,
    /// Whether a source said so in the life of this process.
    vouched: bool,
}

impl Episodes {
    /// Nothing stands.
    pub(crate) fn new(node: &str) -> Self {
        Self { node: node.to_owned(), open: BTreeMap::new(), last: BTreeMap::new(), dropped: 0 }
    }

    /// Goes on from what an outbox remembers. The source that saw it come has to say that it is over.
    pub(crate) fn restore(&mut self, id: &str, episode: Episode) {
        self.time(&episode, episode.began);
        let key = episode.key();
        if !episode.once {
            let holders = BTreeSet::from([episode.source.clone()]);
            self.open.entry(key).or_insert(Open { id: id.to_owned(), episode, holders, vouched: false });
        }
    }

    /// An outbox remembers that it ended.
    pub(crate) fn restore_end(&mut self, episode: &Episode) {
        self.time(episode, episode.began);
        self.open.remove(&episode.key());
    }

    /// The outbox had no place for it: as if it hadn't been seen, so that the source's next word counts again.
    pub(crate) fn forget(&mut self, id: &str) {
        self.open.retain(|_, open| open.id != id);
    }

    /// What stands, by id.
    pub(crate) fn standing(&self) -> impl Iterator<Item = (&str, &Episode)> {
        self.open.values().map(|open| (open.id.as_str(), &open.episode))
    }

    /// Whether a source has said in the life of this process that it stands.
    pub(crate) fn is_vouched(&self, key: &str, id: &str) -> bool {
        self.open.get(key).is_some_and(|open| open.id == id && open.vouched)
    }

    /// What couldn't be told since ClusterD knows no such device, or too much stood at once.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes in what a source says. `devices` are the physical ids of the node's devices.
    pub(crate) fn take_in(
        &mut self,
        source: &str,
        seen: &Seen,
        classify: &dyn Classify,
        devices: &[u32],
    ) -> Vec<Change> {
        match seen {
            Seen::Event(event) => self.event(source, event, classify, devices).into_iter().collect(),
            Seen::All { subject, standing, at } => {
                self.all(source, *subject, standing, *at, classify, devices)
            }
            Seen::Blind { .. } => Vec::new(),
        }
    }

    /// A rule raised what stands, or what it raised is over.
    pub(crate) fn raise(&mut self, of: &Episode, level: Level, because: String, at: u64) -> Option<Change> {
        let mut episode = Episode { level, because, raised: true, ..of.clone() };
        let key = episode.key();
        if self.open.contains_key(&key) {
            return None;
        }
        RULES.clone_into(&mut episode.source);
        episode.began = at;
        Some(self.begin(key, episode))
    }

    /// What a rule had raised is over.
    pub(crate) fn lower(&mut self, subject: Subject, code: &Code) -> Option<Change> {
        self.end(&key(subject, code, true), RULES)
    }

    fn event(
        &mut self,
        source: &str,
        event: &Event,
        classify: &dyn Classify,
        devices: &[u32],
    ) -> Option<Change> {
        let standing =
            Standing { code: event.code.clone(), severity: event.severity, name: event.name.clone() };
        match event.assertion {
            Assertion::Recover => self.end(&key(event.subject, &event.code, false), source),
            Assertion::Occur => self.occur(source, event.subject, &standing, event.at, classify, devices),
            Assertion::Once => {
                let mut episode =
                    self.episode(source, event.subject, &standing, event.at, classify, devices)?;
                episode.once = true;
                episode.began = self.time(&episode, event.at);
                let id = self.id(&episode);
                Some(Change { id, assertion: Assertion::Once, episode })
            }
        }
    }

    fn all(
        &mut self,
        source: &str,
        subject: Subject,
        standing: &[Standing],
        at: u64,
        classify: &dyn Classify,
        devices: &[u32],
    ) -> Vec<Change> {
        let is_over = |open: &Open| {
            open.episode.subject == subject
                && open.holders.contains(source)
                && !standing.iter().any(|fault| fault.code == open.episode.code)
        };
        let over: Vec<String> =
            self.open.iter().filter(|(_, open)| is_over(open)).map(|(key, _)| key.clone()).collect();
        let mut changes: Vec<Change> = over.iter().filter_map(|key| self.end(key, source)).collect();
        for fault in standing {
            changes.extend(self.occur(source, subject, fault, at, classify, devices));
        }
        changes
    }

    fn occur(
        &mut self,
        source: &str,
        subject: Subject,
        standing: &Standing,
        at: u64,
        classify: &dyn Classify,
        devices: &[u32],
    ) -> Option<Change> {
        let key = key(subject, &standing.code, false);
        if let Some(open) = self.open.get_mut(&key) {
            open.holders.insert(source.to_owned());
            open.vouched = true;
            return None;
        }
        let episode = self.episode(source, subject, standing, at, classify, devices)?;
        Some(self.begin(key, episode))
    }

    fn episode(
        &mut self,
        source: &str,
        subject: Subject,
        standing: &Standing,
        at: u64,
        classify: &dyn Classify,
        devices: &[u32],
    ) -> Option<Episode> {
        let concerned = match subject {
            Subject::Npu(id) => vec![id],
            Subject::Node => devices.to_vec(),
        };
        if concerned.is_empty() || concerned.iter().any(|&id| id > LAST_DEVICE) || self.open.len() >= MOST {
            self.dropped += 1;
            return None;
        }
        let (level, because) = classify.level(&standing.code, standing.severity);
        Some(Episode {
            subject,
            code: standing.code.clone(),
            level,
            because,
            severity: standing.severity,
            name: standing.name.clone(),
            devices: concerned,
            began: at,
            source: source.to_owned(),
            once: false,
            raised: false,
        })
    }

    fn begin(&mut self, key: String, mut episode: Episode) -> Change {
        episode.began = self.time(&episode, episode.began);
        let id = self.id(&episode);
        let holders = BTreeSet::from([episode.source.clone()]);
        self.open.insert(key, Open { id: id.clone(), episode: episode.clone(), holders, vouched: true });
        Change { id, assertion: Assertion::Occur, episode }
    }

    fn end(&mut self, key: &str, source: &str) -> Option<Change> {
        let open = self.open.get_mut(key)?;
        open.holders.remove(source);
        if !open.holders.is_empty() {
            return None;
        }
        let Open { id, episode, .. } = self.open.remove(key)?;
        Some(Change { id, assertion: Assertion::Recover, episode })
    }

    /// `at`, or a millisecond after the last of this subject and code.
    fn time(&mut self, episode: &Episode, at: u64) -> u64 {
        let key = &key(episode.subject, &episode.code, false);
        let at = self.last.get(key).map_or(at, |&last| at.max(last.saturating_add(1)));
        if self.last.len() >= 2 * MOST {
            // Garbage of long ago; what is open keeps its place.
            let open = &self.open;
            self.last.retain(|key, _| open.contains_key(key));
        }
        self.last.insert(key.clone(), at);
        at
    }

    fn id(&self, episode: &Episode) -> String {
        swansong_clusterd::fault_id(&self.node, episode.subject, &episode.code, episode.began)
    }
}

/// The rules on frequency and duration, as a source.
pub(crate) const RULES: &str = "rules";

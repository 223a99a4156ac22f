//! From what the sources see to what is told: which faults stand, since when, and by whose word.
//!
//! Sources are joined by level, not by edge. A fault stands while any source says so; it is over when the last one that
//! said so says otherwise. A source that falls blind takes nothing back.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use swansong_fault_model::{
    ActiveFault, Assertion, Code, FaultEvent, Level, Severity, SourceUpdate, Subject,
};

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

/// What is known of the node while a source's word is taken in.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// How faults are classified.
    pub(crate) classify: &'a dyn Classify,
    /// The physical ids of the node's devices; empty while their number isn't known.
    pub(crate) devices: &'a [u32],
}

/// A fault as a source saw it stand.
#[derive(Debug, Clone)]
struct Sighting {
    source: String,
    subject: Subject,
    standing: ActiveFault,
    /// When, milliseconds since 1970.
    at: u64,
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
    /// What stands and found no place yet, by source and key: sources may speak on change only.
    unplaced: BTreeMap<(String, String), Sighting>,
    /// What each source has said last of each subject: these stand, and nothing else.
    words: BTreeMap<(String, Subject), BTreeSet<u64>>,
    /// The sources that run; all if that isn't said.
    sources: Option<Vec<&'static str>>,
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
        Self {
            node: node.to_owned(),
            open: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            words: BTreeMap::new(),
            sources: None,
            last: BTreeMap::new(),
            dropped: 0,
        }
    }

    /// With these sources. What another has told stands by nobody's word.
    pub(crate) fn of(node: &str, sources: &[&'static str]) -> Self {
        Self { sources: Some(sources.to_vec()), ..Self::new(node) }
    }

    /// Goes on from what an outbox remembers. The source that saw it come has to say that it is over. While the disk
    /// was away it may have said so already, or the same may have come under another id: then what is remembered is over.
    pub(crate) fn restore(&mut self, id: &str, episode: Episode) -> Option<Change> {
        self.time(&episode, episode.began);
        if episode.once {
            return None;
        }
        let word = self.words.get(&(episode.source.clone(), episode.subject));
        let is_over = word.is_some_and(|codes| !codes.contains(&episode.code.number()));
        match self.open.entry(episode.key()) {
            Entry::Occupied(open) if open.get().id == id => return None,
            Entry::Vacant(place) if episode.raised || !is_over => {
                let holders = BTreeSet::from([episode.source.clone()]);
                place.insert(Open { id: id.to_owned(), episode, holders, vouched: false });
                return None;
            }
            Entry::Occupied(_) | Entry::Vacant(_) => {}
        }
        Some(Change { id: id.to_owned(), assertion: Assertion::Recover, episode })
    }

    /// An outbox remembers that it ended.
    pub(crate) fn restore_end(&mut self, id: &str, episode: &Episode) {
        self.time(episode, episode.began);
        let key = episode.key();
        if self.open.get(&key).is_some_and(|open| open.id == id) {
            self.open.remove(&key);
        }
    }

    /// What stands by the word of no source that runs: whoever said so was switched off, and never says that it is over.
    /// It isn't over by that.
    pub(crate) fn unheld(&self) -> Option<(&str, &Episode)> {
        let unheld = self.open.values().find(|open| !self.holds(open));
        unheld.map(|open| (open.id.as_str(), &open.episode))
    }

    /// Whether a source that runs says that it stands, or may say so yet.
    pub(crate) fn is_held(&self, key: &str, id: &str) -> bool {
        self.open.get(key).is_none_or(|open| open.id != id || self.holds(open))
    }

    fn holds(&self, open: &Open) -> bool {
        self.sources
            .as_ref()
            .is_none_or(|sources| open.holders.iter().any(|holder| sources.contains(&holder.as_str())))
    }

    /// The outbox had no place for it: it waits to be [placed](Self::place).
    pub(crate) fn forget(&mut self, change: &Change) {
        let key = change.episode.key();
        let Entry::Occupied(open) = self.open.entry(key.clone()) else { return };
        if open.get().id != change.id {
            return;
        }
        let Open { episode, holders, .. } = open.remove();
        // What a rule made is made again by the rule.
        if episode.raised {
            return;
        }
        let standing = ActiveFault { code: episode.code, severity: episode.severity, name: episode.name };
        for source in holders {
            let sighting =
                Sighting { source, subject: episode.subject, standing: standing.clone(), at: episode.began };
            self.wait_for_place(key.clone(), sighting);
        }
    }

    /// Tries anew what found no place before.
    pub(crate) fn place(&mut self, context: Context<'_>) -> Vec<Change> {
        let waiting = std::mem::take(&mut self.unplaced);
        waiting.into_values().filter_map(|sighting| self.occur(sighting, context)).collect()
    }

    /// Whether anything waits for a place.
    pub(crate) fn is_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// Faults are classified anew. ClusterD takes no other class for an id that it has, so where the class changes one
    /// episode ends and another begins.
    pub(crate) fn reclassify(&mut self, classify: &dyn Classify) -> Vec<Change> {
        let mut anew = Vec::new();
        for (key, open) in &mut self.open {
            let episode = &mut open.episode;
            let (level, because) = classify.level(&episode.code, episode.severity);
            // What a rule raised goes by the rule.
            if episode.raised || level == episode.level {
                continue;
            }
            let class = episode.class();
            let before = episode.clone();
            (episode.level, episode.because) = (level, because);
            if episode.class() != class {
                anew.push((key.clone(), before));
            }
        }
        let mut changes = Vec::new();
        for (key, before) in anew {
            let Some(Open { id, episode, holders, vouched }) = self.open.remove(&key) else { continue };
            changes.push(Change { id, assertion: Assertion::Recover, episode: before });
            changes.push(self.begin(key.clone(), episode));
            if let Some(open) = self.open.get_mut(&key) {
                (open.holders, open.vouched) = (holders, vouched);
            }
        }
        changes
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

    /// Takes in what a source says.
    pub(crate) fn take_in(&mut self, source: &str, seen: &SourceUpdate, context: Context<'_>) -> Vec<Change> {
        match seen {
            SourceUpdate::Event(event) => self.event(source, event, context).into_iter().collect(),
            SourceUpdate::Snapshot { subject, faults: standing, at } => {
                if !matches!(subject, Subject::Npu(id) if *id > LAST_DEVICE) {
                    let codes = standing.iter().map(|fault| fault.code.number()).collect();
                    self.words.insert((source.to_owned(), *subject), codes);
                }
                self.all(source, *subject, standing, *at, context)
            }
            SourceUpdate::Unavailable { .. } => Vec::new(),
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

    fn event(&mut self, source: &str, event: &FaultEvent, context: Context<'_>) -> Option<Change> {
        let FaultEvent { subject, at, .. } = *event;
        let standing =
            ActiveFault { code: event.code.clone(), severity: event.severity, name: event.name.clone() };
        if let Some(codes) = self.words.get_mut(&(source.to_owned(), subject)) {
            match event.assertion {
                Assertion::Occur if codes.len() < MOST => drop(codes.insert(event.code.number())),
                Assertion::Recover => drop(codes.remove(&event.code.number())),
                Assertion::Occur | Assertion::Once => {}
            }
        }
        let sighting = Sighting { source: source.to_owned(), subject, standing, at };
        match event.assertion {
            Assertion::Recover => self.end(&key(subject, &event.code, false), source),
            Assertion::Occur => self.occur(sighting, context),
            Assertion::Once => {
                let Ok(mut episode) = self.episode(&sighting, context) else {
                    self.dropped += 1;
                    return None;
                };
                episode.once = true;
                episode.began = self.time(&episode, at);
                let id = self.id(&episode);
                Some(Change { id, assertion: Assertion::Once, episode })
            }
        }
    }

    fn all(
        &mut self,
        source: &str,
        subject: Subject,
        standing: &[ActiveFault],
        at: u64,
        context: Context<'_>,
    ) -> Vec<Change> {
        let stands = |code: &Code| standing.iter().any(|fault| fault.code == *code);
        let is_over = |open: &Open| {
            open.episode.subject == subject && open.holders.contains(source) && !stands(&open.episode.code)
        };
        let over: Vec<String> =
            self.open.iter().filter(|(_, open)| is_over(open)).map(|(key, _)| key.clone()).collect();
        let mut changes: Vec<Change> = over.iter().filter_map(|key| self.end(key, source)).collect();
        self.unplaced.retain(|_, waiting| {
            waiting.source != source || waiting.subject != subject || stands(&waiting.standing.code)
        });
        for fault in standing {
            let sighting = Sighting { source: source.to_owned(), subject, standing: fault.clone(), at };
            changes.extend(self.occur(sighting, context));
        }
        changes
    }

    fn occur(&mut self, sighting: Sighting, context: Context<'_>) -> Option<Change> {
        let key = key(sighting.subject, &sighting.standing.code, false);
        if let Some(open) = self.open.get_mut(&key) {
            open.holders.insert(sighting.source);
            open.vouched = true;
            return None;
        }
        match self.episode(&sighting, context) {
            Ok(episode) => Some(self.begin(key, episode)),
            Err(NoPlace::Never) => {
                self.dropped += 1;
                None
            }
            Err(NoPlace::Yet) => {
                self.wait_for_place(key, sighting);
                None
            }
        }
    }

    fn wait_for_place(&mut self, key: String, sighting: Sighting) {
        let place = (sighting.source.clone(), key);
        if self.unplaced.contains_key(&place) {
            return;
        }
        if self.unplaced.len() >= MOST {
            self.dropped += 1;
            return;
        }
        self.unplaced.insert(place, sighting);
    }

    /// The NPUs that sources have looked at.
    fn npus(&self) -> Vec<u32> {
        let npu = |(_, subject): &(String, Subject)| match subject {
            Subject::Npu(id) => Some(*id),
            Subject::Node => None,
        };
        self.words.keys().filter_map(npu).collect::<BTreeSet<u32>>().into_iter().collect()
    }

    fn episode(&self, sighting: &Sighting, context: Context<'_>) -> Result<Episode, NoPlace> {
        let Sighting { source, subject, standing, at } = sighting;
        let devices = match subject {
            Subject::Npu(id) => vec![*id],
            Subject::Node if context.devices.is_empty() => self.npus(),
            Subject::Node => context.devices.to_vec(),
        };
        if devices.iter().any(|&id| id > LAST_DEVICE) {
            return Err(NoPlace::Never);
        }
        if devices.is_empty() || self.open.len() >= MOST {
            return Err(NoPlace::Yet);
        }
        let (level, because) = context.classify.level(&standing.code, standing.severity);
        Ok(Episode {
            subject: *subject,
            code: standing.code.clone(),
            level,
            because,
            severity: standing.severity,
            name: standing.name.clone(),
            devices,
            began: *at,
            source: source.clone(),
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
        self.unplaced.remove(&(source.to_owned(), key.to_owned()));
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
        swansong_fault_model::fault_id(&self.node, episode.subject, &episode.code, episode.began)
    }
}

/// Why what stands isn't an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoPlace {
    /// ClusterD can't know such a device.
    Never,
    /// The node's devices aren't known yet, or too much stands.
    Yet,
}

/// The rules on frequency and duration, as a source.
pub(crate) const RULES: &str = "rules";

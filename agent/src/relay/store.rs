//! The outbox, with what its entries mean.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use swansong_fault_model::Assertion;
use swansong_outbox::{Appended, Counts, Entry, Kind, Limits, Offered, OpenError, Opened, Outbox, Pending};
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use super::episode::Episode;
use super::episodes::{Change, Episodes};
use super::terms::{Head, Note, Stands, Verdict};
use swansong_runtime::supervisor::TaskError;

/// How long another process is waited for that still uses the outbox: the agent before, which is being ended.
const PATIENCE: Duration = Duration::from_secs(15);

/// An outbox whose bodies are read.
#[derive(Debug)]
pub(crate) struct Store {
    outbox: Outbox,
    /// By id: occurrence and end of an episode say the same.
    episodes: HashMap<String, Episode>,
    notes: HashMap<String, Note>,
    durable: bool,
    /// The disk was away and is there again, with what it held.
    returned: bool,
}

impl Store {
    /// Opens the outbox in `folder`.
    pub(crate) fn open(folder: &Path) -> Result<Self, OpenError> {
        let (outbox, opened) = Outbox::open(folder, Limits::default(), PATIENCE)?;
        report(&opened);
        let durable = outbox.durable();
        let mut store =
            Self { outbox, episodes: HashMap::new(), notes: HashMap::new(), durable, returned: false };
        store.read();
        Ok(store)
    }

    /// Reads what isn't read yet and forgets what is gone.
    fn read(&mut self) {
        let Self { outbox, episodes, notes, durable, returned } = self;
        // Any operation may have found the disk again.
        *returned |= outbox.durable() && !*durable;
        *durable = outbox.durable();
        let pending = outbox.pending().map(|pending| (&pending.entry.id, &pending.entry.body));
        let standing = outbox.standing().map(|standing| (&standing.id, &standing.body));
        for (id, body) in pending.chain(standing) {
            if !episodes.contains_key(id) {
                match serde_json::from_slice(body) {
                    Ok(episode) => drop(episodes.insert(id.clone(), episode)),
                    Err(error) => error!(id, %error, "an entry of the outbox can't be read; it stays there"),
                }
            }
        }
        for standing in outbox.standing() {
            // A note that can't be read is one of nothing: it only says what was seen, and is seen again.
            let note = serde_json::from_slice(&standing.note).unwrap_or_default();
            notes.insert(standing.id.clone(), note);
        }
        if episodes.len() > outbox.counts().pending + outbox.counts().standing {
            let pending: HashSet<&String> = outbox.pending().map(|pending| &pending.entry.id).collect();
            episodes.retain(|id, _| pending.contains(id) || outbox.standing_of(id).is_some());
        }
        notes.retain(|id, _| outbox.standing_of(id).is_some());
    }

    /// What the sources are joined to after a restart, and after the disk was away. The answer is what is over by that.
    pub(crate) fn restore(&self, episodes: &mut Episodes) -> Vec<Change> {
        let is_end = |pending: &&Pending| pending.entry.kind == Kind::Recover;
        let ended: HashSet<&String> =
            self.outbox.pending().filter(is_end).map(|pending| &pending.entry.id).collect();
        let standing = self.outbox.standing().map(|standing| &standing.id);
        let pending = self.outbox.pending().map(|pending| &pending.entry.id);
        let mut over = Vec::new();
        for id in standing.chain(pending) {
            let Some(episode) = self.episodes.get(id) else { continue };
            if ended.contains(id) {
                episodes.restore_end(id, episode);
            } else {
                over.extend(episodes.restore(id, episode.clone()));
            }
        }
        over
    }

    /// Whether the disk has come back since this was asked last. Then what it held is to be [restored](Self::restore).
    pub(crate) const fn take_returned(&mut self) -> bool {
        std::mem::replace(&mut self.returned, false)
    }

    /// What waits first in each key, oldest first.
    pub(crate) fn heads<'a>(&'a self, episodes: &'a Episodes) -> Vec<Head<'a>> {
        let head = |pending: &'a swansong_outbox::Pending| {
            let entry = &pending.entry;
            let over = || {
                let mut behind = self.outbox.behind(&entry.key);
                behind.find(|next| next.entry.id == entry.id && next.entry.kind == Kind::Recover)
            };
            Some(Head {
                seq: pending.seq,
                id: &entry.id,
                assertion: assertion(entry.kind),
                offered: pending.offered != Offered::Never,
                vouched: episodes.is_vouched(&entry.key, &entry.id),
                held: episodes.is_held(&entry.key, &entry.id),
                over: over().map(|next| next.seq),
                episode: self.episodes.get(&entry.id)?,
            })
        };
        self.outbox.heads().filter_map(head).collect()
    }

    /// Behind the heads: what came and went and was never sent. Only while ClusterD doesn't take the head there is any.
    pub(crate) fn passed(&self) -> Vec<u64> {
        let mut passed = Vec::new();
        for head in self.outbox.heads() {
            let mut came: Option<(&str, u64)> = None;
            for pending in self.outbox.behind(&head.entry.key) {
                match (pending.entry.kind, came) {
                    (Kind::Occur, _) if pending.offered == Offered::Never => {
                        came = Some((&pending.entry.id, pending.seq));
                    }
                    (Kind::Recover, Some((id, seq))) if id == pending.entry.id => {
                        passed.extend([seq, pending.seq]);
                    }
                    _ => {}
                }
            }
        }
        passed
    }

    /// What ClusterD has taken.
    pub(crate) fn stands<'a>(&'a self, episodes: &'a Episodes) -> Vec<Stands<'a>> {
        self.outbox
            .standing()
            .filter_map(|standing| {
                let episode = self.episodes.get(&standing.id)?;
                Some(Stands {
                    id: &standing.id,
                    vouched: episodes.is_vouched(&episode.key(), &standing.id),
                    held: episodes.is_held(&episode.key(), &standing.id),
                    episode,
                    note: self.notes.get(&standing.id)?,
                })
            })
            .collect()
    }

    /// Keeps what happened. `Full` is what found no place.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Vec<Appended> {
        let entry = |change: &Change| Entry {
            key: change.episode.key(),
            id: change.id.clone(),
            kind: kind(change.assertion),
            at: change.episode.began,
            // Strings, numbers and lists can always be written.
            body: serde_json::to_vec(&change.episode).unwrap_or_default(),
        };
        let appended = self.outbox.append_all(changes.iter().map(entry));
        self.read();
        appended
    }

    /// Forgets what never went out.
    pub(crate) fn withdraw(&mut self, places: &[u64]) {
        self.outbox.withdraw(places);
        self.read();
    }

    /// From now on these may be known to ClusterD.
    pub(crate) fn offer(&mut self, places: &[u64]) {
        self.outbox.mark_offered(places);
    }

    /// Takes for taken what is over before it was known to be taken, so that only its end is sent.
    pub(crate) fn skip(&mut self, places: &[u64], at: u64) {
        self.outbox.accept(places, at);
        self.read();
    }

    /// Keeps what an answer means. `note` is remembered of what is accepted now.
    pub(crate) fn settle(&mut self, verdicts: &[Verdict], note: impl Fn(&str) -> Note, at: u64) {
        for verdict in verdicts {
            match verdict {
                Verdict::Accept(seq) => {
                    let id = self.outbox.pending().find(|pending| pending.seq == *seq);
                    let occurs = id.filter(|pending| pending.entry.kind == Kind::Occur);
                    let id = occurs.map(|pending| pending.entry.id.clone());
                    self.outbox.accept(&[*seq], at);
                    if let Some(id) = id {
                        self.write(&id, &note(&id));
                    }
                }
                Verdict::Refuse(seq, why) => drop(self.outbox.refuse(*seq, why, at)),
                Verdict::Confirmed(id) => self.change(id, |note| note.confirmed = true),
                Verdict::Recalled(id) => self.change(id, |note| note.recalled = true),
            }
        }
        self.read();
    }

    /// Changes what is remembered of a standing fault.
    pub(crate) fn change(&mut self, id: &str, change: impl FnOnce(&mut Note)) {
        if let Some(mut note) = self.notes.get(id).cloned() {
            change(&mut note);
            self.write(id, &note);
        }
    }

    fn write(&mut self, id: &str, note: &Note) {
        if self.outbox.note(id, &serde_json::to_vec(note).unwrap_or_default()) {
            self.notes.insert(id.to_owned(), note.clone());
        }
    }

    /// Tries the disk again.
    pub(crate) fn retry(&mut self) {
        if !self.outbox.durable() && self.outbox.retry() {
            info!("the outbox is on disk again");
        }
        self.read();
    }

    pub(crate) fn counts(&self) -> Counts {
        self.outbox.counts()
    }

    /// Why it is in memory only.
    pub(crate) fn problem(&self) -> Option<&str> {
        if self.outbox.durable() {
            None
        } else {
            Some(self.outbox.problem().unwrap_or("the disk doesn't take it"))
        }
    }

    /// The last that was refused for good.
    pub(crate) fn last_refused(&self) -> Option<(&str, &str)> {
        let last = self.outbox.dead_letters().last();
        last.map(|letter| (letter.entry.id.as_str(), letter.why.as_str()))
    }
}

/// Works with the store where waiting for a disk keeps nobody else.
pub(crate) async fn with<R: Send + 'static>(
    mut store: Store,
    work: impl FnOnce(&mut Store) -> R + Send + 'static,
) -> Result<(Store, R), TaskError> {
    spawn_blocking(move || {
        let result = work(&mut store);
        (store, result)
    })
    .await
    .map_err(|panic| TaskError(format!("the outbox: {panic}")))
}

fn report(opened: &Opened) {
    if let Some(aside) = &opened.set_aside {
        warn!(moved_to = %aside.moved_to.display(), why = aside.why, "the outbox couldn't be read; it was set aside");
    }
}

const fn kind(assertion: Assertion) -> Kind {
    match assertion {
        Assertion::Occur => Kind::Occur,
        Assertion::Recover => Kind::Recover,
        Assertion::Once => Kind::Once,
    }
}

const fn assertion(kind: Kind) -> Assertion {
    match kind {
        Kind::Occur => Assertion::Occur,
        Kind::Recover => Assertion::Recover,
        Kind::Once => Assertion::Once,
    }
}

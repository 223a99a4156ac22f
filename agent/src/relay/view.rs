//! What `/status` shows of faults.

use std::time::Duration;

use serde::Serialize;

use super::condition::Told;
use super::episode::Episode;
use super::episodes::Episodes;
use super::plan::Relay;
use super::store::Store;
use super::terms::Note;
use crate::finding::Ready;

/// The whole picture.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    condition: Option<Condition>,
    /// Why the outbox is in memory only.
    outbox_problem: Option<String>,
    /// What the sources see now.
    standing: Vec<Standing>,
    /// What waits to be told, oldest first.
    waiting: Vec<Waiting>,
    /// What ClusterD has.
    told: Vec<Held>,
    /// What keeps ClusterD from being told, and for how many seconds.
    trouble: Option<(String, u64)>,
}

#[derive(Debug, Serialize)]
struct Condition {
    status: Ready,
    reason: &'static str,
    message: String,
}

#[derive(Debug, Serialize)]
struct Standing {
    id: String,
    #[serde(flatten)]
    episode: Episode,
}

#[derive(Debug, Serialize)]
struct Waiting {
    id: String,
    assertion: swansong_fault_model::Assertion,
    offered: bool,
}

/// A fault that ClusterD has, and what is known of it.
#[derive(Debug, Serialize)]
struct Held {
    id: String,
    #[serde(flatten)]
    note: Note,
}

impl View {
    pub(super) fn of(
        told: Option<&Told>,
        episodes: &Episodes,
        store: &Store,
        relay: &Relay,
        now: Duration,
    ) -> Self {
        let standing = episodes.standing();
        let heads = store.heads(episodes);
        let stands = store.stands(episodes);
        Self {
            condition: told.map(|told| Condition {
                status: told.status,
                reason: told.reason,
                message: told.message.clone(),
            }),
            outbox_problem: store.problem().map(str::to_owned),
            standing: standing
                .map(|(id, episode)| Standing { id: id.to_owned(), episode: episode.clone() })
                .collect(),
            waiting: heads
                .iter()
                .map(|head| Waiting {
                    id: head.id.to_owned(),
                    assertion: head.assertion,
                    offered: head.offered,
                })
                .collect(),
            told: stands
                .iter()
                .map(|stands| Held { id: stands.id.to_owned(), note: stands.note.clone() })
                .collect(),
            trouble: relay
                .trouble()
                .map(|trouble| (trouble.message.clone(), now.saturating_sub(trouble.since).as_secs())),
        }
    }
}

//! The Node's condition `FaultsRelayed`: whether what happens to this node's devices reaches ClusterD.

use std::time::Duration;

use super::pace::{Trouble, What};
use crate::finding::Ready;

/// How long ClusterD may refuse or be silent before it is told: a restart takes less.
const PATIENCE: Duration = Duration::from_mins(3);
/// How long a fault may be held back before that is told.
const HELD: Duration = Duration::from_secs(30);

/// What is known when the condition is decided.
#[derive(Debug, Default)]
pub(crate) struct Known<'a> {
    pub(crate) now: Duration,
    pub(crate) trouble: Option<&'a Trouble>,
    /// The first objection, and since when something has been held back.
    pub(crate) objection: Option<(Duration, String)>,
    /// Why the outbox is in memory only.
    pub(crate) not_durable: Option<&'a str>,
    /// What found no place in the outbox.
    pub(crate) full: bool,
    /// Whether a fault stands that can't be told as it is.
    pub(crate) unplaced: bool,
    /// An id that ClusterD took and doesn't show.
    pub(crate) unheard: Option<&'a str>,
    /// The last that ClusterD refused for good, and why.
    pub(crate) refused: Option<(&'a str, &'a str)>,
    /// Why ClusterD drops all faults of this node: a reason, and words.
    pub(crate) unpublished: Option<(&'static str, String)>,
    /// The sources that see nothing now, and why.
    pub(crate) blind: Option<String>,
    /// How much waits.
    pub(crate) waiting: usize,
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) status: Ready,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Decides. Of several troubles the one that keeps most from arriving is told.
pub(crate) fn decide(known: &Known<'_>) -> Told {
    let told = |status, reason, message: String| Told { status, reason, message };
    if let Some(trouble) = known.trouble.filter(|t| known.now.saturating_sub(t.since) >= PATIENCE) {
        let reason = match trouble.what {
            What::Refused => "FaultRelayRefused",
            What::Unanswered => "ClusterdSilent",
            What::Odd => "ClusterdOdd",
        };
        let minutes = known.now.saturating_sub(trouble.since).as_secs() / 60;
        // In whole steps, so that the Node isn't written every minute.
        let since = if minutes < 10 { "some minutes".to_owned() } else { "more than ten minutes".to_owned() };
        let waiting = known.waiting;
        return told(Ready::False, reason, format!("for {since}: {}; waiting: {waiting}", trouble.message));
    }
    if let Some((_, objection)) =
        known.objection.as_ref().filter(|(since, _)| known.now.saturating_sub(*since) >= HELD)
    {
        return told(
            Ready::False,
            "FaultHeldBack",
            format!("a fault isn't told, since nothing would be saved: {objection}"),
        );
    }
    if known.full {
        return told(
            Ready::False,
            "OutboxFull",
            "more faults stand than can be kept; the rest is told when there is room".to_owned(),
        );
    }
    if known.unplaced {
        return told(
            Ready::False,
            "DevicesUnknown",
            "a fault of the node as a whole isn't told, since its devices aren't known; set `npus` in the \
             agent's configuration"
                .to_owned(),
        );
    }
    if let Some(id) = known.unheard {
        return told(
            Ready::False,
            "FaultNotConfirmed",
            format!("ClusterD took {id} several times and doesn't show it; its log has the reason"),
        );
    }
    if let Some((id, why)) = known.refused {
        return told(Ready::False, "FaultRefused", format!("ClusterD refused {id} for good: {why}"));
    }
    if let Some((reason, why)) = &known.unpublished {
        let message = format!("ClusterD drops all faults of this node: the device plugin's ConfigMap {why}");
        return told(Ready::False, reason, message);
    }
    if let Some(why) = known.not_durable {
        return told(Ready::False, "OutboxNotDurable", format!("what waits is in memory only: {why}"));
    }
    if let Some(blind) = &known.blind {
        return told(Ready::Unknown, "SourceBlind", blind.clone());
    }
    told(
        Ready::True,
        "AllRelayed",
        "nothing is known that keeps faults of this node from ClusterD".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(known: &Known<'_>) -> &'static str {
        decide(known).reason
    }

    #[test]
    fn troubles_that_pass_arent_told() {
        let trouble =
            Trouble { since: Duration::from_secs(10), what: What::Refused, message: "410".to_owned() };
        let known =
            |now| Known { now: Duration::from_secs(now), trouble: Some(&trouble), ..Known::default() };
        assert_eq!(reason(&known(100)), "AllRelayed");
        assert_eq!(reason(&known(190)), "FaultRelayRefused");
        let objection = (Duration::ZERO, "no ConfigMap".to_owned());
        let held = |now| Known {
            now: Duration::from_secs(now),
            objection: Some(objection.clone()),
            ..Known::default()
        };
        assert_eq!((reason(&held(29)), reason(&held(30))), ("AllRelayed", "FaultHeldBack"));
    }

    #[test]
    fn each_trouble_has_its_reason() {
        for (known, expected) in [
            (Known { full: true, unplaced: true, ..Known::default() }, "OutboxFull"),
            (Known { unplaced: true, ..Known::default() }, "DevicesUnknown"),
            (Known { unheard: Some("id"), ..Known::default() }, "FaultNotConfirmed"),
            (Known { refused: Some(("id", "why")), ..Known::default() }, "FaultRefused"),
            (
                Known {
                    unpublished: Some(("DevicePluginMissing", "is missing".to_owned())),
                    ..Known::default()
                },
                "DevicePluginMissing",
            ),
            (Known { not_durable: Some("read-only"), ..Known::default() }, "OutboxNotDurable"),
            (Known { blind: Some("dcmi".to_owned()), ..Known::default() }, "SourceBlind"),
        ] {
            let told = decide(&known);
            assert_eq!(told.reason, expected);
            assert_ne!(told.status, Ready::True);
        }
    }

    #[test]
    fn the_words_dont_change_every_minute() {
        let trouble = Trouble { since: Duration::ZERO, what: What::Unanswered, message: "silent".to_owned() };
        let at = |minutes| {
            decide(&Known { now: Duration::from_mins(minutes), trouble: Some(&trouble), ..Known::default() })
                .message
        };
        assert_eq!((at(4), at(11)), (at(9), at(600)));
    }
}

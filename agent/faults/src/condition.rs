//! The Node condition `FaultsRelayed`: whether the faults of this node's devices reach ClusterD.

use std::time::Duration;

use serde::Serialize;
use swansong_fault_model::{BatchError, Trouble, Untracked};

pub const CONDITION: &str = "FaultsRelayed";

/// How long ClusterD may fail before the condition shows it: a restart takes less.
const SEND_GRACE: Duration = Duration::from_mins(3);
/// How long an objection may block a fault before the condition shows it.
const BLOCKED_GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// The condition to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConditionState {
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

/// What the condition depends on.
#[derive(Debug, Default)]
pub(crate) struct Situation<'a> {
    pub(crate) now: Duration,
    pub(crate) trouble: Option<&'a Trouble>,
    /// The first objection, and since when it holds a fault back.
    pub(crate) objection: Option<(Duration, String)>,
    pub(crate) untracked: Option<Untracked>,
    /// The id of a fault that ClusterD accepted and doesn't show.
    pub(crate) unconfirmed: Option<&'a str>,
    /// An id that ClusterD refused, and why.
    pub(crate) refused: Option<(&'a str, &'a str)>,
    /// The reason and the cause for which ClusterD drops all faults of this node.
    pub(crate) unpublished: Option<(&'static str, String)>,
    /// Why the state is kept in memory only.
    pub(crate) state_problem: Option<&'a str>,
    /// What a source can't inspect.
    pub(crate) unavailable: Option<String>,
    /// How many faults wait.
    pub(crate) waiting: usize,
}

/// The condition of a situation. Of several problems it shows the one that affects most faults.
pub(crate) fn decide(situation: &Situation<'_>) -> ConditionState {
    let mut state = first_problem(situation);
    if let Some(problem) = situation.state_problem {
        match state.reason {
            "AllRelayed" | "SourceUnavailable" => {
                state = failed("StateNotPersisted", format!("the faults are kept in memory only: {problem}"));
            }
            // Another problem must not hide it.
            _ => state.message = format!("{}; the faults are kept in memory only: {problem}", state.message),
        }
    }
    state
}

fn first_problem(situation: &Situation<'_>) -> ConditionState {
    let Situation { now, waiting, .. } = *situation;
    let lasts = |since: Duration, grace: Duration| now.saturating_sub(since) >= grace;
    if let Some(trouble) = situation.trouble.filter(|trouble| lasts(trouble.since, SEND_GRACE)) {
        let reason = match trouble.error {
            BatchError::Limited(_) => "FaultRelayRefused",
            BatchError::Unavailable { .. } => "ClusterdUnavailable",
            BatchError::Invalid(_) | BatchError::Unexpected(_) => "ClusterdUnexpectedResponse",
        };
        // In coarse steps, so that the Node isn't written every minute.
        let is_long = lasts(trouble.since, Duration::from_mins(10));
        let duration = if is_long { "more than ten minutes" } else { "some minutes" };
        return failed(reason, format!("for {duration}: {}; waiting: {waiting}", trouble.error.message()));
    }
    if let Some((_, objection)) =
        situation.objection.as_ref().filter(|(since, _)| lasts(*since, BLOCKED_GRACE))
    {
        let message = format!("a fault isn't sent, since no checkpoint would be saved: {objection}");
        return failed("FaultBlocked", message);
    }
    match situation.untracked {
        Some(Untracked::Full) => {
            let message = "more faults are active than are followed; the others follow when some have ended";
            return failed("TooManyFaults", message.to_owned());
        }
        Some(Untracked::DevicesUnknown) => {
            let message = "a fault of the node as a whole isn't sent, since the node's devices aren't known; set \
                           `npus` in the agent's configuration";
            return failed("DevicesUnknown", message.to_owned());
        }
        None => {}
    }
    if let Some(id) = situation.unconfirmed {
        let message =
            format!("ClusterD accepted {id} several times and doesn't show it; its log has the reason");
        return failed("FaultNotConfirmed", message);
    }
    if let Some((id, why)) = situation.refused {
        return failed("FaultRefused", format!("ClusterD refused {id}: {why}"));
    }
    if let Some((reason, why)) = &situation.unpublished {
        let message = format!("ClusterD drops all faults of this node: the device plugin's ConfigMap {why}");
        return failed(reason, message);
    }
    if let Some(message) = &situation.unavailable {
        let (status, reason) = (ConditionStatus::Unknown, "SourceUnavailable");
        return ConditionState { status, reason, message: message.clone() };
    }
    let message = "no problem is known that keeps faults of this node from ClusterD".to_owned();
    ConditionState { status: ConditionStatus::True, reason: "AllRelayed", message }
}

fn failed(reason: &'static str, message: String) -> ConditionState {
    ConditionState { status: ConditionStatus::False, reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(situation: &Situation<'_>) -> &'static str {
        decide(situation).reason
    }

    fn trouble(error: BatchError) -> Trouble {
        Trouble { since: Duration::from_secs(10), error }
    }

    #[test]
    fn short_problems_are_not_shown() {
        let trouble = trouble(BatchError::Limited("410".to_owned()));
        let at = |now| Situation {
            now: Duration::from_secs(now),
            trouble: Some(&trouble),
            ..Situation::default()
        };
        assert_eq!((reason(&at(100)), reason(&at(190))), ("AllRelayed", "FaultRelayRefused"));
        let held = |now| Situation {
            now: Duration::from_secs(now),
            objection: Some((Duration::ZERO, "no ConfigMap".to_owned())),
            ..Situation::default()
        };
        assert_eq!((reason(&held(29)), reason(&held(30))), ("AllRelayed", "FaultBlocked"));
    }

    #[test]
    fn each_problem_has_its_reason() {
        let missing = ("DevicePluginMissing", "is missing".to_owned());
        for (situation, expected) in [
            (Situation { untracked: Some(Untracked::Full), ..Situation::default() }, "TooManyFaults"),
            (
                Situation { untracked: Some(Untracked::DevicesUnknown), ..Situation::default() },
                "DevicesUnknown",
            ),
            (Situation { unconfirmed: Some("id"), ..Situation::default() }, "FaultNotConfirmed"),
            (Situation { refused: Some(("id", "why")), ..Situation::default() }, "FaultRefused"),
            (Situation { unpublished: Some(missing), ..Situation::default() }, "DevicePluginMissing"),
            (Situation { state_problem: Some("read-only"), ..Situation::default() }, "StateNotPersisted"),
            (Situation { unavailable: Some("dcmi".to_owned()), ..Situation::default() }, "SourceUnavailable"),
        ] {
            let state = decide(&situation);
            assert_eq!(state.reason, expected);
            assert_ne!(state.status, ConditionStatus::True);
        }
    }

    #[test]
    fn another_problem_does_not_hide_that_the_state_is_in_memory_only() {
        let missing = ("DevicePluginMissing", "is missing".to_owned());
        let situation = Situation {
            unpublished: Some(missing),
            state_problem: Some("the disk is full"),
            ..Situation::default()
        };
        let state = decide(&situation);
        assert_eq!(state.reason, "DevicePluginMissing");
        assert!(state.message.contains("in memory only: the disk is full"), "{}", state.message);
    }

    #[test]
    fn message_does_not_change_every_minute() {
        let trouble = trouble(BatchError::Unavailable { why: "refused".to_owned(), retry_after: None });
        let at = |minutes| {
            let now = Duration::from_mins(minutes);
            decide(&Situation { now, trouble: Some(&trouble), ..Situation::default() }).message
        };
        assert_eq!((at(4), at(11)), (at(9), at(600)));
    }
}

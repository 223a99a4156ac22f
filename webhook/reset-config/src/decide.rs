//! What to do about a job's ConfigMap.

use std::fmt;
use std::time::Duration;

use swansong_api::strategy::Strategies;
use swansong_clusterd::reset_config::{Unusable, name_for};

use crate::config_map::Found;
use crate::job::Job;

/// The longest name of a ConfigMap (a DNS subdomain, RFC 1123).
const MAX_NAME_LENGTH: usize = 253;

/// Settings of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Values of `recover-strategy` that require the ConfigMap.
    pub triggers: Vec<String>,
    /// How long a ConfigMap must have been missing before the controller creates it, so that one that a user creates
    /// or replaces together with the job takes precedence.
    pub grace_period: Duration,
}

/// The state of a job's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceState {
    /// The namespace is being deleted.
    pub is_terminating: bool,
    /// The namespace has the label `swansong.dev/inject: "false"`.
    pub is_opted_out: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Create the ConfigMap.
    Create,
    /// Nothing: ClusterD can use the existing one.
    Keep,
    /// Wait until the existing one is deleted.
    AwaitDeletion,
    /// Nothing: the job needs none.
    Skip(SkipReason),
    /// Report a problem that a user has to solve.
    Report(Problem),
}

/// Why a job needs no ConfigMap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// The job asks for no strategy that requires it.
    NotRequested,
    /// The job has the annotation `swansong.dev/inject: "false"`.
    JobOptedOut,
    /// The job is being deleted. A ConfigMap created now might outlive it.
    JobTerminating,
    JobFinished,
    /// The namespace has the label `swansong.dev/inject: "false"`.
    NamespaceOptedOut,
    /// The namespace is being deleted.
    NamespaceTerminating,
}

/// A problem that the controller doesn't solve. `Display` is the message of the Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// ClusterD can't use the existing ConfigMap. The controller doesn't overwrite it, since ClusterD, the device plugin
    /// or a user may be in the middle of writing it.
    Unusable {
        /// Name of the ConfigMap.
        name: String,
        /// Why ClusterD can't use it.
        why: Unusable,
    },
    /// The name that ClusterD requires is too long for a ConfigMap.
    NameTooLong {
        /// Length of the job's name.
        length: usize,
        /// The longest possible name of a job.
        max: usize,
    },
}

impl Problem {
    /// The reason of the Event.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "ResetConfigUnusable",
            Self::NameTooLong { .. } => "ResetConfigNameTooLong",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable { name, why } => write!(
                f,
                "ConfigMap {name} {why}. At a fault ClusterD would end ranks and save nothing. Correct it, or delete it: \
                 Swansong then creates a new one"
            ),
            Self::NameTooLong { length, max } => write!(
                f,
                "the job's name has {length} characters, so the ConfigMap that ClusterD requires can't exist: at a fault \
                 ClusterD would end ranks and save nothing. Give the job a name of at most {max} characters"
            ),
        }
    }
}

/// Why the job itself needs no ConfigMap, if so.
pub fn skip_reason(job: &Job<'_>, triggers: &[String]) -> Option<SkipReason> {
    let is_requested = job.strategy().is_some_and(|text| Strategies::parse(text).triggered_by(triggers));
    if !is_requested {
        Some(SkipReason::NotRequested)
    } else if job.is_opted_out() {
        Some(SkipReason::JobOptedOut)
    } else if job.is_terminating() {
        Some(SkipReason::JobTerminating)
    } else if job.is_finished {
        Some(SkipReason::JobFinished)
    } else {
        None
    }
}

/// What to do about the ConfigMap that was found for a job.
pub fn decide(job: &Job<'_>, triggers: &[String], namespace: NamespaceState, found: Found) -> Decision {
    if let Some(reason) = skip_reason(job, triggers) {
        return Decision::Skip(reason);
    }
    if namespace.is_terminating {
        return Decision::Skip(SkipReason::NamespaceTerminating);
    }
    if namespace.is_opted_out {
        return Decision::Skip(SkipReason::NamespaceOptedOut);
    }
    let name = name_for(job.name());
    match found {
        Found::Usable => Decision::Keep,
        Found::Terminating => Decision::AwaitDeletion,
        Found::Unusable(why) => Decision::Report(Problem::Unusable { name, why }),
        Found::Missing if name.len() > MAX_NAME_LENGTH => {
            let length = job.name().len();
            Decision::Report(Problem::NameTooLong { length, max: MAX_NAME_LENGTH + length - name.len() })
        }
        Found::Missing => Decision::Create,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::metadata::ObjectMeta;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::job::JobKind;

    const fn job(metadata: &ObjectMeta) -> Job<'_> {
        Job { kind: JobKind::AscendJob, metadata, is_finished: false }
    }

    fn metadata(strategy: Option<&str>, is_opted_out: bool, is_terminating: bool) -> ObjectMeta {
        let inject = if is_opted_out { "false" } else { "true" };
        let deletion = is_terminating.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({
            "name": "j", "uid": "u", "deletionTimestamp": deletion,
            "annotations": {"recover-strategy": strategy.unwrap_or_default(), "swansong.dev/inject": inject},
        });
        serde_json::from_value(metadata).expect("metadata")
    }

    fn triggers() -> Vec<String> {
        vec!["dump".to_owned()]
    }

    #[test]
    fn each_state_has_its_decision() {
        let requested = metadata(Some("retry, dump"), false, false);
        let job = self::job;
        let active = NamespaceState::default();
        let unusable = || Found::Unusable(Unusable::Empty);
        let report =
            Decision::Report(Problem::Unusable { name: "reset-config-j".to_owned(), why: Unusable::Empty });
        let decide =
            |metadata: &ObjectMeta, namespace, found| decide(&job(metadata), &triggers(), namespace, found);
        assert_eq!(decide(&requested, active, Found::Missing), Decision::Create);
        assert_eq!(decide(&requested, active, Found::Usable), Decision::Keep);
        assert_eq!(decide(&requested, active, Found::Terminating), Decision::AwaitDeletion);
        assert_eq!(decide(&requested, active, unusable()), report);
        let terminating = NamespaceState { is_terminating: true, is_opted_out: false };
        let opted_out = NamespaceState { is_terminating: false, is_opted_out: true };
        for (metadata, namespace, reason) in [
            (&metadata(None, false, false), active, SkipReason::NotRequested),
            (&metadata(Some("recover,Dump"), false, false), active, SkipReason::NotRequested),
            (&metadata(Some("dump"), true, false), active, SkipReason::JobOptedOut),
            (&metadata(Some("dump"), false, true), active, SkipReason::JobTerminating),
            (&requested, terminating, SkipReason::NamespaceTerminating),
            (&requested, opted_out, SkipReason::NamespaceOptedOut),
        ] {
            for found in [Found::Missing, unusable()] {
                assert_eq!(decide(metadata, namespace, found), Decision::Skip(reason));
            }
        }
        let finished = Job { is_finished: true, ..job(&requested) };
        let skipped = Decision::Skip(SkipReason::JobFinished);
        assert_eq!(super::decide(&finished, &triggers(), active, Found::Missing), skipped);
    }

    #[test]
    fn other_strategies_can_be_triggers() {
        let metadata = metadata(Some("exit"), false, false);
        let triggers = ["exit".to_owned(), "dump".to_owned()];
        let decision = decide(&job(&metadata), &triggers, NamespaceState::default(), Found::Missing);
        assert_eq!(decision, Decision::Create);
    }

    #[test]
    fn name_that_is_too_long_is_reported() {
        let decide = |length| {
            let metadata =
                ObjectMeta { name: Some("a".repeat(length)), ..metadata(Some("dump"), false, false) };
            decide(&job(&metadata), &triggers(), NamespaceState::default(), Found::Missing)
        };
        assert_eq!(decide(240), Decision::Create);
        assert_eq!(decide(241), Decision::Report(Problem::NameTooLong { length: 241, max: 240 }));
    }

    fn found() -> impl Strategy<Value = Found> {
        prop_oneof![
            Just(Found::Usable),
            Just(Found::Missing),
            Just(Found::Terminating),
            Just(Found::Unusable(Unusable::NoResetJson)),
        ]
    }

    proptest! {
        #[test]
        fn only_what_is_missing_and_needed_is_created(
            is_terminating: bool, is_opted_out: bool, is_finished: bool,
            namespace_terminating: bool, namespace_opted_out: bool,
            strategy in proptest::option::of("[a-z, ]{0,12}|dump|dump,exit"), found in found(),
        ) {
            let metadata = metadata(strategy.as_deref(), is_opted_out, is_terminating);
            let job = Job { is_finished, ..job(&metadata) };
            let is_missing = found == Found::Missing;
            let namespace =
                NamespaceState { is_terminating: namespace_terminating, is_opted_out: namespace_opted_out };
            if decide(&job, &triggers(), namespace, found) == Decision::Create {
                prop_assert!(is_missing && !is_terminating && !is_opted_out && !is_finished);
                prop_assert!(!namespace_terminating && !namespace_opted_out);
                prop_assert!(strategy.expect("a strategy").contains("dump"));
            }
        }
    }
}

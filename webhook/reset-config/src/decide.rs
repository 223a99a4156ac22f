//! What to do about a job's ConfigMap.

use std::time::Duration;

use swansong_api::annotations::{INJECT, RECOVER_STRATEGY, is_opted_out};
use swansong_api::strategy::Strategies;
use swansong_clusterd::reset_config::name_for;

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

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Create the ConfigMap.
    Create,
    /// Nothing: ClusterD can use the existing one.
    Keep,
    /// Wait until the existing one is deleted.
    AwaitDeletion,
    /// Nothing: the job needs none. Only a change of the job changes that.
    SkipJob,
    /// Nothing: the namespace is being deleted or doesn't take part.
    SkipNamespace,
    /// Publish an Event about a problem that a user has to solve.
    Report {
        /// Reason of the Event.
        reason: &'static str,
        /// Message of the Event.
        message: String,
    },
}

/// Whether a job needs a ConfigMap: it asks for a strategy that requires one, isn't excluded by the annotation
/// `swansong.dev/inject`, isn't being deleted, since the ConfigMap might outlive it, and hasn't finished.
pub fn needs_config_map(job: &Job<'_>, triggers: &[String]) -> bool {
    let is_requested = job.annotation(RECOVER_STRATEGY);
    is_requested.is_some_and(|text| Strategies::parse(text).triggered_by(triggers))
        && !job.annotation(INJECT).is_some_and(is_opted_out)
        && job.metadata.deletion_timestamp.is_none()
        && !job.is_finished
}

/// What to do about the ConfigMap that was found for a job. `takes_part` says whether the job's namespace does.
pub fn decide(job: &Job<'_>, triggers: &[String], takes_part: bool, found: Found) -> Decision {
    if !needs_config_map(job, triggers) {
        return Decision::SkipJob;
    }
    if !takes_part {
        return Decision::SkipNamespace;
    }
    let name = name_for(job.name());
    match found {
        Found::Usable => Decision::Keep,
        Found::Terminating => Decision::AwaitDeletion,
        // It isn't overwritten, since ClusterD, the device plugin or a user may be in the middle of writing it.
        Found::Unusable(why) => Decision::Report {
            reason: "ResetConfigUnusable",
            message: format!(
                "ConfigMap {name} {why}. At a fault ClusterD would end ranks and save nothing. Correct it, or delete it: \
                 Swansong then creates a new one"
            ),
        },
        Found::Missing if name.len() > MAX_NAME_LENGTH => {
            let length = job.name().len();
            let max = MAX_NAME_LENGTH + length - name.len();
            Decision::Report {
                reason: "ResetConfigNameTooLong",
                message: format!(
                    "the job's name has {length} characters, so the ConfigMap that ClusterD requires can't exist: at a \
                     fault ClusterD would end ranks and save nothing. Give the job a name of at most {max} characters"
                ),
            }
        }
        Found::Missing => Decision::Create,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::metadata::ObjectMeta;
    use proptest::prelude::*;
    use serde_json::json;
    use swansong_clusterd::reset_config::Unusable;

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
    fn each_spelling_of_an_opt_out_counts() {
        for (value, needed) in
            [("False", false), ("no", false), (" disabled ", false), ("yes", true), ("maybe", true)]
        {
            let mut metadata = metadata(Some("dump"), false, false);
            metadata
                .annotations
                .get_or_insert_default()
                .insert("swansong.dev/inject".to_owned(), value.to_owned());
            assert_eq!(needs_config_map(&job(&metadata), &triggers()), needed, "{value}");
        }
    }

    #[test]
    fn each_state_has_its_decision() {
        let requested = metadata(Some("retry, dump"), false, false);
        let job = self::job;
        let unusable = || Found::Unusable(Unusable::Empty);
        let decide =
            |metadata: &ObjectMeta, takes_part, found| decide(&job(metadata), &triggers(), takes_part, found);
        assert_eq!(decide(&requested, true, Found::Missing), Decision::Create);
        assert_eq!(decide(&requested, true, Found::Usable), Decision::Keep);
        assert_eq!(decide(&requested, true, Found::Terminating), Decision::AwaitDeletion);
        let Decision::Report { reason, message } = decide(&requested, true, unusable()) else {
            panic!("not reported");
        };
        assert_eq!(reason, "ResetConfigUnusable");
        assert!(message.starts_with("ConfigMap reset-config-j has an empty reset.json. "), "{message}");
        for found in [Found::Missing, unusable()] {
            for metadata in [
                &metadata(None, false, false),
                &metadata(Some("recover,Dump"), false, false),
                &metadata(Some("dump"), true, false),
                &metadata(Some("dump"), false, true),
            ] {
                assert_eq!(decide(metadata, true, found.clone()), Decision::SkipJob);
            }
            assert_eq!(decide(&requested, false, found), Decision::SkipNamespace);
        }
        let finished = Job { is_finished: true, ..job(&requested) };
        assert_eq!(super::decide(&finished, &triggers(), true, Found::Missing), Decision::SkipJob);
    }

    #[test]
    fn other_strategies_can_be_triggers() {
        let metadata = metadata(Some("exit"), false, false);
        let triggers = ["exit".to_owned(), "dump".to_owned()];
        let decision = decide(&job(&metadata), &triggers, true, Found::Missing);
        assert_eq!(decision, Decision::Create);
    }

    #[test]
    fn name_that_is_too_long_is_reported() {
        let decide = |length| {
            let metadata =
                ObjectMeta { name: Some("a".repeat(length)), ..metadata(Some("dump"), false, false) };
            decide(&job(&metadata), &triggers(), true, Found::Missing)
        };
        assert_eq!(decide(240), Decision::Create);
        let Decision::Report { reason, message } = decide(241) else { panic!("not reported") };
        assert_eq!(reason, "ResetConfigNameTooLong");
        assert!(message.starts_with("the job's name has 241 characters"), "{message}");
        assert!(message.ends_with("a name of at most 240 characters"), "{message}");
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
            takes_part: bool,
            strategy in proptest::option::of("[a-z, ]{0,12}|dump|dump,exit"), found in found(),
        ) {
            let metadata = metadata(strategy.as_deref(), is_opted_out, is_terminating);
            let job = Job { is_finished, ..job(&metadata) };
            let is_missing = found == Found::Missing;
            if decide(&job, &triggers(), takes_part, found) == Decision::Create {
                prop_assert!(is_missing && !is_terminating && !is_opted_out && !is_finished);
                prop_assert!(takes_part);
                prop_assert!(strategy.expect("a strategy").contains("dump"));
            }
        }
    }
}

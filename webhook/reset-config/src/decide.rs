//! What is to be done about a job's ConfigMap.

use std::fmt;

use swansong_api::strategy::Strategies;
use swansong_clusterd::reset_config::{Unusable, name_for};

use crate::config_map::Found;
use crate::job::Job;

/// The longest name of a ConfigMap (a DNS subdomain, RFC 1123).
const LONGEST_NAME: usize = 253;

/// What matters of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespace {
    /// Whether it is being deleted, with all that is in it.
    pub terminating: bool,
    /// Whether it has the label `swansong.dev/inject: "false"`.
    pub opted_out: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Create it.
    Create,
    /// Nothing.
    Nothing(Because),
    /// Nothing that the guard may do: people are told.
    Complain(Complaint),
}

/// Why nothing is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// There is one that ClusterD can use.
    Usable,
    /// The job doesn't ask for a strategy that needs it.
    NotAsked,
    /// The job has the annotation `swansong.dev/inject: "false"`.
    JobOptedOut,
    /// The job is being deleted: what is created now might outlive it.
    JobEnds,
    /// The job has come to its end.
    Finished,
    /// The namespace has the label `swansong.dev/inject: "false"`.
    NamespaceOptedOut,
    /// The namespace is being deleted.
    NamespaceEnds,
    /// There is one that is on its way out; when it is gone it is time to create one.
    Leaving,
}

/// What people are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    /// The existing one is of no use to ClusterD. It isn't the guard's to overwrite: it may be in the middle of
    /// something, or somebody's mistake that he can mend.
    Unusable {
        /// Its name.
        name: String,
        /// Why.
        why: Unusable,
    },
    /// No ConfigMap can have the name that ClusterD looks for.
    NameTooLong {
        /// How long the job's name may be.
        longest: usize,
        /// How long it is.
        length: usize,
    },
}

impl Complaint {
    /// The reason of the Event.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "ResetConfigUnusable",
            Self::NameTooLong { .. } => "ResetConfigImpossible",
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable { name, why } => write!(
                f,
                "ConfigMap {name} {why}. At a fault ClusterD would end ranks and save nothing. Mend it, or delete it: \
                 Swansong then makes a new one"
            ),
            Self::NameTooLong { longest, length } => write!(
                f,
                "the job's name has {length} characters, so there can't be the ConfigMap that ClusterD looks for: at a \
                 fault it would end ranks and save nothing. Give the job a name of at most {longest} characters"
            ),
        }
    }
}

/// Whether a job needs the ConfigMap, by what it says of itself.
///
/// # Errors
///
/// With the reason why it doesn't.
pub fn needs(job: &Job<'_>, triggers: &[String]) -> Result<(), Because> {
    let asks = job.strategy.as_deref().is_some_and(|text| Strategies::parse(text).triggered_by(triggers));
    match job {
        _ if !asks => Err(Because::NotAsked),
        Job { opted_out: true, .. } => Err(Because::JobOptedOut),
        Job { deleting: true, .. } => Err(Because::JobEnds),
        Job { finished: true, .. } => Err(Because::Finished),
        _ => Ok(()),
    }
}

/// What is to be done about what was found for a job.
pub fn decide(job: &Job<'_>, triggers: &[String], namespace: Namespace, found: Found) -> Decision {
    if let Err(because) = needs(job, triggers) {
        return Decision::Nothing(because);
    }
    if namespace.terminating {
        return Decision::Nothing(Because::NamespaceEnds);
    }
    if namespace.opted_out {
        return Decision::Nothing(Because::NamespaceOptedOut);
    }
    let name = name_for(&job.name);
    match found {
        Found::Usable => Decision::Nothing(Because::Usable),
        Found::Leaving => Decision::Nothing(Because::Leaving),
        Found::Unusable(why) => Decision::Complain(Complaint::Unusable { name, why }),
        Found::Missing if name.len() > LONGEST_NAME => {
            let length = job.name.len();
            Decision::Complain(Complaint::NameTooLong { longest: LONGEST_NAME + length - name.len(), length })
        }
        Found::Missing => Decision::Create,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;
    use crate::job::JobKind;

    fn job() -> Job<'static> {
        Job {
            kind: JobKind::AscendJob,
            name: Cow::Borrowed("j"),
            uid: Cow::Borrowed("u"),
            deleting: false,
            strategy: Some(Cow::Borrowed("retry, dump")),
            opted_out: false,
            finished: false,
        }
    }

    fn dump() -> Vec<String> {
        vec!["dump".to_owned()]
    }

    #[test]
    fn each_state_has_its_decision() {
        let strategy = |text| Job { strategy: Some(Cow::Borrowed(text)), ..job() };
        let plain = Namespace::default();
        let unusable = || Found::Unusable(Unusable::Empty);
        let nothing = Decision::Nothing;
        for (what, job, namespace, found, expected) in [
            ("missing", job(), plain, Found::Missing, Decision::Create),
            ("there", job(), plain, Found::Usable, nothing(Because::Usable)),
            ("leaving", job(), plain, Found::Leaving, nothing(Because::Leaving)),
            (
                "unusable",
                job(),
                plain,
                unusable(),
                Decision::Complain(Complaint::Unusable {
                    name: "reset-config-j".to_owned(),
                    why: Unusable::Empty,
                }),
            ),
            (
                "no strategy",
                Job { strategy: None, ..job() },
                plain,
                Found::Missing,
                nothing(Because::NotAsked),
            ),
            ("no dump", strategy("recover,Dump"), plain, Found::Missing, nothing(Because::NotAsked)),
            ("no dump and unusable", strategy("exit"), plain, unusable(), nothing(Because::NotAsked)),
            ("opted out", Job { opted_out: true, ..job() }, plain, unusable(), nothing(Because::JobOptedOut)),
            (
                "being deleted",
                Job { deleting: true, ..job() },
                plain,
                Found::Missing,
                nothing(Because::JobEnds),
            ),
            ("finished", Job { finished: true, ..job() }, plain, Found::Missing, nothing(Because::Finished)),
            (
                "in a namespace that ends",
                job(),
                Namespace { terminating: true, opted_out: false },
                Found::Missing,
                nothing(Because::NamespaceEnds),
            ),
            (
                "in a namespace that doesn't want it",
                job(),
                Namespace { terminating: false, opted_out: true },
                unusable(),
                nothing(Because::NamespaceOptedOut),
            ),
        ] {
            assert_eq!(decide(&job, &dump(), namespace, found), expected, "{what}");
        }
        let other = ["exit".to_owned(), "dump".to_owned()];
        assert_eq!(decide(&strategy("exit"), &other, plain, Found::Missing), Decision::Create);
    }

    #[test]
    fn a_name_without_room_for_the_prefix_is_told() {
        let named = |length: usize| Job { name: Cow::Owned("a".repeat(length)), ..job() };
        let decide = |length| decide(&named(length), &dump(), Namespace::default(), Found::Missing);
        assert_eq!(decide(240), Decision::Create);
        assert_eq!(decide(241), Decision::Complain(Complaint::NameTooLong { longest: 240, length: 241 }));
    }

    fn found() -> impl Strategy<Value = Found> {
        prop_oneof![
            Just(Found::Usable),
            Just(Found::Missing),
            Just(Found::Leaving),
            Just(Found::Unusable(Unusable::NoResetJson)),
        ]
    }

    proptest! {
        /// Whatever there is stays as it is, and what isn't asked for is never made.
        #[test]
        fn only_what_is_missing_and_needed_is_created(
            deleting: bool, opted_out: bool, finished: bool, terminating: bool, left_out: bool,
            strategy in proptest::option::of("[a-z, ]{0,12}|dump|dump,exit"), found in found(),
        ) {
            let job = Job { deleting, opted_out, finished, strategy: strategy.map(Cow::Owned), ..job() };
            let missing = found == Found::Missing;
            let namespace = Namespace { terminating, opted_out: left_out };
            let decision = decide(&job, &dump(), namespace, found);
            if decision == Decision::Create {
                prop_assert!(missing && !deleting && !opted_out && !finished && !terminating && !left_out);
                prop_assert!(job.strategy.expect("asked").contains("dump"));
            }
        }
    }
}

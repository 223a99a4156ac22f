//! The outcome of each creation in the API server's audit log.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use swansong_testcluster::{AuditEvent, Cluster};

use crate::load::Creation;

/// Audit annotations of Swansong's responses. Those under `mutation.webhook.admission.k8s.io/` also exist for calls
/// without a response.
const ANSWERED: &str = "pods.swansong.dev/";

/// Audit annotations for each webhook that didn't respond and whose failure was ignored by `failurePolicy: Ignore`.
const FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io/";

/// The audit log's record of one creation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// HTTP status of the response.
    pub(crate) code: u16,
    /// Whether Swansong responded.
    pub(crate) answered: bool,
    /// Whether the Pod was created without a response of Swansong.
    pub(crate) admitted_unprocessed: bool,
}

impl Outcome {
    fn of(event: &AuditEvent) -> Self {
        let has = |prefix: &str| event.annotations.keys().any(|key| key.starts_with(prefix));
        Self {
            code: event.response_status.as_ref().map_or(0, |status| status.code),
            answered: has(ANSWERED),
            admitted_unprocessed: has(FAILED_OPEN),
        }
    }
}

/// Returns the outcomes of all Pod creations in a namespace by name.
pub(crate) fn outcomes(cluster: &Cluster, namespace: &str) -> HashMap<String, Outcome> {
    let mut outcomes = HashMap::new();
    for event in cluster.audit_events().unwrap() {
        let event = event.unwrap();
        let Some(object) = &event.object_ref else { continue };
        let creation = event.verb == "create" && event.stage == "ResponseComplete";
        if creation
            && object.resource == "pods"
            && object.subresource.is_empty()
            && object.namespace == namespace
        {
            outcomes.insert(object.name.clone(), Outcome::of(&event));
        }
    }
    outcomes
}

/// Returns what is wrong with creations, and how many Pods were admitted unprocessed.
pub(crate) fn judge(cluster: &Cluster, namespace: &str, creations: &[Creation]) -> (Vec<String>, usize) {
    let outcomes = outcomes(cluster, namespace);
    let outcome = |creation: &Creation| outcomes.get(&creation.name).copied().unwrap_or_default();
    let wrong = creations.iter().filter_map(|creation| contradiction(creation, outcome(creation))).collect();
    (wrong, creations.iter().filter(|creation| outcome(creation).admitted_unprocessed).count())
}

/// Returns what is wrong with a creation: it failed, or the stored Pod differs from Swansong's response.
pub(crate) fn contradiction(creation: &Creation, outcome: Outcome) -> Option<String> {
    let name = &creation.name;
    match &creation.result {
        Err(error) => Some(format!("{name} failed: {error}")),
        Ok(_) if outcome.code != 201 => {
            Some(format!("{name} isn't in the audit log as created: {outcome:?}"))
        }
        Ok(_) if outcome.answered == outcome.admitted_unprocessed => {
            Some(format!("{name}: contradictory annotations: {outcome:?}"))
        }
        Ok(injected) if *injected != outcome.answered => {
            Some(format!("{name}: injected {injected}, but {outcome:?}"))
        }
        Ok(_) => None,
    }
}

/// Returns from the API server's log why calls of Swansong failed, and how often.
pub(crate) fn call_failures(cluster: &Cluster) -> BTreeMap<String, usize> {
    let log = fs::read_to_string(cluster.info().logs.join("kube-apiserver.log")).unwrap();
    let mut reasons = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains("failing open pods.swansong.dev")) {
        // `…: failed to call webhook: Post "https://…": dial tcp 198.18.0.7:8443: connect: connection refused`
        let reason = line.rsplit_once("\": ").map_or(line, |(_, reason)| reason);
        *reasons.entry(without_addresses(reason)).or_default() += 1;
    }
    reasons
}

/// Removes addresses and ports, which differ for each connection.
fn without_addresses(reason: &str) -> String {
    let words = reason.split(' ').map(|word| word.trim_end_matches(':'));
    let words =
        words.filter(|word| !word.contains("->") && !word.starts_with(|first: char| first.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

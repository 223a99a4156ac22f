//! What became of each creation, by the API server's own audit log.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use swansong_testcluster::{AuditEvent, Cluster};

use crate::load::Creation;

/// Swansong's own audit annotations, which only its answers bring about. What the API server notes of itself under
/// `mutation.webhook.admission.k8s.io/` is there for calls without an answer as well.
const ANSWERED: &str = "pods.swansong.dev/";

/// Noted by the API server for each webhook that didn't answer and was passed over by `failurePolicy: Ignore`.
const FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io/";

/// What the API server noted about one creation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    /// HTTP status.
    pub(crate) code: u16,
    /// Swansong answered.
    pub(crate) answered: bool,
    /// Swansong didn't answer, and the Pod was created all the same.
    pub(crate) let_through: bool,
}

impl Fate {
    fn of(event: &AuditEvent) -> Self {
        let noted = |prefix: &str| event.annotations.keys().any(|key| key.starts_with(prefix));
        Self {
            code: event.response_status.as_ref().map_or(0, |status| status.code),
            answered: noted(ANSWERED),
            let_through: noted(FAILED_OPEN),
        }
    }
}

/// The fates of all Pods whose creation in a namespace was asked for, by name.
pub(crate) fn fates(cluster: &Cluster, namespace: &str) -> HashMap<String, Fate> {
    let mut fates = HashMap::new();
    for event in cluster.audit_events().unwrap() {
        let event = event.unwrap();
        let Some(object) = &event.object_ref else { continue };
        let creation = event.verb == "create" && event.stage == "ResponseComplete";
        if creation
            && object.resource == "pods"
            && object.subresource.is_empty()
            && object.namespace == namespace
        {
            fates.insert(object.name.clone(), Fate::of(&event));
        }
    }
    fates
}

/// What is wrong with creations, and how many of them were let through.
pub(crate) fn judge(cluster: &Cluster, namespace: &str, creations: &[Creation]) -> (Vec<String>, usize) {
    let fates = fates(cluster, namespace);
    let fate = |creation: &Creation| fates.get(&creation.name).copied().unwrap_or_default();
    let wrong = creations.iter().filter_map(|creation| contradiction(creation, fate(creation))).collect();
    (wrong, creations.iter().filter(|creation| fate(creation).let_through).count())
}

/// What is wrong with a creation: it failed, or what is stored isn't what Swansong answered.
pub(crate) fn contradiction(creation: &Creation, fate: Fate) -> Option<String> {
    let name = &creation.name;
    match &creation.outcome {
        Err(error) => Some(format!("{name} failed: {error}")),
        Ok(_) if fate.code != 201 => Some(format!("{name} isn't in the audit log as created: {fate:?}")),
        Ok(_) if fate.answered == fate.let_through => {
            Some(format!("{name}: answered and not answered: {fate:?}"))
        }
        Ok(injected) if *injected != fate.answered => {
            Some(format!("{name}: injected {injected}, but {fate:?}"))
        }
        Ok(_) => None,
    }
}

/// Why the API server passed over Swansong, and how often, by its own log.
pub(crate) fn why_let_through(cluster: &Cluster) -> BTreeMap<String, usize> {
    let log = fs::read_to_string(cluster.info().logs.join("kube-apiserver.log")).unwrap();
    let mut reasons = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains("failing open pods.swansong.dev")) {
        // `…: failed to call webhook: Post "https://…": dial tcp 198.18.0.7:8443: connect: connection refused`
        let reason = line.rsplit_once("\": ").map_or(line, |(_, reason)| reason);
        *reasons.entry(without_addresses(reason)).or_default() += 1;
    }
    reasons
}

/// Addresses and ports differ from connection to connection; why it failed doesn't.
fn without_addresses(reason: &str) -> String {
    let words = reason.split(' ').map(|word| word.trim_end_matches(':'));
    let words =
        words.filter(|word| !word.contains("->") && !word.starts_with(|first: char| first.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

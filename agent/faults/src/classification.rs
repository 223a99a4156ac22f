//! Chooses the classification among the lists that exist.

use std::sync::Arc;
use std::time::Duration;

use swansong_fault_model::{Classification, ClassifierSource, Code, Severity};

use crate::levels::Levels;

/// How long a list may be gone before faults are classified without it: it may be being replaced.
const LIST_GRACE: Duration = Duration::from_mins(5);

/// The classification in use.
#[derive(Debug)]
pub(crate) struct CurrentLevels {
    levels: Arc<Levels>,
    /// Whether the faults of an earlier process have been classified by it.
    is_settled: bool,
    /// Since when there has been no list as good as the one before.
    weaker_since: Option<Duration>,
}

impl CurrentLevels {
    pub(crate) const fn new(levels: Arc<Levels>) -> Self {
        Self { levels, is_settled: false, weaker_since: None }
    }

    /// The classification in use.
    pub(crate) const fn levels(&self) -> &Arc<Levels> {
        &self.levels
    }

    /// The level of a code, and why it has it.
    pub(crate) fn classify(&self, code: &Code, severity: Option<Severity>) -> Classification {
        let (level, reason) = self.levels.classifier.level(code, severity);
        Classification { level, reason: format!("{reason}, {}", self.levels.origin) }
    }

    /// Uses `newest`, unless the one before is better. The answer is whether it is used from now on, and whether all faults
    /// have to be classified by it.
    pub(crate) fn update(&mut self, newest: &Arc<Levels>, now: Duration) -> (bool, bool) {
        let is_new = !Arc::ptr_eq(&self.levels, newest);
        if !self.is_settled {
            // An earlier process classified by the cluster's list, which is better than none or an invalid one.
            let is_weak =
                newest.is_invalid() || newest.origin == ClassifierSource::Severity && self.is_in_grace(now);
            if is_new {
                self.levels = Arc::clone(newest);
            }
            self.is_settled = newest.has_checked_config_map && !is_weak;
            return (is_new, self.is_settled);
        }
        // The variants are in descending precedence. By severity many levels are higher than lists have them.
        if !is_new || newest.origin > self.levels.origin && self.is_in_grace(now) {
            if !is_new {
                self.weaker_since = None;
            }
            return (false, false);
        }
        self.levels = Arc::clone(newest);
        self.weaker_since = None;
        (true, true)
    }

    /// Whether the list has been gone for a short time only.
    fn is_in_grace(&mut self, now: Duration) -> bool {
        now.saturating_sub(*self.weaker_since.get_or_insert(now)) < LIST_GRACE
    }
}

impl Levels {
    /// Whether there is a list that can't be read, and none of the cluster.
    fn is_invalid(&self) -> bool {
        self.origin != ClassifierSource::ConfigMap
            && self.problems.keys().any(|place| place.ends_with("faultCode.json"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use swansong_fault_model::{Classifier, Rules};

    use super::*;

    fn levels(origin: ClassifierSource, has_checked_config_map: bool) -> Arc<Levels> {
        let (classifier, rules) = (Classifier::documented(), Rules::default());
        Arc::new(Levels { classifier, origin, has_checked_config_map, rules, problems: BTreeMap::new() })
    }

    #[test]
    fn list_that_is_gone_is_missed_only_after_a_while() {
        let list = levels(ClassifierSource::ConfigMap, true);
        let mut current = CurrentLevels::new(Arc::clone(&list));
        assert_eq!(current.update(&list, Duration::ZERO), (false, true));
        assert_eq!(current.update(&list, Duration::ZERO), (false, false));
        let none = levels(ClassifierSource::Severity, true);
        assert_eq!(current.update(&none, Duration::from_secs(1)), (false, false));
        assert_eq!(current.levels().origin, ClassifierSource::ConfigMap);
        assert_eq!(current.update(&list, Duration::from_secs(2)), (false, false));
        assert_eq!(current.update(&none, Duration::from_secs(3)), (false, false));
        assert_eq!(current.update(&none, Duration::from_mins(6)), (true, true));
    }

    #[test]
    fn restored_faults_keep_their_levels_until_the_cluster_has_a_list() {
        let mut current = CurrentLevels::new(levels(ClassifierSource::Severity, false));
        let unasked = levels(ClassifierSource::Severity, false);
        assert_eq!(current.update(&unasked, Duration::ZERO), (true, false));
        let none = levels(ClassifierSource::Severity, true);
        assert_eq!(current.update(&none, Duration::from_secs(1)), (true, false));
        assert_eq!(current.update(&none, Duration::from_mins(6)), (false, true));
    }
}

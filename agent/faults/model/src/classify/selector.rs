//! Picks the classifier in effect.

use super::Classifier;
use crate::json::{ParseError, Warning};

/// Where a classifier comes from, in descending precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum ClassifierSource {
    /// Key `faultCode.json` of the ConfigMap `mindx-dl-fault-config`, which the cluster's device plugins read too.
    ConfigMap,
    /// The file that the agent's configuration names.
    File,
    /// The built-in list of documented codes; all other codes are classified by their severity.
    Severity,
}

/// The result of updating a classifier from its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadResult {
    /// The text is the same as before.
    Unchanged,
    /// The text was parsed, with these warnings.
    Loaded(Vec<Warning>),
    /// The source no longer exists.
    Removed,
    /// The text can't be parsed; the last valid classifier of this source remains in effect.
    Invalid(ParseError),
}

/// The last valid classifier of each source.
#[derive(Debug, Clone)]
pub struct ClassifierSelector {
    config_map: Candidate,
    file: Candidate,
    built_in: Classifier,
    has_checked_config_map: bool,
}

#[derive(Debug, Clone, Default)]
struct Candidate {
    text: Option<String>,
    classifier: Option<Classifier>,
}

impl ClassifierSelector {
    /// A selector that has read no source yet.
    pub fn new() -> Self {
        Self {
            config_map: Candidate::default(),
            file: Candidate::default(),
            built_in: Classifier::documented(),
            has_checked_config_map: false,
        }
    }

    /// Updates the classifier from the cluster's ConfigMap; `None` if it doesn't exist. A failed request isn't an update.
    pub fn update_config_map(&mut self, text: Option<&str>) -> ReloadResult {
        self.has_checked_config_map = true;
        self.config_map.update(text)
    }

    /// Updates the classifier from the configured file; `None` if it doesn't exist.
    pub fn update_file(&mut self, text: Option<&str>) -> ReloadResult {
        self.file.update(text)
    }

    /// The classifier of the source with the highest precedence. Sources aren't merged; MindCluster doesn't merge its
    /// own either.
    pub fn current(&self) -> (&Classifier, ClassifierSource) {
        if let Some(classifier) = &self.config_map.classifier {
            (classifier, ClassifierSource::ConfigMap)
        } else if let Some(classifier) = &self.file.classifier {
            (classifier, ClassifierSource::File)
        } else {
            (&self.built_in, ClassifierSource::Severity)
        }
    }

    /// Whether the ConfigMap was read at least once. Until then a code may get a higher level than the cluster's.
    pub const fn has_checked_config_map(&self) -> bool {
        self.has_checked_config_map
    }
}

impl Default for ClassifierSelector {
    fn default() -> Self {
        Self::new()
    }
}

impl Candidate {
    fn update(&mut self, text: Option<&str>) -> ReloadResult {
        let Some(text) = text else {
            self.text = None;
            return if self.classifier.take().is_some() {
                ReloadResult::Removed
            } else {
                ReloadResult::Unchanged
            };
        };
        if self.text.as_deref() == Some(text) {
            return ReloadResult::Unchanged;
        }
        self.text = Some(text.to_owned());
        match Classifier::from_json(text) {
            Ok((classifier, warnings)) => {
                self.classifier = Some(classifier);
                ReloadResult::Loaded(warnings)
            }
            Err(error) => ReloadResult::Invalid(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Level, LevelReason};

    const CODE: &str = "80E01801";

    fn level(selector: &ClassifierSelector) -> (Level, LevelReason, ClassifierSource) {
        let (classifier, source) = selector.current();
        let (level, reason) = classifier.level(&CODE.parse().expect("a code"), None);
        (level, reason, source)
    }

    #[test]
    fn config_map_precedes_file_and_file_precedes_built_in_list() {
        let mut selector = ClassifierSelector::new();
        assert!(!selector.has_checked_config_map());
        assert_eq!(
            level(&selector),
            (Level::RestartBusiness, LevelReason::Listed, ClassifierSource::Severity)
        );
        let file = r#"{"SubHealthFaultCodes": ["80E01801"]}"#;
        assert_eq!(selector.update_file(Some(file)), ReloadResult::Loaded(vec![]));
        assert_eq!(level(&selector), (Level::SubHealthFault, LevelReason::Listed, ClassifierSource::File));
        let map = r#"{"SeparateNPUCodes": ["80E00000"]}"#;
        assert_eq!(selector.update_config_map(Some(map)), ReloadResult::Loaded(vec![]));
        // Sources aren't merged: a code that the ConfigMap lacks is unknown.
        assert_eq!(level(&selector), (Level::SeparateNPU, LevelReason::Unknown, ClassifierSource::ConfigMap));
        assert!(selector.has_checked_config_map());
        assert_eq!(selector.update_config_map(None), ReloadResult::Removed);
        assert_eq!(selector.update_config_map(None), ReloadResult::Unchanged);
        assert_eq!(level(&selector).2, ClassifierSource::File);
        assert_eq!(selector.update_file(None), ReloadResult::Removed);
        assert_eq!(level(&selector).2, ClassifierSource::Severity);
    }

    #[test]
    fn invalid_text_keeps_the_last_valid_classifier() {
        let mut selector = ClassifierSelector::new();
        assert!(matches!(
            selector.update_config_map(Some("{")),
            ReloadResult::Invalid(ParseError::NotAnObject(_))
        ));
        assert_eq!(level(&selector).2, ClassifierSource::Severity, "no valid classifier before");
        assert_eq!(selector.update_config_map(Some("{")), ReloadResult::Unchanged, "reported once");
        let good = r#"{"NotHandleFaultCodes": ["80e01801 "]}"#;
        assert_eq!(selector.update_config_map(Some(good)), ReloadResult::Loaded(vec![]));
        assert!(matches!(selector.update_config_map(Some("[]")), ReloadResult::Invalid(_)));
        assert_eq!(
            level(&selector),
            (Level::NotHandleFault, LevelReason::Listed, ClassifierSource::ConfigMap)
        );
        assert_eq!(selector.update_config_map(Some(good)), ReloadResult::Loaded(vec![]));
    }

    #[test]
    fn config_map_replaces_the_built_in_list() {
        let code = Code::from(0x8C2F_A009);
        let mut selector = ClassifierSelector::new();
        assert_eq!(selector.current().0.level(&code, None).0, Level::NotHandleFault);
        selector.update_config_map(Some(r#"{"SeparateNPUCodes": ["80E00000"]}"#));
        assert_eq!(selector.current().0.level(&code, None).1, LevelReason::Unknown);
    }
}

//! Which classification counts, out of those that may be there.

use super::Classifier;
use crate::reading::{Broken, Warning};

/// Where a classification comes from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Key `faultCode.json` of the ConfigMap `mindx-dl-fault-config`, which the device plugins of the cluster read too.
    ConfigMap,
    /// The file that the agent's configuration names.
    File,
    /// The few documented codes, and the severity.
    Severity,
}

/// What was found in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// It was looked for and isn't there.
    Nothing,
    /// This text.
    Text(&'a str),
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The same as before.
    Same,
    /// It counts from now on, with what is odd about it.
    Taken(Vec<Warning>),
    /// It was there and isn't any more.
    Gone,
    /// It can't be used; what was taken from there before stays.
    Broken(Broken),
}

/// All places, and what was last good in each.
#[derive(Debug, Clone)]
pub struct Choice {
    config_map: Place,
    file: Place,
    severity: Classifier,
}

#[derive(Debug, Clone, Default)]
struct Place {
    looked: bool,
    text: Option<String>,
    good: Option<Classifier>,
}

impl Choice {
    /// Nothing looked at yet.
    pub fn new() -> Self {
        Self { config_map: Place::default(), file: Place::default(), severity: Classifier::documented() }
    }

    /// What the cluster's ConfigMap says. One that can't be asked for says nothing new, so it isn't told here.
    pub fn config_map(&mut self, found: Found<'_>) -> News {
        self.config_map.look(found)
    }

    /// What the configured file says.
    pub fn file(&mut self, found: Found<'_>) -> News {
        self.file.look(found)
    }

    /// What counts: the whole of the best place that has something good. Places aren't merged, as MindCluster's aren't.
    pub fn current(&self) -> (&Classifier, Origin) {
        if let Some(good) = &self.config_map.good {
            (good, Origin::ConfigMap)
        } else if let Some(good) = &self.file.good {
            (good, Origin::File)
        } else {
            (&self.severity, Origin::Severity)
        }
    }

    /// Whether the cluster was asked. Before that a code may be called grave that the cluster calls harmless.
    pub const fn asked_the_cluster(&self) -> bool {
        self.config_map.looked
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    fn look(&mut self, found: Found<'_>) -> News {
        let first = !std::mem::replace(&mut self.looked, true);
        let Found::Text(text) = found else {
            self.text = None;
            return if self.good.take().is_some() { News::Gone } else { News::Same };
        };
        if !first && self.text.as_deref() == Some(text) {
            return News::Same;
        }
        self.text = Some(text.to_owned());
        match Classifier::from_json(text) {
            Ok((classifier, warnings)) => {
                self.good = Some(classifier);
                News::Taken(warnings)
            }
            Err(broken) => News::Broken(broken),
        }
    }
}

impl Origin {
    /// A word for metrics and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "config-map",
            Self::File => "file",
            Self::Severity => "severity",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Because, Code, Level};

    const CODE: &str = "80E01801";

    fn level(choice: &Choice) -> (Level, Because, Origin) {
        let (classifier, origin) = choice.current();
        let (level, because) = classifier.level(&CODE.parse().expect("a code"), None);
        (level, because, origin)
    }

    #[test]
    fn the_cluster_then_the_file_then_severity() {
        let mut choice = Choice::new();
        assert!(!choice.asked_the_cluster());
        assert_eq!(level(&choice), (Level::RestartBusiness, Because::Listed, Origin::Severity));
        let file = r#"{"SubHealthFaultCodes": ["80E01801"]}"#;
        assert_eq!(choice.file(Found::Text(file)), News::Taken(vec![]));
        assert_eq!(level(&choice), (Level::SubHealthFault, Because::Listed, Origin::File));
        let map = r#"{"SeparateNPUCodes": ["80E00000"]}"#;
        assert_eq!(choice.config_map(Found::Text(map)), News::Taken(vec![]));
        // Not merged: the code isn't in the ConfigMap, so it is unknown.
        assert_eq!(level(&choice), (Level::SeparateNPU, Because::NothingKnown, Origin::ConfigMap));
        assert!(choice.asked_the_cluster());
        assert_eq!(choice.config_map(Found::Nothing), News::Gone);
        assert_eq!(choice.config_map(Found::Nothing), News::Same);
        assert_eq!(level(&choice).2, Origin::File);
        assert_eq!(choice.file(Found::Nothing), News::Gone);
        assert_eq!(level(&choice).2, Origin::Severity);
    }

    #[test]
    fn a_broken_one_keeps_the_last_good() {
        let mut choice = Choice::new();
        assert!(matches!(choice.config_map(Found::Text("{")), News::Broken(Broken::NotAnObject(_))));
        assert_eq!(level(&choice).2, Origin::Severity, "there was none before");
        assert_eq!(choice.config_map(Found::Text("{")), News::Same, "said once");
        let good = r#"{"NotHandleFaultCodes": ["80e01801 "]}"#;
        assert_eq!(choice.config_map(Found::Text(good)), News::Taken(vec![]));
        assert!(matches!(choice.config_map(Found::Text("[]")), News::Broken(_)));
        assert_eq!(level(&choice), (Level::NotHandleFault, Because::Listed, Origin::ConfigMap));
        assert_eq!(choice.config_map(Found::Text(good)), News::Taken(vec![]));
    }

    #[test]
    fn a_code_of_the_cluster_is_taken_whole() {
        let code = Code::from(0x8C2F_A009);
        let mut choice = Choice::new();
        assert_eq!(choice.current().0.level(&code, None).0, Level::NotHandleFault);
        choice.config_map(Found::Text(r#"{"SeparateNPUCodes": ["80E00000"]}"#));
        assert_eq!(choice.current().0.level(&code, None).1, Because::NothingKnown);
    }
}

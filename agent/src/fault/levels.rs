//! How this cluster classifies faults: what its ConfigMap, the operator's file and the configuration say, followed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swansong_fault_model::{Classifier, ClassifierSelector, ClassifierSource, ReloadResult, Rules};
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::api::{ApiServer, Texts, Timing, follow_config_map};
use crate::config::FaultSettings;

/// The ConfigMap by which a cluster's device plugins are told how faults are classified, and its keys.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "mindx-dl-fault-config";
const CODES: &str = "faultCode.json";
const CUSTOMIZATION: &str = "faultCustomization.json";

/// How often the operator's file is read again.
const FILE_INTERVAL: Duration = Duration::from_secs(10);

/// How faults are classified now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// The level of each code.
    pub classifier: Classifier,
    /// Where that comes from.
    pub origin: ClassifierSource,
    /// Whether the cluster has been asked. Before that a fault may be taken for graver than the cluster has it.
    pub has_checked_config_map: bool,
    /// What raises a level.
    pub rules: Rules,
    /// What can't be used, by its place; what was last good there still counts.
    pub problems: BTreeMap<String, String>,
}

/// Follows how faults are classified.
#[derive(Debug)]
pub struct LevelWatch {
    file: Option<PathBuf>,
    rules_from_cluster: bool,
    own_rules: Rules,
    state: Mutex<State>,
    levels: watch::Sender<Arc<Levels>>,
}

#[derive(Debug, Default)]
struct State {
    choice: ClassifierSelector,
    customization: Option<String>,
    cluster_rules: Rules,
    problems: BTreeMap<String, String>,
}

impl LevelWatch {
    /// Nothing asked yet: codes go by their severity.
    pub fn new(settings: &FaultSettings) -> Self {
        let (classifier, origin) = (Classifier::documented(), ClassifierSource::Severity);
        let levels = Levels {
            classifier,
            origin,
            has_checked_config_map: false,
            rules: settings.rules.clone(),
            problems: BTreeMap::new(),
        };
        Self {
            file: settings.classification_file.clone(),
            rules_from_cluster: settings.rules_from_cluster,
            own_rules: settings.rules.clone(),
            state: Mutex::default(),
            levels: watch::Sender::new(Arc::new(levels)),
        }
    }

    /// How faults are classified, now and whenever that changes.
    pub fn levels(&self) -> watch::Receiver<Arc<Levels>> {
        self.levels.subscribe()
    }

    /// Follows the cluster's ConfigMap and the operator's file.
    ///
    /// # Errors
    ///
    /// Never by itself.
    pub async fn run(
        self: Arc<Self>,
        api: Arc<ApiServer>,
        timing: Arc<Timing>,
        progress: Progress,
    ) -> Result<Infallible, TaskError> {
        let cluster =
            follow_config_map(&api, (NAMESPACE, NAME), &timing, |texts| self.cluster(texts), &progress);
        tokio::select! {
            never = cluster => match never {},
            never = self.follow_file() => match never {},
        }
    }

    async fn follow_file(&self) -> Infallible {
        let Some(path) = self.file.clone() else { return std::future::pending().await };
        let read = move || swansong_runtime::config::read(&path);
        if let Ok(first) = spawn_blocking(read.clone()).await {
            self.file(first);
        }
        swansong_runtime::config::poll(FILE_INTERVAL, read, |read| self.file(read)).await
    }

    /// What the cluster's ConfigMap says.
    fn cluster(&self, texts: Option<&Texts>) {
        let text = |key| texts.and_then(|texts| texts.get(key)?.as_deref());
        self.change(|state| {
            let found = text(CODES);
            let news = state.choice.update_config_map(found);
            state.note(&format!("ConfigMap {NAMESPACE}/{NAME}, {CODES}"), news);
            if self.rules_from_cluster {
                let news = state.customization(text(CUSTOMIZATION));
                state.note(&format!("ConfigMap {NAMESPACE}/{NAME}, {CUSTOMIZATION}"), news);
            }
        });
    }

    /// What the operator's file says. One that isn't there is a fault of the configuration, not a wish for no file.
    fn file(&self, read: io::Result<String>) {
        let Some(path) = &self.file else { return };
        let place = path.display().to_string();
        self.change(|state| match read {
            Ok(text) => {
                // Readable again, whatever is in it.
                if state.problems.get(&place).is_some_and(|problem| problem.starts_with(UNREADABLE)) {
                    state.problems.remove(&place);
                }
                let news = state.choice.update_file(Some(&text));
                state.note(&place, news);
            }
            Err(error) => {
                let problem =
                    format!("{UNREADABLE} ({error}); check the path, and that this user may read it");
                if state.problems.insert(place.clone(), problem.clone()).as_ref() != Some(&problem) {
                    warn!(place, problem, "a classification of faults can't be used");
                }
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let (classifier, origin) = state.choice.current();
        let levels = Levels {
            classifier: classifier.clone(),
            origin,
            has_checked_config_map: state.choice.has_checked_config_map(),
            rules: self.own_rules.clone().or(&state.cluster_rules),
            problems: state.problems.clone(),
        };
        self.levels.send_if_modified(|known| {
            let changed = **known != levels;
            if changed {
                info!(
                    origin = %levels.origin,
                    codes = levels.classifier.len(),
                    "faults are classified anew"
                );
                *known = Arc::new(levels);
            }
            changed
        });
    }
}

const UNREADABLE: &str = "it can't be read";

impl State {
    /// Other rules of the cluster; broken ones leave those before.
    fn customization(&mut self, text: Option<&str>) -> ReloadResult {
        if self.customization.as_deref() == text {
            return ReloadResult::Unchanged;
        }
        self.customization = text.map(str::to_owned);
        match text.map(Rules::from_json) {
            None => {
                self.cluster_rules = Rules::default();
                ReloadResult::Removed
            }
            Some(Ok((rules, warnings))) => {
                self.cluster_rules = rules;
                ReloadResult::Loaded(warnings)
            }
            Some(Err(broken)) => ReloadResult::Invalid(broken),
        }
    }

    fn note(&mut self, place: &str, news: ReloadResult) {
        match news {
            ReloadResult::Unchanged => {}
            ReloadResult::Removed => {
                self.problems.remove(place);
            }
            ReloadResult::Loaded(warnings) => {
                self.problems.remove(place);
                for warning in warnings {
                    warn!(place, %warning, "a classification of faults is odd");
                }
            }
            ReloadResult::Invalid(broken) => {
                warn!(place, problem = %broken, "a classification of faults can't be used; what was last good there stays");
                self.problems.insert(place.to_owned(), broken.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use swansong_fault_model::Level;

    use super::*;

    fn texts(entries: &[(&str, &str)]) -> Texts {
        entries.iter().map(|(key, text)| ((*key).to_owned(), Some((*text).to_owned()))).collect()
    }

    fn level(watch: &LevelWatch) -> (Level, ClassifierSource) {
        let levels = watch.levels().borrow().clone();
        (levels.classifier.level(&"80E01801".parse().expect("a code"), None).0, levels.origin)
    }

    #[test]
    fn the_cluster_goes_before_the_file_and_the_last_good_stays() {
        let settings =
            FaultSettings { classification_file: Some("/f.json".into()), ..FaultSettings::default() };
        let watch = LevelWatch::new(&settings);
        assert_eq!(level(&watch), (Level::RestartBusiness, ClassifierSource::Severity));
        assert!(!watch.levels().borrow().has_checked_config_map);
        watch.file(Ok(r#"{"SubHealthFaultCodes": ["80E01801"]}"#.to_owned()));
        assert_eq!(level(&watch), (Level::SubHealthFault, ClassifierSource::File));
        watch.cluster(Some(&texts(&[(CODES, r#"{"SeparateNPUCodes": ["80E01801"]}"#)])));
        assert_eq!(level(&watch), (Level::SeparateNPU, ClassifierSource::ConfigMap));
        watch.cluster(Some(&texts(&[(CODES, "{")])));
        assert_eq!(level(&watch), (Level::SeparateNPU, ClassifierSource::ConfigMap));
        let problems = watch.levels().borrow().problems.clone();
        assert!(problems.keys().any(|place| place.contains("mindx-dl-fault-config")), "{problems:?}");
        watch.cluster(Some(&texts(&[("PollInterval", "300")])));
        assert_eq!(level(&watch), (Level::SubHealthFault, ClassifierSource::File));
        assert!(watch.levels().borrow().problems.is_empty());
        watch.file(Err(io::ErrorKind::NotFound.into()));
        assert_eq!(level(&watch), (Level::SubHealthFault, ClassifierSource::File));
        assert!(watch.levels().borrow().problems["/f.json"].contains("can't be read"));
        watch.file(Ok(r#"{"SubHealthFaultCodes": ["80E01801"]}"#.to_owned()));
        assert!(watch.levels().borrow().problems.is_empty(), "the same as before, and readable");
        watch.cluster(None);
        assert!(watch.levels().borrow().has_checked_config_map);
    }

    #[test]
    fn the_clusters_rules_are_taken_if_told_so() {
        let text =
            r#"{"FaultDuration": [{"EventId": ["1"], "FaultTimeout": 1, "FaultHandling": "SeparateNPU"}]}"#;
        let map = texts(&[(CUSTOMIZATION, text)]);
        let watch = LevelWatch::new(&FaultSettings::default());
        watch.cluster(Some(&map));
        assert!(watch.levels().borrow().rules.is_empty(), "off by default");
        let watch = LevelWatch::new(&FaultSettings { rules_from_cluster: true, ..FaultSettings::default() });
        watch.cluster(Some(&map));
        assert!(!watch.levels().borrow().rules.is_empty());
        watch.cluster(Some(&texts(&[(CUSTOMIZATION, "[]")])));
        assert!(!watch.levels().borrow().rules.is_empty(), "the last good");
        assert_eq!(watch.levels().borrow().problems.len(), 1);
        watch.cluster(None);
        assert!(watch.levels().borrow().rules.is_empty());
    }
}

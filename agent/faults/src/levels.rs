//! The classification of faults and the escalation rules: the cluster's ConfigMap, the operator's file, the configuration.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swansong_fault_model::{Classifier, ClassifierSelector, ClassifierSource, ReloadResult, Rules};
use swansong_runtime::supervisor::Progress;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use kube::Client;

use crate::config_map::{Data, watch_config_map};

/// The ConfigMap by which a cluster's device plugins classify faults, and its keys.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "mindx-dl-fault-config";
const CODES: &str = "faultCode.json";
const CUSTOMIZATION: &str = "faultCustomization.json";

/// How often the operator's file is read again.
const FILE_INTERVAL: Duration = Duration::from_secs(10);

/// The current classification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// The level of each code.
    pub classifier: Classifier,
    /// Where it comes from.
    pub origin: ClassifierSource,
    /// Whether the cluster's ConfigMap was read. Before, a level may be higher than the cluster's.
    pub has_checked_config_map: bool,
    /// The escalation rules.
    pub rules: Rules,
    /// What can't be used, by its place; the last valid content remains in effect.
    pub problems: BTreeMap<String, String>,
}

/// What is configured of the classification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LevelSettings {
    /// A `faultCode.json` for clusters without one.
    pub file: Option<PathBuf>,
    /// The operator's own rules.
    pub rules: Rules,
    /// Whether the rules of the cluster's `faultCustomization.json` apply too.
    pub rules_from_cluster: bool,
}

/// Watches the classification.
#[derive(Debug)]
pub struct LevelWatch {
    settings: LevelSettings,
    state: Mutex<State>,
    levels: watch::Sender<Arc<Levels>>,
}

#[derive(Debug, Default)]
struct State {
    selector: ClassifierSelector,
    customization: Option<String>,
    cluster_rules: Rules,
    problems: BTreeMap<String, String>,
}

impl LevelWatch {
    /// Nothing was read yet: codes are classified by their severity.
    pub fn new(settings: LevelSettings) -> Self {
        let levels = Levels {
            classifier: Classifier::documented(),
            origin: ClassifierSource::Severity,
            has_checked_config_map: false,
            rules: settings.rules.clone(),
            problems: BTreeMap::new(),
        };
        Self { settings, state: Mutex::default(), levels: watch::Sender::new(Arc::new(levels)) }
    }

    /// The classification, now and whenever it changes.
    pub fn levels(&self) -> watch::Receiver<Arc<Levels>> {
        self.levels.subscribe()
    }

    /// Watches the cluster's ConfigMap and the operator's file.
    pub async fn run(self: Arc<Self>, client: Client, progress: Progress) -> Infallible {
        let cluster =
            watch_config_map(client, (NAMESPACE, NAME), |data| self.update_cluster(data), &progress);
        tokio::select! {
            never = cluster => never,
            never = self.watch_file() => never,
        }
    }

    async fn watch_file(&self) -> Infallible {
        let Some(path) = self.settings.file.clone() else { return std::future::pending().await };
        let read = move || swansong_runtime::config::read(&path);
        if let Ok(first) = spawn_blocking(read.clone()).await {
            self.update_file(first);
        }
        swansong_runtime::config::poll(FILE_INTERVAL, read, |read| self.update_file(read)).await
    }

    fn update_cluster(&self, data: Option<&Data>) {
        let text = |key| data.and_then(|data| data.get(key)).map(String::as_str);
        self.change(|state| {
            let found = text(CODES);
            let result = state.selector.update_config_map(found);
            state.note(&format!("ConfigMap {NAMESPACE}/{NAME}, {CODES}"), result);
            if self.settings.rules_from_cluster {
                let result = state.customization(text(CUSTOMIZATION));
                state.note(&format!("ConfigMap {NAMESPACE}/{NAME}, {CUSTOMIZATION}"), result);
            }
        });
    }

    /// A file that doesn't exist is a configuration error and doesn't mean that none is wanted.
    fn update_file(&self, read: io::Result<String>) {
        let Some(path) = &self.settings.file else { return };
        let place = path.display().to_string();
        self.change(|state| match read {
            Ok(text) => {
                // The file is readable again; its contents may still be invalid.
                if state.problems.get(&place).is_some_and(|problem| problem.starts_with(UNREADABLE)) {
                    state.problems.remove(&place);
                }
                let result = state.selector.update_file(Some(&text));
                state.note(&place, result);
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
        let (classifier, origin) = state.selector.current();
        let levels = Levels {
            classifier: classifier.clone(),
            origin,
            has_checked_config_map: state.selector.has_checked_config_map(),
            rules: self.settings.rules.clone().or(&state.cluster_rules),
            problems: state.problems.clone(),
        };
        self.levels.send_if_modified(|known| {
            let changed = **known != levels;
            if changed {
                info!(
                    origin = %levels.origin,
                    codes = levels.classifier.len(),
                    "the classification of faults changed"
                );
                *known = Arc::new(levels);
            }
            changed
        });
    }
}

const UNREADABLE: &str = "it can't be read";

impl State {
    /// Replaces the rules of the cluster; invalid ones leave the last valid ones in effect.
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

    fn note(&mut self, place: &str, result: ReloadResult) {
        match result {
            ReloadResult::Unchanged => {}
            ReloadResult::Removed => {
                self.problems.remove(place);
            }
            ReloadResult::Loaded(warnings) => {
                self.problems.remove(place);
                for warning in warnings {
                    warn!(place, %warning, "the classification of faults has an entry without effect");
                }
            }
            ReloadResult::Invalid(broken) => {
                warn!(place, problem = %broken, "a classification of faults can't be used; the last valid one remains in effect");
                self.problems.insert(place.to_owned(), broken.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use swansong_fault_model::Level;

    use super::*;

    fn data(entries: &[(&str, &str)]) -> Data {
        entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    }

    fn level(watch: &LevelWatch) -> (Level, ClassifierSource) {
        let levels = watch.levels().borrow().clone();
        (levels.classifier.level(&"80E01801".parse().expect("a code"), None).0, levels.origin)
    }

    #[test]
    fn cluster_takes_precedence_and_the_last_valid_list_stays() {
        let settings = LevelSettings { file: Some("/f.json".into()), ..LevelSettings::default() };
        let watch = LevelWatch::new(settings);
        assert_eq!(level(&watch), (Level::RestartBusiness, ClassifierSource::Severity));
        assert!(!watch.levels().borrow().has_checked_config_map);
        watch.update_file(Ok(r#"{"SubHealthFaultCodes": ["80E01801"]}"#.to_owned()));
        assert_eq!(level(&watch), (Level::SubHealthFault, ClassifierSource::File));
        watch.update_cluster(Some(&data(&[(CODES, r#"{"SeparateNPUCodes": ["80E01801"]}"#)])));
        assert_eq!(level(&watch), (Level::SeparateNPU, ClassifierSource::ConfigMap));
        watch.update_cluster(Some(&data(&[(CODES, "{")])));
        assert_eq!(level(&watch), (Level::SeparateNPU, ClassifierSource::ConfigMap));
        let problems = watch.levels().borrow().problems.clone();
        assert!(problems.keys().any(|place| place.contains("mindx-dl-fault-config")), "{problems:?}");
        watch.update_cluster(Some(&data(&[("PollInterval", "300")])));
        assert_eq!(level(&watch), (Level::SubHealthFault, ClassifierSource::File));
        assert!(watch.levels().borrow().problems.is_empty());
        watch.update_file(Err(io::ErrorKind::NotFound.into()));
        assert_eq!(level(&watch), (Level::SubHealthFault, ClassifierSource::File));
        assert!(watch.levels().borrow().problems["/f.json"].contains("can't be read"));
        watch.update_file(Ok(r#"{"SubHealthFaultCodes": ["80E01801"]}"#.to_owned()));
        assert!(watch.levels().borrow().problems.is_empty(), "the same as before, and readable");
        watch.update_cluster(None);
        assert!(watch.levels().borrow().has_checked_config_map);
    }

    #[test]
    fn rules_of_the_cluster_apply_if_configured() {
        let text =
            r#"{"FaultDuration": [{"EventId": ["1"], "FaultTimeout": 1, "FaultHandling": "SeparateNPU"}]}"#;
        let map = data(&[(CUSTOMIZATION, text)]);
        let watch = LevelWatch::new(LevelSettings::default());
        watch.update_cluster(Some(&map));
        assert!(watch.levels().borrow().rules.is_empty(), "off by default");
        let watch = LevelWatch::new(LevelSettings { rules_from_cluster: true, ..LevelSettings::default() });
        watch.update_cluster(Some(&map));
        assert!(!watch.levels().borrow().rules.is_empty());
        watch.update_cluster(Some(&data(&[(CUSTOMIZATION, "[]")])));
        assert!(!watch.levels().borrow().rules.is_empty(), "the last valid one");
        assert_eq!(watch.levels().borrow().problems.len(), 1);
        watch.update_cluster(None);
        assert!(watch.levels().borrow().rules.is_empty());
    }
}

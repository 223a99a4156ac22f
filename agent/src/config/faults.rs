//! The configuration of faults: classification, rules, and how device nodes are polled.

use std::path::PathBuf;
use std::time::Duration;

use serde_saphyr::{Location, Spanned};
use strum::VariantArray as _;
use swansong_fault_model::{Code, DurationRule, FrequencyRule, Level, RuleError, Rules};

use super::file;
use super::parser::Parser;
use super::relay::RelaySettings;

/// How faults are reported and classified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSettings {
    /// The operator's `faultCode.json`, as this process sees it, for clusters without one.
    pub classification_file: Option<PathBuf>,
    /// The operator's own rules.
    pub rules: Rules,
    /// Whether the rules of the cluster's `faultCustomization.json` apply too.
    pub rules_from_cluster: bool,
    /// Time between two polls of the device nodes. Changes in `/dev` are watched besides.
    pub device_interval: Duration,
    /// Whether and how faults are reported to ClusterD.
    pub relay: RelaySettings,
}

impl Default for FaultSettings {
    fn default() -> Self {
        Self {
            classification_file: None,
            rules: Rules::default(),
            rules_from_cluster: false,
            device_interval: Duration::from_secs(10),
            relay: RelaySettings::default(),
        }
    }
}

impl Parser {
    pub(super) fn faults(&mut self, section: file::FaultSection) {
        let file = section.classification.unwrap_or_default().file;
        self.config.faults.classification_file =
            self.path("faults.classification.file", file).map(PathBuf::from);
        let rules = section.rules.unwrap_or_default();
        if let Some(from_cluster) = rules.from_cluster {
            self.config.faults.rules_from_cluster = from_cluster;
        }
        for (index, rule) in rules.frequency.unwrap_or_default().into_iter().enumerate() {
            self.frequency(&format!("faults.rules.frequency[{index}]"), rule.referenced, rule.value);
        }
        for (index, rule) in rules.duration.unwrap_or_default().into_iter().enumerate() {
            self.lasting(&format!("faults.rules.duration[{index}]"), rule.referenced, rule.value);
        }
        let interval = section.devices.unwrap_or_default().interval;
        if let Some(interval) = self.interval("faults.devices.interval", Duration::from_millis(100), interval)
        {
            self.config.faults.device_interval = interval;
        }
        self.relay(section.relay.unwrap_or_default());
    }

    fn frequency(&mut self, key: &str, at: Location, rule: file::Frequency) {
        let codes = self.codes(key, rule.codes);
        let level = self.level(key, &rule.level);
        let window = self.time(key, "window", &rule.window);
        // An invalid value has been reported already.
        let release = rule.release.map(|release| self.time(key, "release", &release));
        let (Some(level), Some(window), Some(release)) =
            (level, window, release.map_or(Some(None), |time| time.map(Some)))
        else {
            return;
        };
        let rule = FrequencyRule::new(rule.times.value, window, level, release);
        self.add(key, at, codes, rule, Rules::add_frequency_rule);
    }

    fn lasting(&mut self, key: &str, at: Location, rule: file::Lasting) {
        let codes = self.codes(key, rule.codes);
        let level = self.level(key, &rule.level);
        let after = self.time(key, "after", &rule.after);
        let recover =
            rule.recover.map_or(Some(Duration::ZERO), |recover| self.time(key, "recover", &recover));
        let (Some(level), Some(after), Some(recover)) = (level, after, recover) else { return };
        self.add(key, at, codes, DurationRule::new(after, recover, level), Rules::add_duration_rule);
    }

    fn add<R: Copy>(
        &mut self,
        key: &str,
        at: Location,
        codes: Vec<(Location, Code)>,
        rule: Result<R, RuleError>,
        add: impl Fn(&mut Rules, Code, R) -> bool,
    ) {
        let rule = match rule {
            Ok(rule) => rule,
            Err(error) => return self.problem(&at, key, error.to_string()),
        };
        for (at, code) in codes {
            if !add(&mut self.config.faults.rules, code.clone(), rule) {
                self.problem(
                    &at,
                    format!("{key}.codes"),
                    format!("{code} has such a rule already; keep one"),
                );
            }
        }
    }

    fn codes(&mut self, key: &str, texts: Vec<Spanned<String>>) -> Vec<(Location, Code)> {
        let mut codes = Vec::new();
        for (index, text) in texts.into_iter().enumerate() {
            match text.value.parse() {
                Ok(code) => codes.push((text.referenced, code)),
                Err(error) => {
                    let error: swansong_fault_model::InvalidCode = error;
                    self.problem(&text.referenced, format!("{key}.codes[{index}]"), error.to_string());
                }
            }
        }
        codes
    }

    fn level(&mut self, key: &str, name: &Spanned<String>) -> Option<Level> {
        let level = Level::from_name(&name.value);
        if level.is_none() {
            let names: Vec<String> = Level::VARIANTS.iter().map(Level::to_string).collect();
            let problem = format!("{:?} isn't a level; choose one of {}", name.value, names.join(", "));
            self.problem(&name.referenced, format!("{key}.level"), problem);
        }
        level
    }

    /// A duration in a rule, which has its own limits.
    fn time(&mut self, key: &str, name: &str, text: &Spanned<String>) -> Option<Duration> {
        let time = humantime::parse_duration(&text.value).ok();
        if time.is_none() {
            let problem = format!("{:?} isn't a duration; write it as 20s or 24h", text.value);
            self.problem(&text.referenced, format!("{key}.{name}"), problem);
        }
        time
    }
}

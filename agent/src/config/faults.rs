//! The configuration of device faults: whether and how they are sent to ClusterD, their classification and rules.

use std::path::PathBuf;
use std::time::Duration;

use serde_saphyr::{Location, Spanned};
use strum::VariantArray as _;
use swansong_fault_model::reconcile::Settings;
use swansong_fault_model::{Code, DurationRule, FrequencyRule, Level, RuleError, Rules};
use swansong_faults::LevelSettings;

use super::file;
use super::parser::Parser;

/// How device faults are sent to ClusterD and classified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSettings {
    /// Whether they are sent at all.
    pub enabled: bool,
    /// Whether the driver's library is used.
    pub dcmi: bool,
    /// The folder of the state, which outlives the agent.
    pub state_folder: PathBuf,
    /// When which faults are sent.
    pub pipeline: Settings,
    /// The namespace of the ConfigMap that is written if ClusterD doesn't answer; `None` for no ConfigMap.
    pub config_map_namespace: Option<String>,
    /// The gateway, if there is one.
    pub gateway: Option<GatewaySettings>,
    /// The classification and the escalation rules.
    pub levels: LevelSettings,
    /// How often the device nodes are inspected, besides whenever one changes.
    pub device_interval: Duration,
}

/// The gateway and how an agent authenticates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaySettings {
    /// The address in the form `HOST:PORT`.
    pub address: String,
    /// The file with the CA of the gateway's certificate, PEM.
    pub ca_file: PathBuf,
    /// The file with the projected service account token.
    pub token_file: PathBuf,
}

impl Default for FaultSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            dcmi: true,
            state_folder: PathBuf::from("/var/lib/swansong"),
            pipeline: Settings::default(),
            config_map_namespace: Some("swansong-agent".to_owned()),
            gateway: None,
            levels: LevelSettings::default(),
            device_interval: Duration::from_secs(10),
        }
    }
}

impl Parser {
    pub(super) fn faults(&mut self, section: file::FaultSection) {
        let mut faults =
            FaultSettings { enabled: section.enabled.unwrap_or(false), ..FaultSettings::default() };
        let pipeline = &mut faults.pipeline;
        faults.dcmi = section.dcmi.unwrap_or(faults.dcmi);
        pipeline.notices = section.notices.unwrap_or(pipeline.notices);
        pipeline.withdraw_after_dump = section.withdraw_after_dump.unwrap_or(pipeline.withdraw_after_dump);
        pipeline.fast_dump = section.fast_dump.unwrap_or(pipeline.fast_dump);
        pipeline.settle = self.delay("faults.settle", section.settle).unwrap_or(pipeline.settle);
        pipeline.settle_sub_health = self
            .delay("faults.settleSubHealth", section.settle_sub_health)
            .unwrap_or(pipeline.settle_sub_health);
        if let Some(path) = self.path("faults.stateFolder", section.state_folder) {
            faults.state_folder = PathBuf::from(path);
        }
        if let Some(namespace) = section.config_map_namespace {
            let is_name = |name: &str| {
                name.len() <= 63
                    && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
            };
            if !is_name(&namespace.value) {
                let problem =
                    format!("{:?} isn't the name of a namespace; \"\" is for none", namespace.value);
                self.problem(&namespace.referenced, "faults.configMapNamespace", problem);
            }
            faults.config_map_namespace = Some(namespace.value).filter(|name| !name.is_empty());
        }
        faults.gateway = section.gateway.and_then(|gateway| self.gateway(gateway));
        let file = section.classification.unwrap_or_default().file;
        faults.levels.file = self.path("faults.classification.file", file).map(PathBuf::from);
        let interval = section.devices.unwrap_or_default().interval;
        faults.device_interval = self
            .interval("faults.devices.interval", Duration::from_millis(100), interval)
            .unwrap_or(faults.device_interval);
        let rules = section.rules.unwrap_or_default();
        faults.levels.rules_from_cluster = rules.from_cluster.unwrap_or(false);
        self.config.faults = faults;
        for (index, rule) in rules.frequency.unwrap_or_default().into_iter().enumerate() {
            self.frequency(&format!("faults.rules.frequency[{index}]"), rule.referenced, rule.value);
        }
        for (index, rule) in rules.duration.unwrap_or_default().into_iter().enumerate() {
            self.lasting(&format!("faults.rules.duration[{index}]"), rule.referenced, rule.value);
        }
    }

    fn gateway(&mut self, section: file::Gateway) -> Option<GatewaySettings> {
        let Some(address) = section.address else {
            if let Some(path) = section.ca_file.or(section.token_file) {
                let problem = "an address is missing, HOST:PORT of the gateway".to_owned();
                self.problem(&path.referenced, "faults.gateway", problem);
            }
            return None;
        };
        let mut gateway = GatewaySettings::at(&address.value);
        if gateway.is_none() {
            let problem = format!("{:?} isn't HOST:PORT of the gateway", address.value);
            self.problem(&address.referenced, "faults.gateway.address", problem);
        }
        let ca_file = self.path("faults.gateway.caFile", section.ca_file);
        let token_file = self.path("faults.gateway.tokenFile", section.token_file);
        if let Some(gateway) = &mut gateway {
            gateway.ca_file = ca_file.map_or_else(|| gateway.ca_file.clone(), PathBuf::from);
            gateway.token_file = token_file.map_or_else(|| gateway.token_file.clone(), PathBuf::from);
        }
        gateway
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
            if !add(&mut self.config.faults.levels.rules, code.clone(), rule) {
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

impl GatewaySettings {
    /// The gateway at `address`, `HOST:PORT`, with the files where the manifests mount them.
    pub fn at(address: &str) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        let is_valid =
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0);
        is_valid.then(|| Self {
            address: address.to_owned(),
            ca_file: PathBuf::from("/var/run/swansong-gateway/ca.crt"),
            token_file: PathBuf::from("/var/run/swansong-gateway/token"),
        })
    }

    /// The name that the gateway's certificate has to have.
    pub fn server_name(&self) -> &str {
        self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host)
    }
}

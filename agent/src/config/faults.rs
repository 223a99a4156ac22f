//! The configuration of device faults: whether and how they are sent to ClusterD, their classification and rules.

use std::path::PathBuf;
use std::time::Duration;

use serde_saphyr::{Location, Spanned};
use strum::VariantArray as _;
use swansong_fault_model::reconcile::Settings;
use swansong_fault_model::{Code, DurationRule, FrequencyRule, InvalidCode, Level, RuleError, Rules};
use swansong_faults::LevelSettings;

use super::file;
use super::parser::{Parser, SHORTEST, delay, interval, path};

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
    pub(super) fn faults(&mut self, section: file::FaultSection, faults: &mut FaultSettings) {
        faults.enabled = section.enabled.unwrap_or(faults.enabled);
        faults.dcmi = section.dcmi.unwrap_or(faults.dcmi);
        let pipeline = &mut faults.pipeline;
        pipeline.notices = section.notices.unwrap_or(pipeline.notices);
        pipeline.withdraw_after_dump = section.withdraw_after_dump.unwrap_or(pipeline.withdraw_after_dump);
        pipeline.fast_dump = section.fast_dump.unwrap_or(pipeline.fast_dump);
        self.set("faults.settle", section.settle, &mut pipeline.settle, delay);
        let settle = &mut pipeline.settle_sub_health;
        self.set("faults.settleSubHealth", section.settle_sub_health, settle, delay);
        self.set("faults.stateFolder", section.state_folder, &mut faults.state_folder, file_path);
        let namespace = &mut faults.config_map_namespace;
        self.set("faults.configMapNamespace", section.config_map_namespace, namespace, optional_namespace);
        faults.gateway = section.gateway.and_then(|gateway| self.gateway(gateway));
        let file = section.classification.unwrap_or_default().file;
        self.option("faults.classification.file", file, &mut faults.levels.file, file_path);
        let at_interval = section.devices.unwrap_or_default().interval;
        self.set("faults.devices.interval", at_interval, &mut faults.device_interval, interval(SHORTEST));
        let rules = section.rules.unwrap_or_default();
        faults.levels.rules_from_cluster = rules.from_cluster.unwrap_or(false);
        for (index, rule) in rules.frequency.unwrap_or_default().into_iter().enumerate() {
            let key = format!("faults.rules.frequency[{index}]");
            self.frequency(&key, rule.referenced, rule.value, &mut faults.levels.rules);
        }
        for (index, rule) in rules.duration.unwrap_or_default().into_iter().enumerate() {
            let key = format!("faults.rules.duration[{index}]");
            self.lasting(&key, rule.referenced, rule.value, &mut faults.levels.rules);
        }
    }

    fn gateway(&mut self, section: file::Gateway) -> Option<GatewaySettings> {
        let Some(address) = section.address else {
            if let Some(path) = section.ca_file.or(section.token_file) {
                let problem = "an address is missing, HOST:PORT of the gateway";
                self.problem(&path.referenced, "faults.gateway", problem);
            }
            return None;
        };
        let gateway = self.parse("faults.gateway.address", Some(address), |address| {
            GatewaySettings::at(&address).ok_or_else(|| format!("{address:?} isn't HOST:PORT of the gateway"))
        });
        let ca_file = self.parse("faults.gateway.caFile", section.ca_file, file_path);
        let token_file = self.parse("faults.gateway.tokenFile", section.token_file, file_path);
        let gateway = gateway?;
        Some(GatewaySettings {
            ca_file: ca_file.unwrap_or(gateway.ca_file),
            token_file: token_file.unwrap_or(gateway.token_file),
            ..gateway
        })
    }

    fn frequency(&mut self, key: &str, at: Location, rule: file::Frequency, rules: &mut Rules) {
        let codes = self.codes(key, rule.codes);
        let level = self.parse(&format!("{key}.level"), Some(rule.level), level);
        let window = self.parse(&format!("{key}.window"), Some(rule.window), time);
        let has_release = rule.release.is_some();
        let release = self.parse(&format!("{key}.release"), rule.release, time);
        if let (Some(level), Some(window)) = (level, window)
            && release.is_some() == has_release
        {
            let rule = FrequencyRule::new(rule.times.value, window, level, release);
            self.add(key, &at, codes, rule, |code, rule| rules.add_frequency_rule(code, rule));
        }
    }

    fn lasting(&mut self, key: &str, at: Location, rule: file::Lasting, rules: &mut Rules) {
        let codes = self.codes(key, rule.codes);
        let level = self.parse(&format!("{key}.level"), Some(rule.level), level);
        let after = self.parse(&format!("{key}.after"), Some(rule.after), time);
        let has_recover = rule.recover.is_some();
        let recover = self.parse(&format!("{key}.recover"), rule.recover, time);
        if let (Some(level), Some(after)) = (level, after)
            && recover.is_some() == has_recover
        {
            let rule = DurationRule::new(after, recover.unwrap_or_default(), level);
            self.add(key, &at, codes, rule, |code, rule| rules.add_duration_rule(code, rule));
        }
    }

    fn add<R: Copy>(
        &mut self,
        key: &str,
        at: &Location,
        codes: Vec<(Location, Code)>,
        rule: Result<R, RuleError>,
        mut add: impl FnMut(Code, R) -> bool,
    ) {
        let Some(rule) = self.accept(key, at, rule.map_err(|error| error.to_string())) else { return };
        for (at, code) in codes {
            if !add(code.clone(), rule) {
                self.problem(
                    &at,
                    format!("{key}.codes"),
                    format!("{code} has such a rule already; keep one"),
                );
            }
        }
    }

    fn codes(&mut self, key: &str, texts: Vec<Spanned<String>>) -> Vec<(Location, Code)> {
        let codes = texts.into_iter().enumerate().filter_map(|(index, text)| {
            let at = text.referenced;
            let parse = |text: String| text.parse().map_err(|error: InvalidCode| error.to_string());
            Some((at, self.parse(&format!("{key}.codes[{index}]"), Some(text), parse)?))
        });
        codes.collect()
    }
}

fn file_path(text: String) -> Result<PathBuf, String> {
    path(text).map(PathBuf::from)
}

/// An empty name is for none.
fn optional_namespace(name: String) -> Result<Option<String>, String> {
    let is_part = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if name.len() > 63 || !name.bytes().all(is_part) {
        return Err(format!("{name:?} isn't the name of a namespace; \"\" is for none"));
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

#[expect(clippy::needless_pass_by_value, reason = "all parsers of values have this form")]
fn level(name: String) -> Result<Level, String> {
    let names = || Level::VARIANTS.iter().map(Level::to_string).collect::<Vec<_>>().join(", ");
    Level::from_name(&name).ok_or_else(|| format!("{name:?} isn't a level; choose one of {}", names()))
}

/// A duration in a rule, which has its own limits.
#[expect(clippy::needless_pass_by_value, reason = "all parsers of values have this form")]
fn time(text: String) -> Result<Duration, String> {
    humantime::parse_duration(&text).map_err(|_| format!("{text:?} isn't a duration; write it as 20s or 24h"))
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

//! What is configured of the relay: whether ClusterD is told of faults, and how.

use std::path::PathBuf;

use super::check::Checker;
use super::file;
use crate::relay::Settings;

/// How ClusterD is told of faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelaySettings {
    /// Whether it is told at all.
    pub enabled: bool,
    /// Whether the driver's own library is asked.
    pub dcmi: bool,
    /// The folder that outlives the agent, as this process sees it.
    pub outbox: PathBuf,
    /// When what is sent.
    pub settings: Settings,
    /// Where a ConfigMap is written if ClusterD doesn't answer; `None` for nowhere.
    pub config_map_namespace: Option<String>,
    /// The cluster's relay, if there is one.
    pub via: Option<Via>,
}

/// The cluster's relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    /// `https://HOST:PORT`.
    pub address: String,
    /// The certificates of the authority that signed the relay's.
    pub authority: PathBuf,
    /// The projected token that says who this is.
    pub token: PathBuf,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            enabled: false,
            dcmi: true,
            outbox: PathBuf::from("/var/lib/swansong"),
            settings: Settings::default(),
            config_map_namespace: Some("swansong-agent".to_owned()),
            via: None,
        }
    }
}

impl Checker {
    pub(super) fn relay(&mut self, section: file::Relay) {
        let mut relay = RelaySettings::default();
        if let Some(dcmi) = section.dcmi {
            relay.dcmi = dcmi;
        }
        if let Some(path) = self.path("faults.relay.outbox", section.outbox) {
            relay.outbox = PathBuf::from(path);
        }
        if let Some(time) = self.hold("faults.relay.settle", section.settle) {
            relay.settings.settle = time;
        }
        if let Some(time) = self.hold("faults.relay.settleSubHealth", section.settle_sub_health) {
            relay.settings.settle_sub_health = time;
        }
        if let Some(notices) = section.notices {
            relay.settings.notices = notices;
        }
        if let Some(recall) = section.recall_after_dump {
            relay.settings.recall_after_dump = recall;
        }
        if let Some(fast) = section.fast_dump {
            relay.settings.fast_dump = fast;
        }
        if let Some(namespace) = section.config_map_namespace {
            let is_name = |name: &str| {
                name.len() <= 63
                    && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
            };
            if !is_name(&namespace.value) {
                let problem =
                    format!("{:?} isn't the name of a namespace; \"\" is for none", namespace.value);
                self.fault(&namespace.referenced, "faults.relay.configMapNamespace", problem);
            }
            relay.config_map_namespace = Some(namespace.value).filter(|name| !name.is_empty());
        }
        if let Some(via) = section.via {
            relay.via = self.via(via);
        }
        relay.enabled = section.enabled.unwrap_or(false);
        self.config.faults.relay = relay;
    }

    fn via(&mut self, via: file::Via) -> Option<Via> {
        let address = via.address?;
        if !address.value.starts_with("https://") {
            let problem =
                format!("{:?} isn't https://HOST:PORT; tokens aren't sent in the clear", address.value);
            self.fault(&address.referenced, "faults.relay.via.address", problem);
        }
        let authority = self.path("faults.relay.via.authority", via.authority);
        let token = self.path("faults.relay.via.token", via.token);
        Some(Via {
            address: address.value,
            authority: authority.map_or_else(|| PathBuf::from("/etc/swansong/relay/ca.crt"), PathBuf::from),
            token: token.map_or_else(|| PathBuf::from("/var/run/secrets/swansong/token"), PathBuf::from),
        })
    }
}

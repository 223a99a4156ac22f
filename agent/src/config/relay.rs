//! The configuration of reporting faults to ClusterD.

use std::path::PathBuf;

use super::file;
use super::parser::Parser;
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
    /// `HOST:PORT`.
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

impl Parser {
    pub(super) fn relay(&mut self, section: file::Relay) {
        let mut relay = RelaySettings::default();
        if let Some(dcmi) = section.dcmi {
            relay.dcmi = dcmi;
        }
        if let Some(path) = self.path("faults.relay.outbox", section.outbox) {
            relay.outbox = PathBuf::from(path);
        }
        if let Some(time) = self.delay("faults.relay.settle", section.settle) {
            relay.settings.settle = time;
        }
        if let Some(time) = self.delay("faults.relay.settleSubHealth", section.settle_sub_health) {
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
                self.problem(&namespace.referenced, "faults.relay.configMapNamespace", problem);
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
        let Some(address) = via.address else {
            if let Some(path) = via.authority.or(via.token) {
                let problem = "an address is missing, HOST:PORT of the cluster's relay".to_owned();
                self.problem(&path.referenced, "faults.relay.via", problem);
            }
            return None;
        };
        let mut relay = Via::at(&address.value);
        if relay.is_none() {
            let problem = format!("{:?} isn't HOST:PORT of the cluster's relay", address.value);
            self.problem(&address.referenced, "faults.relay.via.address", problem);
        }
        let authority = self.path("faults.relay.via.authority", via.authority);
        let token = self.path("faults.relay.via.token", via.token);
        if let Some(relay) = &mut relay {
            relay.authority = authority.map_or_else(|| relay.authority.clone(), PathBuf::from);
            relay.token = token.map_or_else(|| relay.token.clone(), PathBuf::from);
        }
        relay
    }
}

impl Via {
    /// The relay at `address`, `HOST:PORT`, with its files where the manifests mount them.
    pub fn at(address: &str) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        let is_valid =
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0);
        is_valid.then(|| Self {
            address: address.to_owned(),
            authority: PathBuf::from("/var/run/swansong-relay/ca.crt"),
            token: PathBuf::from("/var/run/swansong-relay/token"),
        })
    }

    /// The name that the relay's certificate has to have.
    pub fn server_name(&self) -> &str {
        self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host)
    }
}

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
    /// The gateway, if there is one.
    pub gateway: Option<GatewaySettings>,
}

/// The gateway and how an agent authenticates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaySettings {
    /// `HOST:PORT`.
    pub address: String,
    /// The file with the CA of the gateway's certificate, PEM.
    pub ca_file: PathBuf,
    /// The file with the projected service account token.
    pub token_file: PathBuf,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            enabled: false,
            dcmi: true,
            outbox: PathBuf::from("/var/lib/swansong"),
            settings: Settings::default(),
            config_map_namespace: Some("swansong-agent".to_owned()),
            gateway: None,
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
        if let Some(gateway) = section.gateway {
            relay.gateway = self.gateway(gateway);
        }
        relay.enabled = section.enabled.unwrap_or(false);
        self.config.faults.relay = relay;
    }

    fn gateway(&mut self, section: file::Gateway) -> Option<GatewaySettings> {
        let Some(address) = section.address else {
            if let Some(path) = section.ca_file.or(section.token_file) {
                let problem = "an address is missing, HOST:PORT of the gateway".to_owned();
                self.problem(&path.referenced, "faults.relay.gateway", problem);
            }
            return None;
        };
        let mut gateway = GatewaySettings::at(&address.value);
        if gateway.is_none() {
            let problem = format!("{:?} isn't HOST:PORT of the gateway", address.value);
            self.problem(&address.referenced, "faults.relay.gateway.address", problem);
        }
        let ca_file = self.path("faults.relay.gateway.caFile", section.ca_file);
        let token_file = self.path("faults.relay.gateway.tokenFile", section.token_file);
        if let Some(gateway) = &mut gateway {
            gateway.ca_file = ca_file.map_or_else(|| gateway.ca_file.clone(), PathBuf::from);
            gateway.token_file = token_file.map_or_else(|| gateway.token_file.clone(), PathBuf::from);
        }
        gateway
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

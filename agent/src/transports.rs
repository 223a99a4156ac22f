//! The transports to ClusterD that are configured.

use std::time::Duration;

use kube::Client;
use swansong_clusterd_client::{AddressError, GrpcClient};
use swansong_faults::{ConfigMapTransport, Gateway, Transports};
use swansong_gateway::client::{self, GatewayClient};

use crate::config::{Config, GatewaySettings};

/// The gateway answers when ClusterD has.
const GATEWAY_TIMEOUT: Duration = Duration::from_secs(45);

/// The transports of `node`.
///
/// # Errors
///
/// When ClusterD's address is invalid.
pub(crate) fn transports(config: &Config, client: &Client, node: &str) -> Result<Transports, AddressError> {
    let clusterd = &config.checks.clusterd;
    let gateway = config.faults.gateway.as_ref().map(|gateway: &GatewaySettings| {
        Gateway::new(GatewayClient::new(client::Settings {
            address: gateway.address.clone(),
            server_name: gateway.server_name().to_owned(),
            ca_file: gateway.ca_file.clone(),
            token_file: gateway.token_file.clone(),
            connect_timeout: clusterd.timeout,
            request_timeout: GATEWAY_TIMEOUT,
        }))
    });
    let namespace = config.faults.config_map_namespace.as_ref();
    Ok(Transports {
        gateway,
        grpc: GrpcClient::new(&format!("http://{}", clusterd.address), clusterd.timeout)?,
        config_map: namespace.map(|namespace| ConfigMapTransport::new(client.clone(), namespace, node)),
    })
}

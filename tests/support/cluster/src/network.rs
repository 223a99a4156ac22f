//! The addresses of one cluster with a node, and the host's end of the link to it.
//!
//! A node has its own network namespace, joined to the host by one veth pair. Bridges,
//! firewall rules and addresses of pods exist in there only, so two clusters can't meet and the
//! kernel removes everything with the namespace. On the host there are the pair's one end and the
//! routes through it.
//!
//! All addresses are from 198.18.0.0/15, which RFC 2544 sets aside for tests of network devices:
//! no network that a developer's machine is part of should use them.

use std::fs::{self, File, TryLockError};
use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::process::{run, system_command};

/// How many clusters with a node may exist on a machine at once.
const SLOTS: u8 = 64;

/// The addresses of one cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) slot: u8,
    pub(crate) host: Ipv4Addr,
    pub(crate) node: Ipv4Addr,
    pub(crate) pods: String,
    pub(crate) services: String,
    pub(crate) first_service: Ipv4Addr,
}

impl Network {
    fn of_slot(slot: u8) -> Self {
        Self {
            slot,
            host: Ipv4Addr::new(198, 19, slot, 253),
            node: Ipv4Addr::new(198, 19, slot, 254),
            pods: format!("198.18.{slot}.0/24"),
            services: format!("198.19.{slot}.0/25"),
            first_service: Ipv4Addr::new(198, 19, slot, 1),
        }
    }

    /// A name for everything of this cluster that is visible on the whole machine.
    pub(crate) fn label(&self) -> String {
        format!("swansong-testcluster-{}", self.slot)
    }

    /// The host's end of the link.
    pub(crate) fn host_interface(&self) -> String {
        format!("swansong{}", self.slot)
    }

    /// The node's end of the link, in its own namespace.
    pub(crate) const NODE_INTERFACE: &str = "eth0";
}

/// A network that is this process's alone, for as long as this value lives.
pub(crate) struct Lease {
    pub(crate) network: Network,
    _lock: File,
}

impl Lease {
    /// Takes the first network that is free, and clears what a killed cluster left in it.
    pub(crate) fn take() -> Result<Self, Error> {
        // All clusters of a machine must agree on the place, and only root may write to it.
        let folder = Path::new("/run/swansong-testcluster");
        fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
        for slot in 0..SLOTS {
            let network = Network::of_slot(slot);
            let path = folder.join(format!("{}.lock", network.label()));
            let lock = File::create(&path).map_err(Error::file("create", &path))?;
            match lock.try_lock() {
                Ok(()) => {
                    remove_link(&network);
                    return Ok(Self { network, _lock: lock });
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(Error::file("lock", &path)(error)),
            }
        }
        Err(Error::NoFreeNetwork(SLOTS))
    }
}

/// Makes the link, from inside the node's namespace; the other end is given to the host's, which
/// is that of the process `host`.
pub(crate) fn make_link(network: &Network, host: u32) -> Result<(), Error> {
    let interface = network.host_interface();
    ip(&format!("link add {} type veth peer name {interface} netns {host}", Network::NODE_INTERFACE))
}

/// Gives the node's end its address and routes, from inside the node's namespace. There is no
/// default route: pods reach the cluster and this machine, and nothing else.
pub(crate) fn configure_node_end(network: &Network) -> Result<(), Error> {
    let Network { node, host, services, .. } = network;
    let interface = Network::NODE_INTERFACE;
    ip("link set lo up")?;
    ip(&format!("address add {node}/30 dev {interface}"))?;
    ip(&format!("link set {interface} up"))?;
    // So that kube-proxy sees packets for Services from the node's own processes, too.
    ip(&format!("route add {services} via {host} dev {interface}"))?;
    let forward = "/proc/sys/net/ipv4/ip_forward";
    fs::write(forward, "1").map_err(Error::io(format!("write {forward}")))
}

/// Gives the host's end its address and the routes to pods and Services.
pub(crate) fn configure_host_end(network: &Network) -> Result<(), Error> {
    let Network { node, host, pods, services, .. } = network;
    let interface = network.host_interface();
    ip(&format!("address add {host}/30 dev {interface}"))?;
    ip(&format!("link set {interface} up"))?;
    for destination in [pods, services] {
        ip(&format!("route add {destination} via {node} dev {interface}"))?;
    }
    Ok(())
}

/// Removes the link, with it the routes. The kernel removes it with the node's namespace, but the
/// kernel takes its time for that.
pub(crate) fn remove_link(network: &Network) {
    // It fails when there is nothing to remove.
    let _ = ip(&format!("link delete {}", network.host_interface()));
}

fn ip(arguments: &str) -> Result<(), Error> {
    run(system_command("ip").args(arguments.split(' '))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_are_short_enough() {
        // The kernel allows 15 bytes.
        assert!(Network::of_slot(SLOTS - 1).host_interface().len() <= 15);
    }

    #[test]
    fn networks_of_two_slots_share_nothing() {
        let (one, other) = (Network::of_slot(0), Network::of_slot(1));
        assert_ne!(one.pods, other.pods);
        assert_ne!(one.services, other.services);
        assert_ne!(one.host, other.host);
        assert_ne!(one.label(), other.label());
    }
}

//! The input of the checks that isn't in the host's files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use procfs::process::Process;

use super::Settings;
use super::clock::ReferenceClock;
use super::clusterd::{DialOutcome, dial};
use super::mounts;
use super::port_owners::PortOwners;
use crate::host::{HostRoot, Machine};

/// The input of the checks besides the host's files.
#[derive(Debug, Clone)]
pub struct CheckContext {
    /// The node's clock.
    pub now: SystemTime,
    /// The API server's clock, if known.
    pub reference: Option<ReferenceClock>,
    /// The result of dialling ClusterD; `None` leaves the check out.
    pub clusterd: Option<DialOutcome>,
    /// The node's processor.
    pub machine: Machine,
    /// Mounts of deleted folders, as paths inside the host root.
    pub stale_mounts: Vec<PathBuf>,
    /// Where the owners of ports were found last. It affects the cost of a check, not its result.
    pub port_owners: Arc<PortOwners>,
    /// The number of NPUs by the node's capacity; the configured number has precedence.
    pub expected_npus: Option<u32>,
}

impl CheckContext {
    /// The clock and the processor of this machine.
    pub fn local() -> Self {
        Self {
            now: SystemTime::now(),
            reference: None,
            clusterd: None,
            machine: Machine::HOST,
            stale_mounts: Vec::new(),
            port_owners: Arc::default(),
            expected_npus: None,
        }
    }

    /// Gathers everything that is known without an API server; dials ClusterD if the settings say so.
    pub fn gather(root: &HostRoot, settings: &Settings) -> Self {
        let clusterd = &settings.clusterd;
        let outcome = clusterd.dial.then(|| dial(&clusterd.address, clusterd.timeout));
        Self { clusterd: outcome, ..Self::local() }.with_mounts(root)
    }

    /// Adds the stale mounts below `root`.
    #[must_use]
    pub fn with_mounts(self, root: &HostRoot) -> Self {
        // Without its own /proc the agent sees no mounts; the checks of the files still work.
        let mounts = Process::myself().and_then(|process| process.mountinfo());
        let stale_mounts = mounts.map(|mounts| mounts::stale(mounts, root.path())).unwrap_or_default();
        Self { stale_mounts, ..self }
    }
}

//! What the checks need and no file of the host tells.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use procfs::process::Process;

use super::clock::Reference;
use super::clusterd::{Dialled, dial};
use super::mounts;
use super::port_owners::PortOwners;
use crate::config::Config;
use crate::elf::Machine;
use crate::root::HostRoot;

/// The edge: gathered once, handed to the pure checks.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// What the clock shows.
    pub now: SystemTime,
    /// Another clock, if one was heard.
    pub reference: Option<Reference>,
    /// How ClusterD answered; `None` leaves the check out.
    pub clusterd: Option<Dialled>,
    /// The node's processor.
    pub machine: Machine,
    /// Mounts that show what was deleted, as paths inside the host root.
    pub dead_mounts: Vec<PathBuf>,
    /// Where the owners of ports were found last; it changes what a look costs, not what it says.
    pub port_owners: Arc<PortOwners>,
    /// How many NPUs the node has to have, if its capacity tells; configuration goes before it.
    pub expected_npus: Option<u32>,
}

impl Surroundings {
    /// Asks the clock, ClusterD and this process's own mounts.
    pub fn look(root: &HostRoot, config: &Config) -> Self {
        let clusterd = config.clusterd.dial.then(|| dial(&config.clusterd.address, config.clusterd.timeout));
        Self { clusterd, ..Self::here() }.with_mounts(root)
    }

    /// With the mounts below `root` that are dead.
    #[must_use]
    pub fn with_mounts(self, root: &HostRoot) -> Self {
        // Without /proc of its own the agent sees no mounts; the checks of the files still tell.
        let mounts = Process::myself().and_then(|process| process.mountinfo());
        let dead_mounts = mounts.map(|mounts| mounts::dead(mounts, root.at())).unwrap_or_default();
        Self { dead_mounts, ..self }
    }

    /// The clock and the processor, and nothing that takes time.
    pub fn here() -> Self {
        Self {
            now: SystemTime::now(),
            reference: None,
            clusterd: None,
            machine: Machine::HERE,
            dead_mounts: Vec::new(),
            port_owners: Arc::default(),
            expected_npus: None,
        }
    }
}

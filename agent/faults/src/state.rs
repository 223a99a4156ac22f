//! What outlives the process: one file, written whole.
//!
//! The file names its version and has a checksum. One that can't be used is set aside, and the agent starts empty: the
//! sources report again what is active, and ClusterD shows what it has, so that nothing is lost but the memory of what
//! was only waiting.

mod file;
mod saver;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use swansong_fault_model::{Fault, SavedTrack};

use crate::outcomes::FollowedFault;

pub(crate) use self::file::StateFile;
pub(crate) use self::saver::Saver;

/// What outlives the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct State {
    /// The faults that haven't ended at ClusterD.
    pub faults: Vec<Fault>,
    /// The jobs that faults hit, until their outcomes are known.
    pub outcomes: BTreeMap<String, FollowedFault>,
    /// The counters of the escalation rules.
    pub escalation: Vec<SavedTrack>,
}

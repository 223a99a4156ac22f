//! What the process that watches writes: a line of JSON for each thing. Writer and reader are the same build.

use serde::{Deserialize, Serialize};
use swansong_fault_model::SourceUpdate;

use crate::library::{Api, Device};

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// Something was seen.
    Update(SourceUpdate),
    /// How it watches; told when that changes.
    State(State),
    /// The thread that calls the library moves. It isn't written while a call hangs.
    Alive(Counts),
    /// The driver can't be talked to yet; it is tried again.
    Trouble(String),
    /// The last line: why it ends.
    Ended(String),
}

/// How it watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Where the library is.
    pub library: String,
    /// The generation of the API.
    pub api: Api,
    /// The version of the API.
    pub dcmi_version: Option<String>,
    /// The version of the driver, if it tells it.
    pub driver_version: Option<String>,
    /// The NPUs.
    pub devices: Vec<Device>,
    /// Devices without a name that anybody would understand, and why; they aren't watched.
    pub unnamed: Vec<String>,
    /// How faults come.
    pub mode: Mode,
}

/// How faults come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Not known yet.
    Subscribing,
    /// The driver tells them.
    Subscribed,
    /// They are asked for: there is no subscription, and why.
    Polling(String),
}

/// What has been counted since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Events of the driver that were taken.
    pub events: u64,
    /// Events that were lost because too many waited. All devices were asked again.
    pub lost: u64,
    /// Events of devices that aren't known.
    pub unknown_device: u64,
    /// Events that are no faults, or can't be understood.
    pub ignored: u64,
}

//! The lines of JSON that the watching process writes. Writer and reader are the same build.

use serde::{Deserialize, Serialize};
use swansong_fault_model::SourceUpdate;

use crate::ffi::Api;
use crate::library::Device;

/// A line of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// A snapshot or an event of a device.
    Update(SourceUpdate),
    /// How it watches; written when that changes.
    State(State),
    /// A heartbeat of the thread that calls the library; missing while a call hangs.
    Alive(Counts),
    /// The driver doesn't respond yet; the process retries.
    Trouble(String),
    /// The last line: why the process exits.
    Ended(String),
}

/// How it watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The path of the library.
    pub library: String,
    /// The generation of the API.
    pub api: Api,
    /// The version of the API.
    pub dcmi_version: Option<String>,
    /// The version of the driver, if it reports one.
    pub driver_version: Option<String>,
    pub devices: Vec<Device>,
    /// Devices without an unambiguous id, and why; they aren't watched.
    pub unnamed: Vec<String>,
    /// How faults are detected.
    pub mode: Mode,
}

/// How faults are detected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Attempting to subscribe.
    Subscribing,
    /// By events of the driver, and rare polls.
    Subscribed,
    /// By polls only, and why there is no subscription.
    Polling(String),
}

/// Counters since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub events: u64,
    /// Events that were lost because the queue was full; all devices were polled then.
    pub lost: u64,
    /// Events of unknown devices.
    pub unknown_device: u64,
    /// Events that are no faults or invalid.
    pub ignored: u64,
}

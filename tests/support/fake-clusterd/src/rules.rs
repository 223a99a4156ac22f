//! Validation of messages and faults, as in `checker.go`.

use swansong_clusterd_client::proto::{Fault, PubFaultInfo, PublicFaultRequest};

use crate::whitelist::Whitelist;

/// 2025-01-01T00:00:00Z in milliseconds since 1970.
const EARLIEST: i64 = 1_735_689_600_000;

/// Validates the message's envelope; the error is ClusterD's text.
pub fn envelope(message: &PublicFaultRequest, whitelist: &Whitelist) -> Result<(), &'static str> {
    if !is_id(&message.id) {
        Err("invalid id")
    } else if !is_time(message.timestamp) {
        Err("invalid timestamp")
    } else if message.version != "1.0" {
        Err("invalid version")
    } else if !whitelist.knows_resource(&message.resource) {
        Err("invalid resource")
    } else if !(1..=100).contains(&message.faults.len()) {
        Err("invalid faults length")
    } else {
        Ok(())
    }
}

/// Validates a fault; the error is the text in ClusterD's log.
pub fn fault(fault: &Fault, whitelist: &Whitelist) -> Result<(), &'static str> {
    if !is_id(&fault.fault_id) {
        Err("invalid fault id")
    } else if !["NPU", "Node", "Network", "Storage"].contains(&fault.fault_type.as_str()) {
        Err("invalid fault type")
    } else if fault.fault_code.len() != 9 {
        Err("invalid fault code")
    } else if whitelist.level(&fault.fault_code).is_none() {
        Err("invalid fault code, not exist in the configuration file")
    } else if !is_time(fault.fault_time) {
        Err("invalid fault time")
    } else if !["occur", "recover", "once"].contains(&fault.assertion.as_str()) {
        Err("invalid fault assertion")
    } else if fault.fault_location.len() > 10
        || fault.fault_location.iter().any(|(key, value)| key.len() > 16 || value.len() > 128)
    {
        Err("invalid fault location")
    } else if !(1..=1000).contains(&fault.influence.len()) {
        Err("invalid influence length")
    } else if let Some(problem) = fault.influence.iter().find_map(|one| influence(one).err()) {
        Err(problem)
    } else if fault.description.chars().count() > 512
        || fault.description.contains(['\t', '\n', '\x0c', '\r'])
    {
        Err("invalid fault description")
    } else {
        Ok(())
    }
}

fn influence(influence: &PubFaultInfo) -> Result<(), &'static str> {
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let name = influence.node_name.as_bytes();
    let is_name = name.len() <= 253
        && name.first().is_some_and(edge)
        && name.last().is_some_and(edge)
        && name.iter().all(|byte| edge(byte) || matches!(byte, b'-' | b'.'));
    // ClusterD accepts an empty serial number, under which it registers nodes without the annotation.
    let is_known = is_name || (name.is_empty() && influence.node_sn.is_empty());
    let ids = &influence.device_ids;
    let duplicate = ids.iter().enumerate().any(|(i, id)| ids[..i].contains(id));
    if !is_known {
        Err("invalid node name or node sn")
    } else if !(1..=32).contains(&ids.len()) {
        Err("invalid device id length")
    } else if duplicate {
        Err("invalid device id, duplicate ids")
    } else if ids.iter().any(|id| !(0..=31).contains(id)) {
        Err("invalid device id")
    } else {
        Ok(())
    }
}

fn is_id(id: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (8..=128).contains(&id.len()) && id.bytes().all(legal)
}

fn is_time(time: i64) -> bool {
    (EARLIEST..=9_999_999_999_999).contains(&time)
}

//! The transport by ConfigMaps: which of their changes ClusterD reads.

use std::collections::HashMap;

use serde::Deserialize;
use swansong_clusterd_client::proto::{Fault, PubFaultInfo, PublicFaultRequest};

/// The contents of the ConfigMaps with the label, by namespace and name.
#[derive(Debug, Default)]
pub struct Route(HashMap<String, String>);

impl Route {
    /// Adds a ConfigMap that exists when ClusterD starts; it isn't read.
    pub fn existing(&mut self, name: &str, content: &str) {
        self.0.insert(name.to_owned(), content.to_owned());
    }

    /// The message of a ConfigMap that was created or changed. ClusterD parses the old version first, and drops the new one
    /// if that fails.
    pub fn applied(&mut self, name: &str, content: &str) -> Option<PublicFaultRequest> {
        let old = self.0.insert(name.to_owned(), content.to_owned());
        if old.is_some_and(|old| parse(&old).is_none()) {
            return None;
        }
        parse(content)
    }

    /// Removes a ConfigMap. Its faults remain active.
    pub fn deleted(&mut self, name: &str) {
        self.0.remove(name);
    }
}

#[derive(Deserialize)]
#[serde(default)]
struct Message {
    id: String,
    timestamp: i64,
    version: String,
    resource: String,
    faults: Vec<JsonFault>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonFault {
    fault_id: String,
    fault_type: String,
    fault_code: String,
    fault_time: i64,
    assertion: String,
    fault_location: HashMap<String, String>,
    influence: Vec<Influence>,
    description: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Influence {
    #[serde(rename = "nodeName")]
    node_name: String,
    #[serde(rename = "nodeSN")]
    node_sn: String,
    #[serde(rename = "deviceIds")]
    device_ids: Vec<i32>,
}

impl Default for Message {
    fn default() -> Self {
        let empty = String::new;
        Self { id: empty(), timestamp: 0, version: empty(), resource: empty(), faults: Vec::new() }
    }
}

fn parse(content: &str) -> Option<PublicFaultRequest> {
    let Message { id, timestamp, version, resource, faults } = serde_json::from_str(content).ok()?;
    let influence = |one: Influence| PubFaultInfo {
        node_name: one.node_name,
        node_sn: one.node_sn,
        device_ids: one.device_ids,
    };
    let fault = |fault: JsonFault| Fault {
        fault_id: fault.fault_id,
        fault_type: fault.fault_type,
        fault_code: fault.fault_code,
        fault_time: fault.fault_time,
        assertion: fault.assertion,
        fault_location: fault.fault_location,
        influence: fault.influence.into_iter().map(influence).collect(),
        description: fault.description,
    };
    let faults = faults.into_iter().map(fault).collect();
    Some(PublicFaultRequest { id, timestamp, version, resource, faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = r#"{"id": "swansong-1", "faults": []}"#;

    #[test]
    fn ignores_existing_config_maps_until_they_change() {
        let mut route = Route::default();
        route.existing("ns/a", SOUND);
        assert!(route.applied("ns/a", SOUND).is_some(), "a touch is enough");
        assert!(route.applied("ns/b", SOUND).is_some(), "a new one is read at once");
    }

    #[test]
    fn drops_the_first_change_after_invalid_contents() {
        let mut route = Route::default();
        assert!(route.applied("ns/a", "{").is_none());
        assert!(route.applied("ns/a", SOUND).is_none(), "its old version is invalid");
        assert!(route.applied("ns/a", SOUND).is_some());
        route.deleted("ns/a");
        assert!(route.applied("ns/a", SOUND).is_some());
    }
}

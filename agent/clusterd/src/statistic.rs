//! The faults that ClusterD has registered: the ConfigMap `statistic-fault-info`.
//!
//! Its key `PublicFaults` is an object that maps node names to active faults. ClusterD updates it about a second after a
//! change, and loads it when it starts. Beyond 4,500 faults (1 MB) the key is no longer updated and `Description` says so. Source: `docs/zh/scheduling/06_api/04_clusterd/00_cluster_resources.md` and
//! `clusterd/pkg/domain/statistics/fault.go` of MindCluster.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::class::{Class, RESOURCE};

/// The ConfigMap's namespace.
pub const NAMESPACE: &str = "cluster-system";
/// The ConfigMap's name.
pub const NAME: &str = "statistic-fault-info";
/// The key with the faults.
pub const FAULTS: &str = "PublicFaults";
/// The key that exists only if faults are missing.
pub const DESCRIPTION: &str = "Description";

/// The registered faults of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFaults<'a> {
    /// Our active faults on the node, in the order of the ConfigMap.
    pub faults: Vec<RegisteredFault<'a>>,
    /// Whether the list is complete.
    pub complete: bool,
}

/// A fault that ClusterD has registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredFault<'a> {
    pub id: Cow<'a, str>,
    /// Its class; `None` for a code that isn't Swansong's.
    pub class: Option<Class>,
    /// The level that ClusterD gives the code, such as `SeparateNPU`.
    pub level: Option<Cow<'a, str>>,
}

/// The ConfigMap is invalid.
#[derive(Debug, thiserror::Error)]
#[error("`{FAULTS}` of the ConfigMap {NAMESPACE}/{NAME} isn't what ClusterD writes: {0}")]
pub struct InvalidStatistic(#[from] serde_json::Error);

/// Swansong's active faults on `node`. `faults` and `description` are the values of the keys [`FAULTS`] and [`DESCRIPTION`];
/// without the ConfigMap or the key there are none. Faults of other senders, unknown members and unknown entries are ignored.
pub fn node_faults<'a>(
    faults: Option<&'a str>,
    description: Option<&str>,
    node: &str,
) -> Result<NodeFaults<'a>, InvalidStatistic> {
    let complete = description.is_none_or(str::is_empty);
    let faults = match faults.filter(|text| !text.trim().is_empty()) {
        Some(text) => {
            let mut json = serde_json::Deserializer::from_str(text);
            let found = json.deserialize_option(Nodes { node })?;
            json.end()?;
            found
        }
        None => Vec::new(),
    };
    Ok(NodeFaults { faults, complete })
}

/// Parses one node's faults and skips all others without allocation, as the object may have a megabyte.
struct Nodes<'n> {
    node: &'n str,
}

impl<'de> Visitor<'de> for Nodes<'_> {
    type Value = Vec<RegisteredFault<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from nodes to faults")
    }

    /// `null` is an empty map in Go.
    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut nodes: A) -> Result<Self::Value, A::Error> {
        let mut ids = Vec::new();
        while let Some(Text(node)) = nodes.next_key()? {
            if node == self.node {
                let entries = nodes.next_value::<Option<Vec<Entry<'_>>>>()?.unwrap_or_default();
                ids = entries.into_iter().filter_map(Entry::own_fault).collect();
            } else {
                nodes.next_value::<IgnoredAny>()?;
            }
        }
        Ok(ids)
    }
}

/// Borrows if possible; serde would copy a bare `Option<Cow<str>>`.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The needed members of a fault; Go omits empty ones.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(borrow, default)]
    resource: Option<Text<'a>>,
    #[serde(borrow, default)]
    fault_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    fault_code: Option<Text<'a>>,
    #[serde(borrow, default)]
    level: Option<Text<'a>>,
}

impl<'a> Entry<'a> {
    /// The fault, if Swansong sent it.
    fn own_fault(self) -> Option<RegisteredFault<'a>> {
        if self.resource?.0 != RESOURCE {
            return None;
        }
        let class = self.fault_code.and_then(|Text(code)| Class::of(&code));
        Some(RegisteredFault { id: self.fault_id?.0, class, level: self.level.map(|Text(level)| level) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value as written by ClusterD.
    const FAULTS: &str = r#"{"worker-1":[{"resource":"CCAE","devIds":[0],"faultId":"other-0001","type":"NPU","faultCode":"020001001","level":"SeparateNPU","faultTime":1756000000}],
        "worker-7":[{"resource":"swansong","devIds":[3],"faultId":"worker-7.npu3.1.1756000000000","type":"NPU","faultCode":"020011001","level":"SeparateNPU","faultTime":1756000000},
                    {"resource":"pingmesh","faultId":"swansong-not","devIds":[3]},
                    {"resource":"swansong","faultId":"worker-7.npu4.1.1756000000000","new":{"deep":[1]}},
                    {"faultId":"nobodys"}],
        "worker-8":null}"#;

    fn ids(faults: &str, node: &str) -> Vec<String> {
        let found = node_faults(Some(faults), None, node).expect("a statistic");
        assert!(found.complete);
        found.faults.into_iter().map(|fault| fault.id.into_owned()).collect()
    }

    #[test]
    fn finds_swansongs_faults_of_the_node() {
        assert_eq!(
            ids(FAULTS, "worker-7"),
            ["worker-7.npu3.1.1756000000000", "worker-7.npu4.1.1756000000000"]
        );
        for node in ["worker-1", "worker-8", "worker", ""] {
            assert_eq!(ids(FAULTS, node), Vec::<String>::new(), "{node}");
        }
    }

    #[test]
    fn ids_are_borrowed() {
        let found = node_faults(Some(FAULTS), None, "worker-7").expect("a statistic");
        assert!(found.faults.iter().all(|fault| matches!(fault.id, Cow::Borrowed(_))));
        let registered = found.faults.iter().map(|fault| (fault.class, fault.level.as_deref()));
        assert_eq!(
            registered.collect::<Vec<_>>(),
            [(Some(Class::ChipSeparate), Some("SeparateNPU")), (None, None)]
        );
        assert_eq!(ids(r#"{"a":[{"resource":"swan\u0073ong","faultId":"a\u002eb"}]}"#, "a"), ["a.b"]);
    }

    #[test]
    fn missing_or_empty_values_are_no_faults() {
        for faults in [None, Some(""), Some("null"), Some("{}")] {
            let found = node_faults(faults, None, "worker-7").expect("a statistic");
            assert_eq!(found, NodeFaults { faults: Vec::new(), complete: true });
        }
    }

    #[test]
    fn description_means_incomplete() {
        let description = "The current total number of faults is too large";
        assert!(!node_faults(Some(FAULTS), Some(description), "worker-7").expect("a statistic").complete);
    }

    #[test]
    fn invalid_values_are_errors() {
        for faults in ["[]", "{", "7", r#"{"worker-7": {}}"#, r#"{"worker-7": [7]}"#, "{} x"] {
            assert!(node_faults(Some(faults), None, "worker-7").is_err(), "{faults}");
        }
    }
}

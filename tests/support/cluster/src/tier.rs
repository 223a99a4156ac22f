//! How much of a cluster is started.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How much of a cluster is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// etcd and the API server. Objects can be stored, admitted, watched; nothing acts on them.
    /// Needs no privileges.
    Api,
    /// Also controllers, scheduler and one node that runs pods. Needs root.
    Node,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "api",
            Self::Node => "node",
        })
    }
}

impl std::str::FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "api" => Ok(Self::Api),
            "node" => Ok(Self::Node),
            other => Err(format!("there is no tier {other:?}; say `api` or `node`")),
        }
    }
}

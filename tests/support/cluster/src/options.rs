//! What kind of cluster to start.

use std::collections::BTreeMap;

use crate::Tier;

/// What kind of cluster to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much of a cluster.
    pub tier: Tier,
    /// Extended resources that the node offers, by name. Only a tier with a node has any.
    pub resources: BTreeMap<String, String>,
    /// The API server's `--enable-aggregator-routing`: it dials the endpoints of a webhook's Service itself.
    ///
    /// Without it, as in most clusters, it dials the Service's address, and kube-proxy leads it to a pod. That takes
    /// a tier with a node; a tier without has no other way than the endpoints.
    pub aggregator_routing: bool,
    /// Whether kube-router enforces NetworkPolicies on the node. Otherwise, nothing does.
    pub network_policies: bool,
}

impl From<Tier> for Options {
    fn from(tier: Tier) -> Self {
        let npus = ("huawei.com/Ascend910".to_owned(), "8".to_owned());
        Self {
            tier,
            resources: BTreeMap::from([npus]),
            aggregator_routing: tier == Tier::Api,
            network_policies: false,
        }
    }
}

//! Reads what the checks need, and no more: lists are paged, few requests are open at once, and each has a timeout.

mod bundle;
mod cluster;
mod fault;
mod installation;
mod jobs;
mod nodes;
mod reader;

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use kube::Client;

pub use self::bundle::material;
pub use self::fault::evidence;
pub(crate) use self::jobs::{group_name, owner};
pub use self::reader::Reader;
use crate::snapshot::{Job, Snapshot};

/// The namespace of the webhook.
pub const WEBHOOK_NAMESPACE: &str = "swansong-system";
/// The namespace of the agents.
pub const AGENT_NAMESPACE: &str = "swansong-agent";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Only the installation and the cluster.
    Cluster,
    /// A job, and the nodes of its Pods.
    Job { namespace: String, name: String },
    /// All jobs that ask for a dump, of one namespace or of all, and all nodes with an agent.
    All { namespace: Option<String> },
    /// One node, without jobs.
    Node(String),
}

/// Takes a snapshot. `on_progress` is called with what is read next.
pub async fn collect(client: Client, scope: &Scope, on_progress: &dyn Fn(&str)) -> Snapshot {
    let reader = Reader::new(client);
    on_progress("the installation and the cluster");
    let (installation, cluster) = futures::join!(installation::collect(&reader), cluster::collect(&reader));
    on_progress("jobs");
    let jobs = match scope {
        Scope::Cluster | Scope::Node(_) => Vec::new(),
        Scope::Job { namespace, name } => vec![jobs::collect_one(&reader, namespace, name).await],
        Scope::All { namespace } => jobs::collect_all(&reader, namespace.as_deref()).await,
    };
    let used = nodes_of(&jobs);
    on_progress("nodes and their agents");
    let nodes = match scope {
        Scope::Cluster => Vec::new(),
        Scope::Node(name) => nodes::collect(&reader, &BTreeSet::from([name.clone()])).await,
        Scope::Job { .. } => nodes::collect(&reader, &used).await,
        Scope::All { .. } => nodes::collect_all(&reader, &used).await,
    };
    Snapshot { taken_at: now(), installation: Some(installation), cluster: Some(cluster), jobs, nodes }
}

/// The nodes of the Pods of `jobs`.
fn nodes_of(jobs: &[Job]) -> BTreeSet<String> {
    let pods = jobs.iter().flat_map(Job::running_pods);
    pods.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
}

/// This machine's time, in milliseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

//! Nodes, and what their agents say.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use swansong_fault_model::device_plugin;

use super::AGENT_NAMESPACE;
use super::installation::{health_port, proxy_path};
use super::reader::Reader;
use crate::snapshot::{AgentStatus, NodeSnapshot, Seen, phase};

const DEFAULT_PORT: i32 = 8081;

/// The Pods of the agents, by node.
type Agents = Seen<BTreeMap<String, Pod>>;

/// Reads nodes by name, and asks their agents.
pub(super) async fn collect(reader: &Reader, names: &BTreeSet<String>) -> Vec<NodeSnapshot> {
    if names.is_empty() {
        return Vec::new();
    }
    let agents = agents(reader).await;
    let nodes: Api<Node> = Api::all(reader.client());
    let read = Reader::each(names, |name| {
        let (agents, nodes) = (&agents, &nodes);
        async move { complete(reader, name, reader.get(nodes, name).await, agents, true).await }
    });
    sorted(read.collect().await)
}

/// Reads all nodes that have an agent, and those in `used`. Only agents of the latter are asked.
pub(super) async fn collect_all(reader: &Reader, used: &BTreeSet<String>) -> Vec<NodeSnapshot> {
    let agents = agents(reader).await;
    let nodes: Api<Node> = Api::all(reader.client());
    let is_relevant = |node: Node| {
        let name = node.name_any();
        let has_agent = agents.read().is_some_and(|agents| agents.contains_key(&name));
        (has_agent || used.contains(&name)).then_some((name, node))
    };
    let listed = reader.list(&nodes, &ListParams::default(), is_relevant).await;
    let found: Vec<(String, Seen<Node>)> = match listed {
        Seen::Read(found) => found.into_iter().map(|(name, node)| (name, Seen::Read(node))).collect(),
        failed => {
            let failed = failed.map(|_| Node::default());
            used.iter().map(|name| (name.clone(), failed.clone())).collect()
        }
    };
    let read = Reader::each(found, |(name, node)| {
        let agents = &agents;
        async move { complete(reader, &name, node, agents, used.contains(&name)).await }
    });
    sorted(read.collect().await)
}

fn sorted(mut nodes: Vec<NodeSnapshot>) -> Vec<NodeSnapshot> {
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

async fn agents(reader: &Reader) -> Agents {
    let pods: Api<Pod> = Api::namespaced(reader.client(), AGENT_NAMESPACE);
    let labels = "app.kubernetes.io/name=swansong,app.kubernetes.io/component=agent";
    let of_node = |pod: Pod| Some((pod.spec.as_ref()?.node_name.clone()?, pod));
    let listed = reader.list(&pods, &ListParams::default().labels(labels), of_node).await;
    listed.map(|pods| pods.into_iter().collect())
}

async fn complete(
    reader: &Reader,
    name: &str,
    node: Seen<Node>,
    agents: &Agents,
    is_asked: bool,
) -> NodeSnapshot {
    let maps: Api<ConfigMap> = Api::namespaced(reader.client(), device_plugin::NAMESPACE);
    let map = device_plugin::config_map_name(name);
    let agent = match agents {
        Seen::Read(agents) => agents.get(name).cloned().map_or(Seen::Absent, Seen::Read),
        other => other.clone().map(|_| Pod::default()),
    };
    let status = async {
        match agent.read() {
            Some(pod) if is_asked && phase(pod) == "Running" => status(reader, pod).await,
            Some(pod) if is_asked => Seen::Failed(format!("its phase is {}", phase(pod))),
            _ => Seen::NotAsked,
        }
    };
    let (device_info, status) = futures::join!(reader.get(&maps, &map), status);
    NodeSnapshot { name: name.to_owned(), node, device_info, agent, status }
}

/// Asks the agent of a node for its `/status`.
pub(super) async fn agent_status(reader: &Reader, node: &str) -> Seen<AgentStatus> {
    match agents(reader).await {
        Seen::Read(agents) => match agents.get(node) {
            Some(pod) => status(reader, pod).await,
            None => Seen::Absent,
        },
        other => other.map(|_| AgentStatus::default()),
    }
}

/// The `/status` of an agent, as it is.
pub(super) async fn status_text(reader: &Reader, pod: &Pod) -> Seen<String> {
    let port = health_port(pod).unwrap_or(DEFAULT_PORT);
    reader.fetch(&proxy_path(AGENT_NAMESPACE, &pod.name_any(), port, "status")).await
}

/// Asks an agent for its `/status`.
async fn status(reader: &Reader, pod: &Pod) -> Seen<AgentStatus> {
    match status_text(reader, pod).await {
        Seen::Read(text) => match serde_json::from_str(&text) {
            Ok(status) => Seen::Read(status),
            Err(error) => Seen::Failed(format!("its /status isn't what an agent writes: {error}")),
        },
        other => other.map(|_| AgentStatus::default()),
    }
}

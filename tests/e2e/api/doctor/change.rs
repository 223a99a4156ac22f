//! Changes of the world that break a link.

use serde_json::{Value, json};

use super::objects::{NAMESPACE, PODS};
use super::world::World;

/// What is changed.
pub(super) enum Change {
    /// A merge patch of an object: kind, namespace, name.
    Merge(&'static str, &'static str, &'static str, Value),
    /// The same of its status.
    Status(&'static str, &'static str, &'static str, Value),
    Delete(&'static str, &'static str, &'static str),
    /// The Pod of this rank is created otherwise by the operator or the user.
    Pod(usize, fn(&mut Value)),
    /// Both Pods are.
    Pods(fn(&mut Value)),
    /// The Pod of this rank is created from a template that the webhook hasn't processed.
    Plain(usize, fn(&mut Value)),
    /// Template and Pod of rank 1 are created while the webhook isn't called, and so many processes find the controller.
    WithoutWebhook {
        connected: u32,
    },
    /// An agent sees something else.
    Agent(usize, fn(&mut Value)),
}

/// What has to be written again afterwards.
pub(super) struct Undo {
    object: Option<(Value, bool)>,
    pods: bool,
}

impl Change {
    pub(super) async fn apply(&self, world: &World) -> Undo {
        let undo = |before: Value, is_status: bool| Undo { object: Some((before, is_status)), pods: false };
        match self {
            Self::Merge(kind, namespace, name, change) => {
                let before = world.get(kind, namespace, name).await;
                world.merge(kind, namespace, name, change).await;
                undo(before, false)
            }
            Self::Status(kind, namespace, name, change) => {
                let before = world.get(kind, namespace, name).await;
                world.merge_status(kind, namespace, name, change).await;
                undo(before, true)
            }
            Self::Delete(kind, namespace, name) => {
                let before = world.get(kind, namespace, name).await;
                world.delete(kind, namespace, name).await;
                undo(before, false)
            }
            Self::Pod(rank, change) => {
                let mut pod = world.pods[*rank].clone();
                change(&mut pod);
                world.replace_pod(*rank, pod).await;
                Undo { object: None, pods: true }
            }
            Self::Pods(change) => {
                for rank in 0..PODS.len() {
                    let mut pod = world.pods[rank].clone();
                    change(&mut pod);
                    world.replace_pod(rank, pod).await;
                }
                Undo { object: None, pods: true }
            }
            Self::Plain(rank, change) => {
                let mut pod = world.plain_pods[*rank].clone();
                change(&mut pod);
                world.replace_pod(*rank, pod).await;
                Undo { object: None, pods: true }
            }
            Self::WithoutWebhook { connected } => {
                let mut pod = world.plain_pods[1].clone();
                pod["metadata"]["annotations"]["swansong.dev/inject"] = "false".into();
                world.replace_pod(1, pod).await;
                let change = json!({"metadata": {"annotations": {"swansong.dev/inject": null}}});
                world.merge("Pod", NAMESPACE, PODS[1], &change).await;
                for agent in &world.agents {
                    agent.change(|status| status["pods"][1]["connected"] = (*connected).into());
                }
                Undo { object: None, pods: true }
            }
            Self::Agent(index, change) => {
                world.agents[*index].change(change);
                Undo { object: None, pods: false }
            }
        }
    }
}

impl Undo {
    pub(super) async fn restore(self, world: &World) {
        if let Some((before, is_status)) = self.object {
            if is_status {
                let (kind, name) = (&before["kind"], &before["metadata"]["name"]);
                let namespace = before["metadata"]["namespace"].as_str().unwrap_or_default();
                let status = json!({"status": before["status"]});
                world.merge_status(kind.as_str().unwrap(), namespace, name.as_str().unwrap(), &status).await;
            } else {
                world.restore(&before).await;
            }
        }
        if self.pods {
            for (rank, pod) in world.pods.iter().enumerate() {
                world.replace_pod(rank, pod.clone()).await;
            }
        }
        world.refresh_agents().await;
    }
}

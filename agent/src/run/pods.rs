//! The pods of this node: those that are injected, and those that use NPUs.

use std::convert::Infallible;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::warn;

use super::status::Shared;
use crate::node::{ApiServer, Change, Follow, Timing, follow};
use crate::preload::InjectedPod;
use crate::relay::NpuPod;
use swansong_runtime::supervisor::{Progress, TaskError};

/// Keeps the lists of pods.
pub(super) async fn watch(
    shared: Arc<Shared>,
    api: Arc<ApiServer>,
    timing: Arc<Timing>,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    let selector = ("spec.nodeName", shared.node_name.clone());
    let mut follower = Pods(Arc::clone(&shared));
    Ok(follow(&api, "/api/v1/pods", (selector.0, &selector.1), &timing, &mut follower, &progress).await)
}

struct Pods(Arc<Shared>);

/// What names a pod, and whether it has ended.
#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
    status: Option<Phase>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    uid: String,
}

#[derive(Deserialize)]
struct Phase {
    #[serde(default)]
    phase: String,
}

impl Follow for Pods {
    fn replace(&mut self, objects: &[&RawValue]) {
        let pods = objects.iter().filter_map(|object| read(object)).collect();
        self.0.pods.send_replace(pods);
        let users = objects.iter().filter_map(|object| NpuPod::read(object.get().as_bytes())).collect();
        self.0.npu_pods.send_replace(Some(Arc::new(users)));
    }

    fn change(&mut self, change: Change, object: &RawValue) {
        let Ok(head) = serde_json::from_str::<Head>(object.get()) else { return };
        let user = (change == Change::Applied).then(|| NpuPod::read(object.get().as_bytes())).flatten();
        self.0.npu_pods.send_if_modified(|pods| {
            let all = pods.clone().unwrap_or_default();
            let known = all.iter().find(|known| known.uid == head.metadata.uid);
            if known == user.as_ref() {
                return false;
            }
            let others = all.iter().filter(|known| known.uid != head.metadata.uid).cloned();
            *pods = Some(Arc::new(others.chain(user).collect()));
            true
        });
        let pod = if change == Change::Applied { read(object) } else { None };
        self.0.pods.send_if_modified(|pods| {
            let place = pods.iter().position(|known| known.uid == head.metadata.uid);
            match (place, pod) {
                (Some(place), Some(pod)) => pods[place] = pod,
                (Some(place), None) => drop(pods.remove(place)),
                (None, Some(pod)) => pods.push(pod),
                (None, None) => return false,
            }
            true
        });
    }
}

/// An injected pod whose processes may be looked for.
fn read(object: &RawValue) -> Option<InjectedPod> {
    let head: Head = serde_json::from_str(object.get()).ok()?;
    if head.status.is_some_and(|status| matches!(status.phase.as_str(), "Succeeded" | "Failed")) {
        return None;
    }
    match InjectedPod::read(object.get().as_bytes()) {
        Ok(pod) => pod,
        Err(error) => {
            warn!(uid = head.metadata.uid, %error, "a pod can't be read, so its preload isn't checked");
            None
        }
    }
}

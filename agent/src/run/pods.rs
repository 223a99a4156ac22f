//! Watches the Pods of this node: those that are injected, and those that use NPUs.

use std::convert::Infallible;
use std::sync::Arc;

use swansong_runtime::supervisor::{Progress, TaskError};
use tracing::warn;

use super::Context;
use super::shared::Shared;
use crate::node::{Change, PodObject, watch_pods};
use crate::preload::{DiscoveryReason, InjectedPod};

/// Keeps the lists of Pods.
pub(super) async fn watch(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let Context { shared, api, timing, .. } = context;
    let apply = |change| apply(&shared, change);
    Ok(watch_pods(&api, &shared.node_name, timing, &progress, apply).await)
}

fn apply(shared: &Shared, change: Change<PodObject>) {
    let (pod, exists) = match change {
        Change::Replaced(pods) => {
            shared.pods.send_replace(pods.iter().filter_map(injected).collect());
            shared
                .npu_pods
                .send_replace(Some(Arc::new(pods.iter().filter_map(PodObject::npu_pod).collect())));
            return;
        }
        Change::Applied(pod) => (pod, true),
        Change::Deleted(pod) => (pod, false),
    };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let npu_pod = exists.then(|| pod.npu_pod()).flatten();
    shared.npu_pods.send_if_modified(|pods| {
        let all = pods.clone().unwrap_or_default();
        if all.iter().find(|known| known.reference.uid == uid) == npu_pod.as_ref() {
            return false;
        }
        let others = all.iter().filter(|known| known.reference.uid != uid).cloned();
        *pods = Some(Arc::new(others.chain(npu_pod).collect()));
        true
    });
    let injected = exists.then(|| injected(&pod)).flatten();
    shared.pods.send_if_modified(|pods| {
        let count = pods.len();
        pods.retain(|known| known.uid != uid);
        let is_changed = pods.len() != count || injected.is_some();
        pods.extend(injected);
        is_changed
    });
}

/// The Pod, if its processes are to be inspected.
fn injected(pod: &PodObject) -> Option<InjectedPod> {
    let failed_search = |pod: &InjectedPod| {
        let reason = pod.discovery.as_ref().map(|discovery| discovery.reason);
        reason == Some(DiscoveryReason::LibrariesNotSearched)
    };
    let injected = InjectedPod::of(pod).unwrap_or_else(|error| {
        let uid = pod.metadata.uid.as_deref();
        warn!(uid, %error, "a Pod's record can't be read, so its preload isn't checked");
        None
    });
    // A Pod whose image has no shell fails before anything else could be reported.
    injected.filter(|injected| !pod.has_ended() || failed_search(injected))
}

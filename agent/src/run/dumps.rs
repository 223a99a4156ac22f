//! Follows the dumps of the Pods of this node, and shares what is seen with the agents of other nodes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use swansong_faults::{Activity, NpuPod, share, unix_millis};
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;

use super::Context;
use crate::pod_processes::{ActivityObserver, PodProcesses};

/// Shorter than the time for which a rank that has saved stays connected.
const INTERVAL: Duration = Duration::from_secs(3);

/// Observes the Pods that may dump.
pub(super) async fn run(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let Context { shared, config, host_root, api, .. } = context;
    let mut observer = ActivityObserver::new(PodProcesses::new(host_root.join("proc")));
    let (mut shown, mut problem) = (Activity::new(), None);
    loop {
        progress.alive();
        let pods: Vec<NpuPod> =
            shared.npu_pods.borrow().iter().flat_map(|pods| pods.iter()).cloned().collect();
        let pods: Vec<NpuPod> =
            pods.into_iter().filter(|pod| pod.is_running && pod.reference.group.is_some()).collect();
        let scan = spawn_blocking(move || {
            let activity = observer.observe(&pods, unix_millis()).cloned();
            (observer, activity)
        });
        let (returned, activity) = scan.await.map_err(|panic| TaskError(panic.to_string()))?;
        observer = returned;
        let mut activity =
            activity.map_err(|error| TaskError(format!("{}: {error}", host_root.display())))?;
        for pod in shared.verdicts.borrow().iter() {
            if let Some(seen) = activity.get_mut(&pod.uid) {
                seen.has_active_hook = pod.has_active_hook();
            }
        }
        let seen: Activity = activity
            .iter()
            .filter(|(_, pod)| pod.has_activity())
            .map(|(uid, pod)| (uid.clone(), pod.clone()))
            .collect();
        shared.activity.send_replace(Arc::new(activity));
        if let Some(namespace) = config.faults.config_map_namespace.as_ref().filter(|_| seen != shown) {
            let result = share(api.client(), namespace, &shared.node_name, &seen).await;
            if let Err(error) = &result
                && problem.as_ref() != Some(error)
            {
                warn!(error, "what is seen of dumps can't be shared with other nodes, retrying");
            }
            if result.is_ok() {
                shown = seen;
            }
            problem = result.err();
        }
        progress.succeeded();
        sleep(INTERVAL).await;
    }
}

//! Polls whether there is a node that can save a dying job, if the configuration requires such nodes.
//!
//! A list of one node's metadata instead of an informer: memory doesn't grow with the cluster.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::anyhow;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use swansong_api::labels::DUMP_READY;
use swansong_inject::policy::NodeReadiness;
use swansong_runtime::kube::error_message;
use swansong_webhook::config::Config;
use swansong_webhook::ready_nodes::ReadyNodes;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::USER_AGENT;

/// Timeout of a request to the API server.
const API_TIMEOUT: Duration = Duration::from_secs(10);

/// Polls for ready nodes and stores what it finds in the channel.
pub(super) struct ReadyNodePoller {
    config: watch::Receiver<Config>,
    seen: watch::Sender<ReadyNodes>,
    interval: Duration,
    client: Option<kube::Client>,
    /// The last error that was logged.
    last_error: Option<String>,
}

impl ReadyNodePoller {
    pub(super) fn new(
        config: watch::Receiver<Config>,
        seen: watch::Sender<ReadyNodes>,
        interval: Duration,
    ) -> Self {
        // An interval of zero would be a busy loop.
        let interval = interval.max(Duration::from_millis(10));
        Self { config, seen, interval, client: None, last_error: None }
    }

    pub(super) async fn run(mut self) -> Infallible {
        loop {
            if self.config.borrow().policy().node_readiness == NodeReadiness::Require {
                let result = self.poll().await;
                self.record(result);
            } else {
                self.seen.send_replace(ReadyNodes::Unknown);
                self.client = None;
                self.last_error = None;
            }
            sleep(self.interval).await;
        }
    }

    async fn poll(&mut self) -> anyhow::Result<ReadyNodes> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(swansong_runtime::kube::client(USER_AGENT).await?).clone(),
        };
        // A cordoned node takes no Pods, however ready it is.
        let one = ListParams::default()
            .labels(&format!("{DUMP_READY}=true"))
            .fields("spec.unschedulable=false")
            .limit(1);
        let nodes: Api<Node> = Api::all(client);
        let list = timeout(API_TIMEOUT, nodes.list_metadata(&one)).await;
        match list.map_err(|_| anyhow!("no answer from the API server in {API_TIMEOUT:?}"))? {
            Ok(list) if list.items.is_empty() => Ok(ReadyNodes::None),
            Ok(_) => Ok(ReadyNodes::Some),
            Err(kube::Error::Api(status)) if status.code == 403 => Err(anyhow!(
                "nodes may not be listed; apply the component manifests/components/node-readiness ({})",
                status.message
            )),
            Err(error) => Err(anyhow!(error_message(&error))),
        }
    }

    fn record(&mut self, result: anyhow::Result<ReadyNodes>) {
        match result {
            Ok(now) => {
                self.last_error = None;
                let previous = self.seen.send_replace(now);
                if previous != now && now == ReadyNodes::None {
                    warn!(
                        label = DUMP_READY,
                        "no schedulable node is ready to dump; Pods that require one remain Pending"
                    );
                } else if previous != now {
                    info!(label = DUMP_READY, "there are nodes that are ready to dump");
                }
            }
            Err(error) => {
                self.seen.send_replace(ReadyNodes::Unknown);
                let error = format!("{error:#}");
                if self.last_error.as_ref() != Some(&error) {
                    warn!(error, "can't check whether a node is ready to dump");
                    self.last_error = Some(error);
                }
            }
        }
    }
}

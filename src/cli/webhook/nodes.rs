//! Looks from time to time whether there is a node that is able to save a dying job.
//!
//! Only while the configuration requires such nodes, since nothing else needs to know. One small list, of one node's
//! metadata; no informer, so that memory stays flat however large the cluster is.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use swansong_api::labels::DUMP_READY;
use swansong_inject::policy::NodeReadiness;
use swansong_webhook::config::Config;
use swansong_webhook::ready_nodes::{LastSeen, ReadyNodes};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::USER_AGENT;

/// Longer than this an answer is of no use.
const PATIENCE: Duration = Duration::from_secs(10);

/// What looks, and where it writes what it saw.
pub(super) struct Looking {
    config: Arc<ArcSwap<Config>>,
    seen: Arc<LastSeen>,
    every: Duration,
    client: Option<kube::Client>,
    /// The failure that was told last.
    told: Option<String>,
}

impl Looking {
    pub(super) fn new(config: Arc<ArcSwap<Config>>, seen: Arc<LastSeen>, every: Duration) -> Self {
        // A period of zero would be a look without end.
        Self { config, seen, every: every.max(Duration::from_millis(10)), client: None, told: None }
    }

    pub(super) async fn run(mut self) -> Infallible {
        loop {
            let required = self.config.load().policy().node_readiness == NodeReadiness::Require;
            if required {
                let came = self.look().await;
                self.note(came);
            } else {
                self.seen.set(ReadyNodes::Unknown);
                self.client = None;
                self.told = None;
            }
            sleep(self.every).await;
        }
    }

    async fn look(&mut self) -> anyhow::Result<ReadyNodes> {
        let client = if let Some(client) = &self.client {
            client.clone()
        } else {
            let client = swansong_runtime::kube::client(USER_AGENT).await?;
            self.client.insert(client).clone()
        };
        // A cordoned node takes no pod, however ready it is.
        let one = ListParams::default()
            .labels(&format!("{DUMP_READY}=true"))
            .fields("spec.unschedulable=false")
            .limit(1);
        let nodes: Api<Node> = Api::all(client);
        let list = timeout(PATIENCE, nodes.list_metadata(&one)).await;
        match list.map_err(|_| anyhow!("no answer from the API server in {PATIENCE:?}"))? {
            Ok(list) if list.items.is_empty() => Ok(ReadyNodes::None),
            Ok(_) => Ok(ReadyNodes::Some),
            Err(kube::Error::Api(status)) if status.code == 403 => Err(anyhow!(
                "nodes may not be listed; apply the component manifests/components/node-readiness ({})",
                status.message
            )),
            Err(error) => Err(error.into()),
        }
    }

    fn note(&mut self, came: anyhow::Result<ReadyNodes>) {
        match came {
            Ok(now) => {
                self.told = None;
                let before = self.seen.set(now);
                if before != now && now == ReadyNodes::None {
                    warn!(
                        label = DUMP_READY,
                        "no node is ready to dump and takes pods; pods that require one stay Pending"
                    );
                } else if before != now {
                    info!(label = DUMP_READY, "there are nodes that are ready to dump");
                }
            }
            Err(error) => {
                self.seen.set(ReadyNodes::Unknown);
                let error = format!("{error:#}");
                if self.told.as_ref() != Some(&error) {
                    warn!(error, "whether a node is ready to dump isn't known");
                    self.told = Some(error);
                }
            }
        }
    }
}

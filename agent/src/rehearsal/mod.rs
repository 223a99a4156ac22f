//! A rehearsal of a fault's way to ClusterD: a fault on which ClusterD doesn't act is sent by the configured transports, seen in
//! `statistic-fault-info`, withdrawn and seen gone.
//!
//! The fault has the code of [`Class::Notice`] and a device that no Pod holds. Its id has a distinct form, which the fault
//! pipeline of an agent on the same node ignores until it is stale.

mod conditions;
mod exchange;
mod report;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use kube::Client;
use kube::api::{Api, ListParams};
use swansong_clusterd::customization::{FILE, FOLDER};
use swansong_clusterd::{Class, FaultType, InvalidFault, PublicFault, SendError, statistic};
use swansong_clusterd_client::AddressError;
use swansong_fault_model::device_plugin::{self, ConfigMapData, DeviceInfo};
use swansong_fault_model::{Assertion, EARLIEST, rehearsal_id};
use swansong_faults::{Cluster, NpuPod, Route, Transports, unix_millis};

use self::exchange::{Exchange, Shown, run};
use self::report::Log;
pub use self::report::{Report, Step, StepName};
use crate::config::Config;
use crate::finding::Status;
use crate::host::HostRoot;
use crate::node::PodObject;
use crate::transports::transports;

/// The size limit of `publicCustomization.json`.
const MAX_FILE: u64 = 1 << 20;

/// What a rehearsal needs.
pub struct Rehearsal {
    /// The agent's configuration.
    pub config: Config,
    /// The path of the host's file system.
    pub host_root: PathBuf,
    /// The node's name.
    pub node: String,
    /// The client of the API server.
    pub client: Client,
    /// Whether a job that asks for a dump may run on the node.
    pub force: bool,
}

impl std::fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rehearsal").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Rehearsal {
    /// Rehearses until the fault is gone. `on_step` is called after each step; `stop` ends the rehearsal early, but not
    /// before the fault is withdrawn.
    ///
    /// # Errors
    ///
    /// When ClusterD's address is invalid.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        on_step: impl FnMut(&Step),
    ) -> Result<Report, AddressError> {
        let exchange = LiveExchange {
            transports: transports(&self.config, &self.client, &self.node)?,
            cluster: Cluster::new(self.client.clone(), None),
            node: self.node.clone(),
        };
        let mut log = Log::new(&self.node, on_step);
        let mut stop = std::pin::pin!(stop);
        let fault = tokio::select! {
            biased;
            () = &mut stop => {
                log.add(StepName::Send, Status::Unknown, "interrupted before a fault was sent");
                None
            }
            fault = self.prepare(&exchange.cluster, &mut log) => fault,
        };
        if let Some(fault) = fault {
            run(&exchange, &fault, stop, &mut log).await;
        }
        Ok(log.finish())
    }

    /// Checks whether a fault may be sent, and makes one.
    async fn prepare(&self, cluster: &Cluster, log: &mut Log<impl FnMut(&Step)>) -> Option<PublicFault> {
        let pods = match self.pods().await {
            Ok(pods) => pods,
            Err(problem) => {
                let problem = format!("the Pods of this node can't be listed: {problem}");
                log.add(StepName::Jobs, Status::Unknown, problem);
                return None;
            }
        };
        let npu_pods: Vec<NpuPod> = pods.iter().filter_map(PodObject::npu_pod).collect();
        let dumping = conditions::dumping(cluster, &pods, &npu_pods).await;
        if !log.judge(StepName::Jobs, conditions::jobs(dumping, self.force)) {
            return None;
        }
        let Some(device) = conditions::free_device(&npu_pods) else {
            log.add(StepName::Jobs, Status::Unknown, "every device id is held by a Pod");
            return None;
        };
        log.device(device);
        // ClusterD shows faults of a node without that ConfigMap too, so that the rest can be rehearsed.
        log.judge(StepName::DevicePlugin, self.device_info(cluster).await);
        if !log.judge(StepName::Registration, conditions::registration(self.customization())) {
            return None;
        }
        match fault(&self.node, device) {
            Ok(fault) => Some(fault),
            Err(invalid) => {
                log.add(StepName::Send, Status::Fail, invalid.to_string());
                None
            }
        }
    }

    async fn pods(&self) -> Result<Vec<PodObject>, String> {
        let pods: Api<PodObject> = Api::all(self.client.clone());
        let parameters = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        swansong_faults::answered(pods.list(&parameters)).await.map(|list| list.items)
    }

    /// `publicCustomization.json` if ClusterD runs on this host.
    fn customization(&self) -> Option<String> {
        let root = HostRoot::open(&self.host_root).ok()?;
        let content = root.read(format!("{FOLDER}/{FILE}"), MAX_FILE).ok()?;
        Some(String::from_utf8_lossy(&content).into_owned())
    }

    async fn device_info(&self, cluster: &Cluster) -> (Status, String) {
        let name = device_plugin::config_map_name(&self.node);
        let problem = match cluster.config_map(device_plugin::NAMESPACE, &name).await {
            Ok(Some(data)) => {
                let text = |key: &str| data.get(key).map(String::as_str);
                let data = ConfigMapData { device_info: text("DeviceInfoCfg"), manually_separated: None };
                match DeviceInfo::read(data) {
                    Ok(_) => return (Status::Pass, format!("the device plugin publishes {name}")),
                    Err(invalid) => invalid.to_string(),
                }
            }
            Ok(None) => "it doesn't exist".to_owned(),
            Err(problem) => {
                return (Status::Unknown, format!("the ConfigMap {name} can't be read: {problem}"));
            }
        };
        let message = format!(
            "the device plugin's ConfigMap {name}: {problem}; ClusterD drops every fault of this node without a word"
        );
        (Status::Fail, message)
    }
}

fn fault(node: &str, device: u32) -> Result<PublicFault, InvalidFault> {
    let now = unix_millis();
    PublicFault {
        fault_id: rehearsal_id(node, now),
        fault_type: FaultType::Npu,
        class: Class::Notice,
        fault_time: now.max(EARLIEST),
        assertion: Assertion::Occur,
        node: node.to_owned(),
        devices: vec![device],
        location: BTreeMap::from([("source".to_owned(), "rehearsal".to_owned())]),
        description: "rehearsal: the device has no fault".to_owned(),
    }
    .finish()
}

/// The configured transports and the API server.
struct LiveExchange {
    transports: Transports,
    cluster: Cluster,
    node: String,
}

impl Exchange for LiveExchange {
    async fn send(&self, batch: &[PublicFault]) -> (Route, Result<(), SendError>) {
        self.transports.send(batch).await
    }

    async fn shown(&self) -> Result<Shown, String> {
        let data = self.cluster.config_map(statistic::NAMESPACE, statistic::NAME).await?.unwrap_or_default();
        let text = |key: &str| data.get(key).map(String::as_str);
        let found = statistic::node_faults(text(statistic::FAULTS), text(statistic::DESCRIPTION), &self.node);
        let found = found.map_err(|error| error.to_string())?;
        let own = |text: Cow<'_, str>| text.into_owned();
        let faults = found.faults.into_iter();
        let levels = faults.map(|fault| (own(fault.id), fault.level.map(own))).collect();
        Ok(Shown { levels, is_complete: found.complete })
    }
}

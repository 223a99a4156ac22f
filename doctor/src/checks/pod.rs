//! What the checks read of a Pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::ResourceExt as _;
use serde_json::Value as Json;
use swansong_api::annotations::{INJECT, INJECTED, LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH, is_opted_out};
use swansong_api::env::{HIGH_AVAILABILITY, LD_PRELOAD, LOCAL_PROXY_ENABLE, MS_ENABLE_TFT, TTP_PORT};
use swansong_api::labels::{KUBEFLOW_JOB_ROLE, KUBEFLOW_REPLICA_TYPE, REPLICA_TYPE, VOLCANO_TASK_INDEX};
use swansong_api::launcher_hook::VOLUME;
use swansong_api::pod::LIBRARIES;
use swansong_api::ports::TTP;
use swansong_api::strategy::Strategies;

use super::environment::{Value, value};
use crate::snapshot::training_container;

/// The devices that the device plugin mounted.
const DEVICES: &str = "ascend.kubectl.kubernetes.io/ascend-910-configuration";
const RANK: &str = "hccl/rankIndex";
/// The replica types with rank 0.
const FIRST: [&str; 3] = ["master", "scheduler", "chief"];

/// A framework, by what ascend-operator adds for a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framework {
    PyTorch,
    MindSpore,
}

/// A Pod and its training container.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodView<'a> {
    pub(super) pod: &'a Pod,
    pub(super) spec: Option<&'a PodSpec>,
    pub(super) container: Option<&'a Container>,
}

impl<'a> PodView<'a> {
    pub(super) fn of(pod: &'a Pod) -> Self {
        let spec = pod.spec.as_ref();
        let container = spec.and_then(|spec| training_container(spec, pod.metadata.annotations.as_ref()));
        Self { pod, spec, container }
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// The resolved variable of the training container.
    pub(super) fn variable(&self, name: &str) -> Value {
        self.container.map_or(Value::Absent, |container| value(container, name))
    }

    pub(super) fn address(&self) -> Option<&'a str> {
        self.pod.status.as_ref()?.pod_ip.as_deref()
    }

    pub(super) fn uid(&self) -> &'a str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Whether MindIO's controller and the TaskD Manager belong to it.
    pub(super) fn is_first(&self) -> bool {
        let labels: &BTreeMap<String, String> = self.pod.labels();
        let label = |name: &str| labels.get(name).map(|value| value.to_lowercase());
        match label(KUBEFLOW_REPLICA_TYPE).or_else(|| label(REPLICA_TYPE)) {
            Some(replica_type) => FIRST.contains(&replica_type.as_str()),
            None => {
                label(KUBEFLOW_JOB_ROLE).as_deref() == Some("master")
                    || self.rank() == Some(0)
                    || (self.rank().is_none() && self.annotation(VOLCANO_TASK_INDEX) == Some("0"))
            }
        }
    }

    /// Its rank in the job.
    pub(super) fn rank(&self) -> Option<u32> {
        self.annotation(RANK)?.trim().parse().ok()
    }

    /// The number of its devices; `None` if the device plugin's annotation is missing or can't be read.
    pub(super) fn devices(&self) -> Option<usize> {
        let configuration: Json = serde_json::from_str(self.annotation(DEVICES)?).ok()?;
        Some(configuration["devices"].as_array()?.len())
    }

    /// Whether it asks for NPUs.
    pub(super) fn requests_devices(&self) -> bool {
        let resources = self.container.and_then(|container| container.resources.as_ref());
        let lists = resources.into_iter().flat_map(|resources| [&resources.requests, &resources.limits]);
        lists.flatten().flatten().any(|(name, _)| name.starts_with("huawei.com/"))
    }

    /// The framework whose dump the environment asks for.
    pub(super) fn framework(&self) -> Option<Framework> {
        let dumps = |text: &str| Strategies::parse(text).tokens().contains(&"dump");
        if self.variable(HIGH_AVAILABILITY).text().is_some_and(dumps) {
            return Some(Framework::PyTorch);
        }
        let asks = self.variable(MS_ENABLE_TFT).text().is_some_and(|value| value.contains("TTP:1"));
        asks.then_some(Framework::MindSpore)
    }

    /// Whether the webhook processed it.
    pub(super) fn has_record(&self) -> bool {
        self.annotation(INJECTED).is_some()
    }

    /// Whether it is excluded from injection.
    pub(super) fn is_opted_out(&self) -> bool {
        self.annotation(INJECT).is_some_and(is_opted_out)
    }

    /// Whether it carries the launcher hook.
    pub(super) fn has_hook(&self) -> bool {
        let mut volumes = self.spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
        self.annotation(LAUNCHER_HOOK_MODULE).is_some() && volumes.any(|volume| volume.name == VOLUME)
    }

    /// Whether an init container searches the libraries in its image.
    pub(super) fn is_searched(&self) -> bool {
        let mut containers = self.spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
        containers.any(|container| container.name == LIBRARIES)
    }

    /// Whether its launcher hook imports TaskD's patch of torch's launcher.
    pub(super) fn has_launcher_patch(&self) -> bool {
        self.has_hook() && self.annotation(LAUNCHER_HOOK_PTH).is_some_and(|line| line.contains("True"))
    }

    /// Whether the webhook, or the user, has it preload TaskD's library.
    pub(super) fn has_preload(&self) -> bool {
        let preload = self.variable(LD_PRELOAD);
        preload.text().is_some_and(|text| text.contains("libtaskd.so") || text.contains("libmspti.so"))
    }

    /// Whether TaskD runs behind a local proxy, which changes all addresses.
    pub(super) fn has_proxy(&self) -> bool {
        self.variable(LOCAL_PROXY_ENABLE).text() == Some("on")
    }

    /// The port of MindIO's controller.
    pub(super) fn controller_port(&self) -> u16 {
        self.variable(TTP_PORT).text().and_then(|port| port.trim().parse().ok()).unwrap_or(TTP)
    }
}

//! Swansong's own objects.

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::reader::Reader;
use super::{AGENT_NAMESPACE, WEBHOOK_NAMESPACE};
use crate::snapshot::{Installation, Replica, Seen};

/// The name of the webhook's Deployment, Service and labels.
const WEBHOOK: &str = "swansong-webhook";
const HEALTH: &str = "health";
const DEFAULT_PORT: i32 = 8080;

pub(super) async fn collect(reader: &Reader) -> Installation {
    let client = || reader.client();
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client());
    let deployments: Api<Deployment> = Api::namespaced(client(), WEBHOOK_NAMESPACE);
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client());
    let agents: Api<DaemonSet> = Api::namespaced(client(), AGENT_NAMESPACE);
    let service = format!("/api/v1/namespaces/{WEBHOOK_NAMESPACE}/services/https:{WEBHOOK}:443/proxy/mutate");
    let of_swansong = ListParams::default().labels("app.kubernetes.io/name=swansong");
    let policy = |binding: ValidatingAdmissionPolicyBinding| binding.spec?.policy_name;
    let (configuration, deployment, endpoints, service_answer, replicas, policies, agents) = futures::join!(
        reader.get(&configurations, "swansong"),
        reader.get(&deployments, WEBHOOK),
        endpoint_slices(reader, WEBHOOK_NAMESPACE, WEBHOOK),
        reader.fetch_status(&service),
        replicas(reader),
        reader.list(&bindings, &of_swansong, policy),
        reader.get(&agents, "swansong-agent"),
    );
    Installation { configuration, deployment, endpoints, service_answer, replicas, policies, agents }
}

/// The EndpointSlices of a Service.
pub(super) async fn endpoint_slices(
    reader: &Reader,
    namespace: &str,
    service: &str,
) -> Seen<Vec<EndpointSlice>> {
    let slices: Api<EndpointSlice> = Api::namespaced(reader.client(), namespace);
    let parameters = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    reader.list(&slices, &parameters, Some).await
}

async fn replicas(reader: &Reader) -> Seen<Vec<Replica>> {
    let pods: Api<Pod> = Api::namespaced(reader.client(), WEBHOOK_NAMESPACE);
    let labels = "app.kubernetes.io/name=swansong,app.kubernetes.io/component=webhook";
    let running = |pod: Pod| (crate::snapshot::phase(&pod) == "Running").then_some(pod);
    match reader.list(&pods, &ListParams::default().labels(labels), running).await {
        Seen::Read(pods) => {
            let replicas = Reader::each(pods, |pod| replica(reader, pod));
            let mut replicas: Vec<Replica> = replicas.collect().await;
            replicas.sort_by(|a, b| a.name.cmp(&b.name));
            Seen::Read(replicas)
        }
        other => other.map(|_| Vec::new()),
    }
}

async fn replica(reader: &Reader, pod: Pod) -> Replica {
    let port = health_port(&pod).unwrap_or(DEFAULT_PORT);
    let path = |path: &str| proxy_path(WEBHOOK_NAMESPACE, &pod.name_any(), port, path);
    let (metrics, certificate) = (path("metrics"), path("certificate"));
    let (metrics, certificate) = futures::join!(reader.fetch(&metrics), reader.fetch(&certificate));
    Replica { name: pod.name_any(), version: metrics.map(|text| version(&text)), certificate }
}

/// The path by which the API server passes a request on to a Pod.
pub(super) fn proxy_path(namespace: &str, pod: &str, port: i32, path: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/{path}")
}

/// The port named `health`.
pub(super) fn health_port(pod: &Pod) -> Option<i32> {
    let containers = &pod.spec.as_ref()?.containers;
    let mut ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
    Some(ports.find(|port| port.name.as_deref() == Some(HEALTH))?.container_port)
}

/// The version in `swansong_build_info`.
fn version(metrics: &str) -> Option<String> {
    let line = metrics.lines().find_map(|line| line.strip_prefix("swansong_build_info{version=\""))?;
    line.split('"').next().map(str::to_owned)
}

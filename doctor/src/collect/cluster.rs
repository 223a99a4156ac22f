//! MindCluster's own objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use swansong_clusterd::statistic;

use super::installation::endpoint_slices;
use super::reader::Reader;
use crate::snapshot::{Cluster, Seen};

/// The namespace of ClusterD.
const MINDX: &str = "mindx-dl";
/// The Service that ascend-operator names in jobs.
const CLUSTERD: &str = "clusterd-grpc-svc";
/// The label of ClusterD's Pods in MindCluster's own manifest.
const CLUSTERD_PODS: &str = "app=clusterd";
/// The first part of what ClusterD publishes of all devices.
const CLUSTER_INFO: &str = "cluster-info-device-0";

pub(super) async fn collect(reader: &Reader) -> Cluster {
    let maps: Api<ConfigMap> = Api::namespaced(reader.client(), MINDX);
    let (namespaces, clusterd, clusterd_images, cluster_info, queues) = futures::join!(
        namespaces(reader),
        endpoint_slices(reader, MINDX, CLUSTERD),
        clusterd_images(reader),
        reader.get(&maps, CLUSTER_INFO),
        queues(reader),
    );
    Cluster { namespaces, clusterd, clusterd_images, cluster_info, queues }
}

async fn clusterd_images(reader: &Reader) -> Seen<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(reader.client(), MINDX);
    let images = |pod: Pod| {
        let containers = pod.spec?.containers;
        Some(containers.into_iter().filter_map(|container| container.image).collect::<Vec<String>>())
    };
    let found = reader.list(&pods, &ListParams::default().labels(CLUSTERD_PODS), images).await;
    found.map(|images| images.into_iter().flatten().collect())
}

async fn namespaces(reader: &Reader) -> Seen<Vec<String>> {
    let namespaces: Api<Namespace> = Api::all(reader.client());
    let mut found = Vec::new();
    for name in [MINDX, statistic::NAMESPACE] {
        match reader.get(&namespaces, name).await {
            Seen::Read(_) => found.push(name.to_owned()),
            Seen::Absent => {}
            other => return other.map(|_| Vec::new()),
        }
    }
    Seen::Read(found)
}

async fn queues(reader: &Reader) -> Seen<BTreeMap<String, String>> {
    let kind = GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "Queue");
    let queues: Api<DynamicObject> = Api::all_with(reader.client(), &ApiResource::from_gvk(&kind));
    let state = |queue: DynamicObject| {
        let state = queue.data["status"]["state"].as_str().unwrap_or_default().to_owned();
        Some((queue.name_any(), state))
    };
    let found = reader.list(&queues, &ListParams::default(), state).await;
    found.map(|queues| queues.into_iter().collect())
}

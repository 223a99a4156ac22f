//! Jobs and what belongs to them.

use std::collections::HashMap;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use strum::VariantArray as _;
use swansong_clusterd::reset_config;

use super::installation::endpoint_slices;
use super::reader::Reader;
use crate::snapshot::{Job, JobKind, JobObject, Seen};

/// The annotation with the name of a Pod's PodGroup.
const GROUP: &str = "scheduling.k8s.io/group-name";
/// ClusterD's own view of a job.
const SUMMARY: &str = "job-summary-";

/// The job of this name. An AscendJob takes precedence over a Volcano Job.
pub(super) async fn collect_one(reader: &Reader, namespace: &str, name: &str) -> Job {
    let mut object = Seen::Absent;
    for &kind in JobKind::VARIANTS {
        let jobs: Api<DynamicObject> = Api::namespaced_with(reader.client(), namespace, &kind.resource());
        object = match (reader.get(&jobs, name).await, object) {
            (Seen::Read(found), _) => Seen::Read(JobObject { kind, object: found }),
            // That it may be of the kind that can't be read is what has to be said.
            (Seen::Absent, before) => before,
            (other, _) => other.map(|found| JobObject { kind, object: found }),
        };
        if matches!(object, Seen::Read(_)) {
            break;
        }
    }
    let pods: Api<Pod> = Api::namespaced(reader.client(), namespace);
    let uid = object.read().map(|job| job.object.uid().unwrap_or_default()).unwrap_or_default();
    let is_own = |pod: Pod| (owner(&pod) == Some(uid.as_str())).then_some(pod);
    let pods = match &object {
        Seen::Read(_) => reader.list(&pods, &ListParams::default(), is_own).await,
        _ => Seen::NotAsked,
    };
    complete(reader, namespace.to_owned(), name.to_owned(), object, pods).await
}

/// The jobs that ask for a dump and haven't ended. A kind that can't be listed is a job without a name.
pub(super) async fn collect_all(reader: &Reader, namespace: Option<&str>) -> Vec<Job> {
    let client = || reader.client();
    let mut objects = Vec::new();
    let mut unknown = Vec::new();
    for &kind in JobKind::VARIANTS {
        let resource = kind.resource();
        let jobs: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client(), namespace, &resource),
            None => Api::all_with(client(), &resource),
        };
        let asking = |object: DynamicObject| {
            let job = JobObject { kind, object };
            (job.asks_for_dump() && !job.is_finished()).then_some(job)
        };
        match reader.list(&jobs, &ListParams::default(), asking).await {
            Seen::Read(found) => objects.extend(found),
            // The cluster doesn't define the kind.
            Seen::Absent => {}
            other => {
                let object = other.map(|_| JobObject { kind, object: DynamicObject::new("", &resource) });
                unknown.push(without_object(namespace.unwrap_or("*"), &kind.to_string(), object));
            }
        }
    }
    let mut pods = pods_by_owner(reader, namespace).await;
    let jobs = Reader::each(objects, |job| {
        let uid = job.object.uid().unwrap_or_default();
        let own = match &mut pods {
            Seen::Read(pods) => Seen::Read(pods.remove(&uid).unwrap_or_default()),
            Seen::Absent | Seen::NotAsked => Seen::NotAsked,
            Seen::Forbidden(message) => Seen::Forbidden(message.clone()),
            Seen::Failed(message) => Seen::Failed(message.clone()),
        };
        let (namespace, name) = (job.object.namespace().unwrap_or_default(), job.object.name_any());
        complete(reader, namespace, name, Seen::Read(job), own)
    });
    let mut jobs: Vec<Job> = jobs.collect().await;
    jobs.sort_by_key(Job::reference);
    jobs.extend(unknown);
    jobs
}

async fn pods_by_owner(reader: &Reader, namespace: Option<&str>) -> Seen<HashMap<String, Vec<Pod>>> {
    let pods: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(reader.client(), namespace),
        None => Api::all(reader.client()),
    };
    let owned = |pod: Pod| Some((owner(&pod)?.to_owned(), pod));
    let listed = reader.list(&pods, &ListParams::default(), owned).await;
    listed.map(|pods| {
        let mut by_owner: HashMap<String, Vec<Pod>> = HashMap::new();
        for (owner, pod) in pods {
            by_owner.entry(owner).or_default().push(pod);
        }
        by_owner
    })
}

/// The UID of the job that controls a Pod.
pub(crate) fn owner(pod: &Pod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| matches!(owner.kind.as_str(), "AscendJob" | "Job")).map(|owner| owner.uid.as_str())
}

fn without_object(namespace: &str, name: &str, object: Seen<JobObject>) -> Job {
    Job {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        object,
        pods: Seen::NotAsked,
        group: Seen::NotAsked,
        reset_config: Seen::NotAsked,
        summary: Seen::NotAsked,
        service: Seen::NotAsked,
        endpoints: Seen::NotAsked,
    }
}

/// Reads what belongs to a job.
async fn complete(
    reader: &Reader,
    namespace: String,
    name: String,
    object: Seen<JobObject>,
    pods: Seen<Vec<Pod>>,
) -> Job {
    let Some(job) = object.read() else { return without_object(&namespace, &name, object) };
    let pods = pods.map(|mut pods| {
        pods.sort_by_key(kube::ResourceExt::name_any);
        pods
    });
    let maps: Api<ConfigMap> = Api::namespaced(reader.client(), &namespace);
    let data = |map: Seen<ConfigMap>| map.map(|map| map.data.unwrap_or_default());
    let (reset, summary) = (reset_config::name_for(&name), format!("{SUMMARY}{name}"));
    let service = job.service_name();
    let (group, reset_config, summary, (service, endpoints)) = futures::join!(
        group(reader, &namespace, job, pods.read()),
        async { data(reader.get(&maps, &reset).await) },
        async { data(reader.get(&maps, &summary).await) },
        service_of(reader, &namespace, service.as_deref()),
    );
    Job { namespace, name, object, pods, group, reset_config, summary, service, endpoints }
}

async fn group(
    reader: &Reader,
    namespace: &str,
    job: &JobObject,
    pods: Option<&Vec<Pod>>,
) -> Seen<DynamicObject> {
    let kind = GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "PodGroup");
    let groups: Api<DynamicObject> =
        Api::namespaced_with(reader.client(), namespace, &ApiResource::from_gvk(&kind));
    reader.get(&groups, &group_name(job, pods.map_or(&[], Vec::as_slice))).await
}

/// The name of a job's PodGroup, as its Pods say.
pub(crate) fn group_name(job: &JobObject, pods: &[Pod]) -> String {
    let named = pods.iter().find_map(|pod| pod.annotations().get(GROUP).cloned());
    named.unwrap_or_else(|| format!("{}-{}", job.object.name_any(), job.object.uid().unwrap_or_default()))
}

async fn service_of(
    reader: &Reader,
    namespace: &str,
    name: Option<&str>,
) -> (Seen<Service>, Seen<Vec<k8s_openapi::api::discovery::v1::EndpointSlice>>) {
    let Some(name) = name else { return (Seen::NotAsked, Seen::NotAsked) };
    let services: Api<Service> = Api::namespaced(reader.client(), namespace);
    futures::join!(reader.get(&services, name), endpoint_slices(reader, namespace, name))
}

//! MindCluster's own objects.

use k8s_openapi::api::core::v1::ConfigMap;
use swansong_api::node::{FAULTS_RELAYED, RehearsalResult};
use swansong_trainer::releases::{self, version_of_image};

use super::finding::{Check, Checks, Judged, Verdict, required};
use super::link::Link;
use super::nodes::{REFUSED, reports_faults};
use crate::snapshot::{Cluster, NodeSnapshot, Snapshot, last_rehearsal, ready_endpoints};

const NAMESPACES: [&str; 2] = ["cluster-system", "mindx-dl"];
/// For how long a rehearsal counts as recent, in milliseconds.
pub(super) const RECENT: u64 = 30 * 24 * 60 * 60 * 1000;

pub(super) fn check(cluster: &Cluster, snapshot: &Snapshot) -> Vec<Check> {
    let mut checks = Checks::default();
    checks.add(Link::Namespaces, namespaces(cluster));
    checks.add(Link::Clusterd, clusterd(cluster));
    checks.add(Link::ClusterInfo, cluster_info(cluster, snapshot.taken_at));
    let reporting: Vec<&NodeSnapshot> = snapshot.nodes.iter().filter(|node| reports_faults(node)).collect();
    if !reporting.is_empty() {
        checks.add(Link::SenderRegistered, sender(&reporting));
        checks.add(Link::Rehearsal, rehearsal(&reporting, snapshot.taken_at));
    }
    checks.all
}

fn namespaces(cluster: &Cluster) -> Judged {
    let found = required(&cluster.namespaces, "ClusterD's namespaces")?;
    let missing: Vec<&str> =
        NAMESPACES.into_iter().filter(|name| !found.iter().any(|other| other == name)).collect();
    Ok(if missing.is_empty() {
        Verdict::pass("both exist")
    } else {
        Verdict::fail(format!("missing: {}", missing.join(", ")))
    })
}

fn clusterd(cluster: &Cluster) -> Judged {
    let ready = ready_endpoints(required(&cluster.clusterd, "the endpoints of clusterd-grpc-svc")?);
    let seen = format!("the Service clusterd-grpc-svc has {ready} ready endpoints");
    let defects = known_defects(cluster.clusterd_images.read().map_or(&[], Vec::as_slice));
    Ok(if ready > 0 && !defects.is_empty() {
        Verdict::warn(format!("{seen}, of a release with known defects: {}", defects.join(". ")))
    } else {
        Verdict::of(ready > 0, seen)
    })
}

/// The defects of ClusterD's release that a newer one has fixed. An image without a release in its tag is unknown.
fn known_defects(images: &[String]) -> Vec<String> {
    let mut messages: Vec<String> = Vec::new();
    for (component, version) in images.iter().filter_map(|image| version_of_image(image)) {
        let defects = releases::known_defects(component, version).unwrap_or_default();
        let fixed = defects.iter().filter(|defect| defect.fixed_in.is_some());
        messages.extend(fixed.map(|defect| defect.message(component, version)));
    }
    messages.dedup();
    messages
}

fn cluster_info(cluster: &Cluster, now: u64) -> Judged {
    let map = required(&cluster.cluster_info, "the ConfigMap cluster-info-device-0")?;
    let is_empty = map.data.as_ref().is_none_or(|data| data.values().all(|value| value.trim().is_empty()));
    if is_empty {
        return Err(Verdict::fail("the ConfigMap cluster-info-device-0 is empty"));
    }
    let age = written_at(map).map(|at| format!(", written {} ago", age(now.saturating_sub(at))));
    Ok(Verdict::pass(format!("ClusterD publishes the devices{}", age.unwrap_or_default())))
}

/// When an object was last written, in milliseconds since 1970.
fn written_at(map: &ConfigMap) -> Option<u64> {
    let times = map.metadata.managed_fields.iter().flatten().filter_map(|fields| fields.time.as_ref());
    times.filter_map(|time| u64::try_from(time.0.as_millisecond()).ok()).max()
}

fn sender(nodes: &[&NodeSnapshot]) -> Judged {
    let refused = nodes.iter().find(|node| {
        node.condition(FAULTS_RELAYED).is_some_and(|condition| condition.reason.as_deref() == Some(REFUSED))
    });
    if let Some(node) = refused {
        return Err(Verdict::fail(format!("ClusterD refuses the faults of node {} (410)", node.name)));
    }
    let accepted = nodes.iter().any(|node| result(node).is_some_and(|result| result.status == "pass"));
    Ok(if accepted {
        Verdict::pass("it accepted the fault of a rehearsal")
    } else {
        Verdict::unknown("no rehearsal has shown it yet, and nothing is refused")
    })
}

/// The last rehearsal of a node.
fn result(node: &NodeSnapshot) -> Option<RehearsalResult> {
    last_rehearsal(&node.node.read()?.metadata)
}

fn rehearsal(nodes: &[&NodeSnapshot], now: u64) -> Judged {
    let results: Vec<(&str, RehearsalResult)> =
        nodes.iter().filter_map(|node| Some((node.name.as_str(), result(node)?))).collect();
    if let Some((name, failed)) = results.iter().find(|(_, result)| result.status == "fail") {
        let age = age(now.saturating_sub(failed.at));
        return Err(Verdict::fail(format!("that of node {name}, {age} ago, failed: {}", failed.message)));
    }
    let passed = results.iter().filter(|(_, result)| result.status == "pass");
    let Some((name, last)) = passed.max_by_key(|(_, result)| result.at) else {
        return Ok(Verdict::warn("no node has been rehearsed"));
    };
    let elapsed = now.saturating_sub(last.at);
    let seen = format!(
        "{} of {} nodes were rehearsed, the last one {} ago ({name})",
        results.len(),
        nodes.len(),
        age(elapsed)
    );
    Ok(if elapsed > RECENT { Verdict::warn(seen) } else { Verdict::pass(seen) })
}

/// A duration in milliseconds, in its largest unit.
pub(crate) fn age(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_releases_have_defects() {
        let of = |image: &str| known_defects(&[image.to_owned()]);
        let old = of("registry:5000/mindx/clusterd:v7.3.0");
        assert!(old.iter().any(|message| message.contains("move to v26.0.0")), "{old:?}");
        assert_eq!(of("clusterd:v26.1.0"), Vec::<String>::new());
        assert_eq!(of("clusterd:latest"), Vec::<String>::new());
        assert_eq!(of("clusterd@sha256:00"), Vec::<String>::new());
    }
}

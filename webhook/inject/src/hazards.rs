//! Warns about settings of a job with which a dump may be lost.

use swansong_api::labels::FAULT_SCHEDULING;

use crate::reason::Reason;
use crate::report::{Outcome, TemplateReport, Warning};
use crate::view::{Container, Object};
use crate::workload::{LocatedTemplate, WorkloadKind};

pub(crate) fn warn(
    kind: WorkloadKind,
    object: &Object<'_>,
    templates: &[LocatedTemplate<'_, '_>],
    outcome: &mut Outcome,
) {
    let Object::Workload(workload) = object else { return };
    if !kind.strategy_reaches_mindcluster() {
        return;
    }
    let spec = workload.spec.present();
    let policy =
        spec.and_then(|spec| spec.run_policy.present()).map_or("", |run| run.clean_pod_policy.text());
    if matches!(policy, "Running" | "All") {
        outcome.warn(
            Reason::CleanPodPolicyDeletesSavers,
            format!(
                "spec.runPolicy.cleanPodPolicy is {policy}: when one Pod has failed, the others are deleted while they \
                 save; set it to None"
            ),
        );
    }
    let metadata = object.metadata().present();
    if metadata.and_then(|metadata| metadata.label(FAULT_SCHEDULING)) == Some("force") {
        outcome.warn(
            Reason::FaultSchedulingForce,
            format!(
                "label {FAULT_SCHEDULING} is force: with Volcano the Pod of a reported fault may be deleted before \
                 anything is saved; set it to grace"
            ),
        );
    }
    if templates.iter().map(|located| located.pods).sum::<i64>() == 1 {
        outcome.warn(Reason::OnePod, "the job has one Pod: nothing is saved if its node is lost".to_owned());
    }
    for warning in templates.iter().zip(&outcome.templates).flat_map(pod_hazards).collect::<Vec<_>>() {
        if !outcome.warnings.contains(&warning) {
            outcome.warnings.push(warning);
        }
    }
}

/// What the Pods of a template have that MindCluster's documents exclude or advise against. All templates of a job are
/// much the same, so a message doesn't name its template.
fn pod_hazards((located, report): (&LocatedTemplate<'_, '_>, &TemplateReport)) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let Some(spec) = located.template.spec.present().filter(|_| report.skip.is_none()) else {
        return warnings;
    };
    let mut warn = |reason, message| warnings.push(Warning { reason, message });
    let names: Vec<&str> = spec.containers.items().iter().map(Container::name).collect();
    if names.len() > 1 && located.pods > 0 {
        warn(
            Reason::SeveralContainers,
            format!(
                "the Pods have the containers {}: MindCluster documents its process recovery for Pods with one container; \
                 run helpers as init containers with restartPolicy Always",
                names.join(", ")
            ),
        );
    }
    let chosen =
        |container: &&Container<'_>| report.containers.iter().any(|other| other.name == container.name());
    for container in spec.containers.items().iter().filter(chosen) {
        for mount in container.volume_mounts.items() {
            let volumes = spec.volumes.items();
            let Some(volume) = volumes.iter().find(|volume| volume.name.text() == mount.name.text()) else {
                continue;
            };
            let config_map = volume.config_map.present().map_or("", |source| source.name.text());
            if config_map.starts_with(RANK_TABLE) {
                warn(
                    Reason::RankTableFromConfigMap,
                    format!(
                        "container {} mounts the rank table from ConfigMap {config_map}: MindCluster's process recovery fails \
                         with it; mount the rank table's folder of the node (hostPath) or leave it out",
                        container.name()
                    ),
                );
            }
            let limit = volume.empty_dir.present().map_or("", |source| source.size_limit.text());
            if mount.mount_path.text().trim_end_matches('/') == SHARED_MEMORY
                && bytes(limit).is_some_and(|bytes| bytes < MIN_SHARED_MEMORY)
            {
                warn(
                    Reason::SharedMemorySmall,
                    format!(
                        "container {} has {limit} of /dev/shm: MindCluster advises 16Gi; raise sizeLimit of volume {}",
                        container.name(),
                        volume.name.text()
                    ),
                );
            }
        }
    }
    warnings
}

/// How names of ConfigMaps with the rank table of a job begin.
const RANK_TABLE: &str = "rings-config-";
const SHARED_MEMORY: &str = "/dev/shm";
/// MindCluster's guide to preparing a cluster (`02_preparing_cluster_environment.md`).
const MIN_SHARED_MEMORY: f64 = 16.0 * 1024.0 * 1024.0 * 1024.0;

/// The bytes of a quantity of Kubernetes; `None` if it isn't one.
fn bytes(quantity: &str) -> Option<f64> {
    let end =
        quantity.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')).unwrap_or(quantity.len());
    let (number, suffix) = match quantity.split_at(end) {
        // `E` and `Ei` are suffixes too.
        (number, "") if number.ends_with('E') => (&number[..end - 1], "E"),
        (number, "i") if number.ends_with('E') => (&number[..end - 1], "Ei"),
        parts => parts,
    };
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let decimal = ["k", "M", "G", "T", "P", "E"];
    let power = |list: &[&str]| {
        list.iter().position(|other| *other == suffix).and_then(|at| i32::try_from(at + 1).ok())
    };
    let factor = match (suffix, power(&binary), power(&decimal)) {
        ("", ..) => 1.0,
        (_, Some(power), _) => 1024_f64.powi(power),
        (_, _, Some(power)) => 1000_f64.powi(power),
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_bytes() {
        for (quantity, expected) in [
            ("16Gi", Some(17_179_869_184.0)),
            ("1024", Some(1024.0)),
            ("8G", Some(8e9)),
            ("1e10", Some(1e10)),
            ("0.5Ti", Some(549_755_813_888.0)),
            ("2E", Some(2e18)),
            ("1Ei", Some(1_152_921_504_606_846_976.0)),
            ("", None),
            ("Gi", None),
            ("16GiB", None),
        ] {
            assert_eq!(bytes(quantity), expected, "{quantity}");
        }
    }
}

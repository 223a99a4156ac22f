//! Warns about settings of a job with which a dump may be lost.

use swansong_api::labels::FAULT_SCHEDULING;

use crate::reason::Reason;
use crate::report::Outcome;
use crate::view::Object;
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
}

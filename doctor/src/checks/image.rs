//! The image of a Pod and its training program, as the agents see them.

use super::finding::{Judged, Verdict};
use super::pod::PodView;
use super::processes::{observed, verdict};
use crate::snapshot::{ImageFinding, Snapshot};

const NOT_SEARCHED: &str = "LibrariesNotSearched";
/// Checks of an image on which a dump doesn't depend.
const BESIDE_THE_DUMP: [&str; 2] = ["libmspti", "shell"];
/// The check of torch's launcher, which the launcher hook can patch.
const LAUNCHER: &str = "launcher";

/// The libraries are for TaskD's profiling, so a dump works without them. A search that can't run keeps the Pod from starting.
pub(super) fn libraries(pod: &PodView<'_>, snapshot: &Snapshot) -> Judged {
    let Some(discovery) = &verdict(pod, snapshot)?.discovery else {
        return Err(Verdict::unknown("its node's agent hasn't seen the end of the search"));
    };
    let seen = format!("{}: {}", discovery.reason, discovery.message);
    Ok(match discovery.reason.as_str() {
        "LibrariesFound" => Verdict::pass("they are linked"),
        "LibrariesNotFound" => Verdict::warn(seen),
        NOT_SEARCHED | "LibraryIsLink" => Verdict::fail(seen),
        _ => Verdict::unknown(seen),
    })
}

/// Whether the Pod doesn't start since its libraries can't be searched.
pub(super) fn keeps_from_starting(pod: &PodView<'_>, snapshot: &Snapshot) -> bool {
    let discovery = verdict(pod, snapshot).ok().and_then(|verdict| verdict.discovery.as_ref());
    pod.is_searched() && discovery.is_some_and(|discovery| discovery.reason == NOT_SEARCHED)
}

/// What the image of the training container lacks.
pub(super) fn image(pod: &PodView<'_>, snapshot: &Snapshot) -> Judged {
    let name = pod.container.map(|container| container.name.as_str());
    let mut containers = verdict(pod, snapshot)?.containers.iter();
    let container = containers.find(|container| Some(container.name.as_str()) == name);
    let Some(image) = container.and_then(|container| container.image.as_ref()) else {
        return Err(Verdict::unknown("its node's agent can't read the files of its training container"));
    };
    let with = |status: &str| -> Vec<String> {
        let findings = image.findings.iter().filter(|finding| finding.status == status);
        let relevant = findings.filter(|finding| is_relevant(finding, pod));
        relevant.map(|finding| format!("{}: {}", finding.check, finding.message)).collect()
    };
    let (missing, doubtful) = (with("missing"), with("warning"));
    Ok(if !missing.is_empty() {
        Verdict::fail(missing.join("; "))
    } else if !doubtful.is_empty() {
        Verdict::warn(doubtful.join("; "))
    } else if image.findings.is_empty() {
        Verdict::unknown("its node's agent has checked nothing of its image")
    } else {
        Verdict::pass("their images have what a dump needs")
    })
}

fn is_relevant(finding: &ImageFinding, pod: &PodView<'_>) -> bool {
    let is_patched = finding.check == LAUNCHER && finding.status == "warning" && pod.has_launcher_patch();
    !BESIDE_THE_DUMP.contains(&finding.check.as_str()) && !is_patched
}

/// Whether the training program can save.
pub(super) fn trainer(pod: &PodView<'_>, snapshot: &Snapshot) -> Judged {
    let Some(trainer) = &observed(pod, snapshot)?.trainer else {
        return Err(Verdict::unknown("its node's agent sees no training program that it knows"));
    };
    Ok(match trainer.verdict.as_str() {
        "can" => Verdict::pass("they can save a dying checkpoint"),
        "can't" => Verdict::fail(trainer.message.clone()),
        _ => Verdict::unknown(trainer.message.clone()),
    })
}

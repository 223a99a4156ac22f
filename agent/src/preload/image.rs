//! What the images of running containers lack for a dump.

use std::collections::HashMap;
use std::path::Path;

use swansong_image::{Report, Search, check};

use super::{InjectedPod, PodVerdict};
use crate::host::{HostRoot, running_container};

/// The reports by the container's id. An image doesn't change while a container runs, so each is checked once.
#[derive(Debug, Default)]
pub struct ImageReports(HashMap<String, Option<Report>>);

impl ImageReports {
    /// Adds the reports to the verdicts on the containers of `pods`, in the same order.
    pub fn attach(&mut self, proc: &Path, pods: &[InjectedPod], verdicts: &mut [PodVerdict]) {
        let ids =
            || pods.iter().flat_map(|pod| &pod.containers).filter_map(|container| container.id.as_ref());
        self.0.retain(|known, _| ids().any(|id| id == known));
        for (pod, verdict) in pods.iter().zip(verdicts) {
            for (container, verdict) in pod.containers.iter().zip(&mut verdict.containers) {
                let Some(id) = &container.id else { continue };
                let report = self.0.entry(id.clone()).or_insert_with(|| report(proc, id));
                verdict.image.clone_from(report);
            }
        }
    }
}

/// `None` if the files of the container can't be read.
fn report(proc: &Path, id: &str) -> Option<Report> {
    let processes = running_container(proc, id).ok()?;
    let root = HostRoot::open(&proc.join(processes.first()?.to_string()).join("root")).ok()?;
    check(&root, Search::UsualPlaces).ok()
}

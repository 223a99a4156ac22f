//! The definition of AscendJob.

use std::path::{Path, PathBuf};

use swansong_testcluster::{Cluster, Error};

use crate::install::repository;

/// MindCluster's and Volcano's own definitions, in a folder beside the repository that not
/// everybody has; else those of the tests, which keep the parts of the schema that matter here.
pub fn file() -> PathBuf {
    let real = repository().join("../shared/inputs/crds.yaml");
    if real.is_file() { real } else { repository().join("tests/fixtures/crds.yaml") }
}

/// Applies the definitions in a file and waits until AscendJobs can be stored.
pub async fn apply(cluster: &Cluster, file: &Path) -> Result<(), Error> {
    // Server-side: the real ones are longer than what an annotation holds.
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename"].map(Path::new);
    cluster.kubectl(&[&apply[..], &[file]].concat()).await?;
    let established = ["wait", "--for=condition=Established", "--timeout=60s"];
    cluster.kubectl(&[&established[..], &["crd/ascendjobs.mindxdl.gitee.com"]].concat()).await.map(drop)
}

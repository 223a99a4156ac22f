//! The definitions of AscendJob and Volcano Job.

use std::path::{Path, PathBuf};
use std::time::Duration;

use swansong_testcluster::{Cluster, Error, eventually};

use crate::install::repository;

/// How long the API server may take to serve a definition.
const TIMEOUT: Duration = Duration::from_mins(1);

/// MindCluster's and Volcano's own definitions, in a folder beside the repository that not
/// everyone has; else those of the tests, which keep the parts of the schema that matter here.
pub fn file() -> PathBuf {
    let real = repository().join("../shared/inputs/crds.yaml");
    if real.is_file() { real } else { repository().join("tests/support/fixtures/crds.yaml") }
}

/// Applies the definitions in a file and waits until AscendJobs and Volcano Jobs can be stored.
pub async fn apply(cluster: &Cluster, file: &Path) -> Result<(), Error> {
    // Server-side: the real ones are longer than what an annotation holds.
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename"].map(Path::new);
    cluster.kubectl(&[&apply[..], &[file]].concat()).await?;
    // kubectl's own wait gives up on a definition that has no conditions yet, so it is asked again.
    for definition in ["crd/ascendjobs.mindxdl.gitee.com", "crd/jobs.batch.volcano.sh"] {
        let established = ["wait", "--for=condition=Established", "--timeout=1s", definition];
        eventually("the definition to be served", TIMEOUT, || cluster.kubectl(&established)).await?;
    }
    Ok(())
}

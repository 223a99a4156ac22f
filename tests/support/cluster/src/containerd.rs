//! Loads images into containerd.

use std::path::Path;

use crate::Error;
use crate::process::{run, system_command};

/// Imports an image file into the namespace that a kubelet's containerd keeps images of pods in.
pub(crate) fn load(containerd_socket: &Path, tar: &Path) -> Result<(), Error> {
    let mut command = system_command("ctr");
    command.arg("--address").arg(containerd_socket);
    command.args(["--namespace", "k8s.io", "images", "import"]).arg(tar);
    run(&mut command).map(drop)
}

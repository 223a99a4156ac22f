//! What these tests need of the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The interpreter for which Debian has torch.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

const HAS_TORCH: &str = "import sys, importlib.util as i; sys.exit(i.find_spec('torch') is None)";

/// Whether this machine has root and torch. Where `prerequisites.sh training` could install torch, it has to be there.
pub(crate) fn is_ready() -> bool {
    let is_root = nix::unistd::Uid::effective().is_root();
    let has_torch = Command::new(PYTHON).args(["-c", HAS_TORCH]).stderr(Stdio::null()).status();
    if is_root && has_torch.is_ok_and(|status| status.success()) {
        return true;
    }
    let remedy = "as root on Debian, run tests/support/cluster/prerequisites.sh training";
    let could_install = is_root && Path::new("/usr/bin/apt-get").exists();
    assert!(!could_install && std::env::var_os("CI").is_none(), "torch is missing: {remedy}");
    eprintln!("NOT TESTED, this needs root and torch: {remedy}");
    false
}

pub(crate) fn repository() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

//! The way into the node: separate namespaces for processes, mounts, network and host name.
//!
//! The namespaces are what makes a node go away for sure. When its first process ends, the kernel
//! kills every other process in there, containers and their shims included, and with the last one
//! go all mounts, interfaces and firewall rules.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::getppid;

use super::spec::NodeSpec;
use crate::process::MYSELF;
use crate::{Error, network};

/// What `testcluster enter-node SPEC` does. It returns when the node has ended.
///
/// It must be called while the process has one thread only.
pub fn enter(spec_path: &Path) -> Result<(), Error> {
    let spec = NodeSpec::read(spec_path)?;
    let host = getppid();
    own(CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC)?;
    // The host's process ids mean something to a child of this process only until the next step.
    network::make_link(&spec.network, host.as_raw().unsigned_abs())?;
    // This process stays in its own; its next child is the first of the new one.
    own(CloneFlags::CLONE_NEWPID)?;
    let arguments = [OsString::from("init-node"), spec_path.into()];
    let status =
        Command::new(MYSELF).args(arguments).status().map_err(Error::io("start the node's first process"))?;
    Err(Error::Command { command: "init-node".to_owned(), output: status.to_string() })
}

fn own(namespaces: CloneFlags) -> Result<(), Error> {
    unshare(namespaces).map_err(Error::errno("make namespaces for the node"))
}

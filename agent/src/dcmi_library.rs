//! Finds the driver's library on the host for the source of faults that uses it.

use std::path::PathBuf;
use std::sync::Arc;

use swansong_faults::sources::{FindLibrary, Library};

use crate::checks::{Settings, loadable_library};
use crate::host::HostRoot;

/// Finds `libdcmi.so` below `host_root` each time it is called.
pub fn finder(host_root: PathBuf, settings: Settings) -> FindLibrary {
    Arc::new(move || {
        let root = HostRoot::open(&host_root)
            .map_err(|error| format!("the host root {} can't be opened: {error}", host_root.display()))?;
        let found = loadable_library(&root, &settings, "libdcmi.so").map_err(|finding| finding.message)?;
        Ok(Library { path: found.library, folders: found.folders })
    })
}

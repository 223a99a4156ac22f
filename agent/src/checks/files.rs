//! npu-smi, the loader's file and further required paths.

use std::os::unix::fs::PermissionsExt as _;

use super::path_finding;
use crate::finding::{Finding, Reason};
use crate::host::{
    HostRoot, LD_SO_PRELOAD, LdSoPreloadError, PathError, file_kind, ld_so_preload as read_ld_so_preload,
};

/// Most hosts have it in `bin`; A200, 200I A2 and 500 A2 in `sbin` (`ascend-docker-runtime/build/scripts/base.list*`).
/// The runtime silently skips a missing one.
const NPU_SMI: [&str; 2] = ["/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi"];

const ADVICE: &str = "reinstall the driver, or set `npuSmi` if it is elsewhere";

/// Whether the first existing npu-smi is a program.
pub(super) fn npu_smi(root: &HostRoot, configured: &[String]) -> Finding {
    let paths: Vec<&str> = if configured.is_empty() {
        NPU_SMI.to_vec()
    } else {
        configured.iter().map(String::as_str).collect()
    };
    let Some(&first) = paths.first() else {
        return Finding::new(Reason::FileMissing, "`npuSmi` lists no path");
    };
    for path in &paths {
        match root.resolve(path) {
            Err(PathError::Missing) => {}
            Err(error) => return path_finding(root, path, &error, Reason::FileMissing, ADVICE),
            Ok(entry) => {
                let metadata = entry.metadata();
                let (reason, problem) = if let Some(kind) = file_kind(metadata.file_type()) {
                    (Reason::NotAFile, format!("is {kind}, not a program"))
                } else if metadata.len() == 0 {
                    (Reason::FileEmpty, "is empty".to_owned())
                } else if metadata.permissions().mode() & 0o111 == 0 {
                    (Reason::NotExecutable, "isn't executable".to_owned())
                } else {
                    return Finding::at(*path, Reason::Present, format!("{path} is a program"));
                };
                return Finding::at(*path, reason, format!("{path} {problem}; {ADVICE}"));
            }
        }
    }
    let finding = path_finding(root, first, &PathError::Missing, Reason::FileMissing, ADVICE);
    if finding.reason != Reason::FileMissing {
        return finding;
    }
    let message = format!("npu-smi is in none of {}; {ADVICE}", paths.join(", "));
    Finding::at(first, Reason::FileMissing, message)
}

/// The host's `/etc/ld.so.preload`; `None` if there is none.
pub(super) fn ld_so_preload(root: &HostRoot) -> Option<Finding> {
    Some(match read_ld_so_preload(root) {
        Ok(libraries) => {
            let message = format!("{LD_SO_PRELOAD} names {} libraries", libraries?.len());
            Finding::at(LD_SO_PRELOAD, Reason::Present, message)
        }
        Err(error) => {
            let reason = match error {
                LdSoPreloadError::NotAFile(_) => Reason::NotAFile,
                LdSoPreloadError::NotReadable(_) => Reason::NotReadable,
                LdSoPreloadError::Missing(_) => Reason::FileMissing,
            };
            Finding::at(LD_SO_PRELOAD, reason, format!("{error}; correct or remove it"))
        }
    })
}

/// The first configured path that doesn't exist; `None` if none is configured.
pub(super) fn extra_paths(root: &HostRoot, paths: &[String]) -> Option<Finding> {
    let last = paths.last()?;
    for path in paths {
        if let Err(error) = root.resolve(path) {
            let advice = "provide it, or remove it from `paths`";
            return Some(path_finding(root, path, &error, Reason::FileMissing, advice));
        }
    }
    Some(Finding::at(last, Reason::Present, format!("{} exist", paths.join(", "))))
}

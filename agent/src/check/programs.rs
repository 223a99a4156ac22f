//! npu-smi, and further paths that configuration demands.

use std::os::unix::fs::PermissionsExt as _;

use super::unseen;
use crate::elf::other_kind;
use crate::reason::Reason;
use crate::report::Finding;
use crate::root::{HostRoot, LookError};

/// Ordinary hosts have it in `bin`; A200, 200I A2 and 500 A2 in `sbin` (`ascend-docker-runtime/build/scripts/base.list*`).
/// The runtime mounts what is there and skips in silence what isn't.
const PLACES: [&str; 2] = ["/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi"];

const ADVICE: &str = "reinstall the driver, or set `npuSmi` if it is elsewhere";

/// The first npu-smi that is there has to be a program.
pub(super) fn npu_smi(root: &HostRoot, configured: &[String]) -> Finding {
    let places: Vec<&str> =
        if configured.is_empty() { PLACES.to_vec() } else { configured.iter().map(String::as_str).collect() };
    let Some(&first) = places.first() else {
        return Finding::new(Reason::FileMissing, "`npuSmi` names no place");
    };
    for path in &places {
        match root.follow(path) {
            Err(LookError::Missing) => {}
            Err(error) => return unseen(root, path, &error, Reason::FileMissing, ADVICE),
            Ok(entry) => {
                let metadata = entry.metadata();
                let (reason, problem) = if let Some(kind) = other_kind(metadata.file_type()) {
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
    let finding = unseen(root, first, &LookError::Missing, Reason::FileMissing, ADVICE);
    if finding.reason != Reason::FileMissing {
        return finding;
    }
    let message = format!("npu-smi is in none of {}; {ADVICE}", places.join(", "));
    Finding::at(first, Reason::FileMissing, message)
}

/// The first of the configured paths that isn't there; `None` when none is configured.
pub(super) fn extra_paths(root: &HostRoot, paths: &[String]) -> Option<Finding> {
    let last = paths.last()?;
    for path in paths {
        if let Err(error) = root.follow(path) {
            let advice = "provide it, or remove it from `paths`";
            return Some(unseen(root, path, &error, Reason::FileMissing, advice));
        }
    }
    Some(Finding::at(last, Reason::Present, format!("{} are there", paths.join(", "))))
}

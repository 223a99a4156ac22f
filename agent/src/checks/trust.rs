//! MindCluster's ownership rule for libraries that a component loads as root.
//!
//! The file, a link to it and every folder above it belong to root, and neither group nor others can write them
//! (`GetDriverLibPath` in `ascend-common/common-utils/utils/path.go`). All components skip a library that violates it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::host::{Entry, HostRoot, PathResult};

/// Write permission of group and others: `DefaultWriteFileMode`.
const WRITABLE: u32 = 0o022;

/// The limit `maxPathDepth` of MindCluster.
const MAX_DEPTH: usize = 20;

/// The required owner of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// This user, who alone can write it. MindCluster's components require 0.
    Owner(u32),
    /// Any user may own and write it.
    Anyone,
}

/// A violation of the rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) path: PathBuf,
    pub(super) problem: String,
}

/// Why `entry`, found at `path`, isn't trusted; `None` if it is.
pub(super) fn violation(
    root: &HostRoot,
    path: &str,
    entry: &Entry,
    trust: Trust,
) -> PathResult<Option<Violation>> {
    let Trust::Owner(owner) = trust else { return Ok(None) };
    if Path::new(path) != entry.resolved() {
        // A link has an owner but no permissions.
        let link = root.resolve_nofollow(path)?;
        if link.metadata().uid() != owner {
            return Ok(Some(wrong_owner(Path::new(path), link.metadata().uid(), owner)));
        }
    }
    if entry.resolved().components().count() > MAX_DEPTH {
        let problem = format!("it is more than {} folders deep", MAX_DEPTH - 1);
        return Ok(Some(Violation { path: entry.resolved().to_owned(), problem }));
    }
    for above in entry.resolved().ancestors() {
        let found;
        let metadata = if above == entry.resolved() {
            entry.metadata()
        } else {
            found = root.resolve_nofollow(above)?;
            found.metadata()
        };
        if metadata.uid() != owner {
            return Ok(Some(wrong_owner(above, metadata.uid(), owner)));
        }
        if metadata.mode() & WRITABLE != 0 {
            let problem = "group or others can write it; run `chmod go-w` on it".to_owned();
            return Ok(Some(Violation { path: above.to_owned(), problem }));
        }
    }
    Ok(None)
}

fn wrong_owner(path: &Path, actual: u32, required: u32) -> Violation {
    let problem = format!("user {actual} owns it; run `chown --no-dereference {required}` on it");
    Violation { path: path.to_owned(), problem }
}

//! MindCluster's rule for libraries that a component loads as root: the file, a link to it and every folder above it
//! belong to root, and neither group nor others may write (`GetDriverLibPath` in
//! `ascend-common/common-utils/utils/path.go`). A library that breaks it is passed over by every component, however
//! sound it is.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::root::{Entry, HostRoot, Look};

/// Write permission of group and others: `DefaultWriteFileMode`.
const WRITABLE: u32 = 0o022;

/// `maxPathDepth`: a library deeper than this is refused.
const DEEPEST: usize = 20;

/// Who has to own a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// This user, and nobody else may write. MindCluster's components demand 0.
    Owner(u32),
    /// Anybody.
    Anyone,
}

/// What breaks the rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) path: PathBuf,
    pub(super) problem: String,
}

/// Why `entry`, found at `path`, isn't trusted; `None` if it is.
pub(super) fn breach(root: &HostRoot, path: &str, entry: &Entry, trust: Trust) -> Look<Option<Breach>> {
    let Trust::Owner(owner) = trust else { return Ok(None) };
    if Path::new(path) != entry.resolved() {
        // Of the link itself only the owner counts, since a link has no permissions of its own.
        let link = root.stand(path)?;
        if link.metadata().uid() != owner {
            return Ok(Some(owned(Path::new(path), link.metadata().uid(), owner)));
        }
    }
    if entry.resolved().components().count() > DEEPEST {
        let problem = format!("it is more than {} folders deep", DEEPEST - 1);
        return Ok(Some(Breach { path: entry.resolved().to_owned(), problem }));
    }
    for above in entry.resolved().ancestors() {
        let found;
        let metadata = if above == entry.resolved() {
            entry.metadata()
        } else {
            found = root.stand(above)?;
            found.metadata()
        };
        if metadata.uid() != owner {
            return Ok(Some(owned(above, metadata.uid(), owner)));
        }
        if metadata.mode() & WRITABLE != 0 {
            let problem = "group or others may write it; run `chmod go-w` on it".to_owned();
            return Ok(Some(Breach { path: above.to_owned(), problem }));
        }
    }
    Ok(None)
}

fn owned(path: &Path, by: u32, owner: u32) -> Breach {
    let problem = format!("user {by} owns it; run `chown --no-dereference {owner}` on it");
    Breach { path: path.to_owned(), problem }
}

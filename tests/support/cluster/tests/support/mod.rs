//! What several tests need.
#![allow(dead_code, missing_docs, clippy::unwrap_used, unreachable_pub)]

use std::path::PathBuf;

/// An example of this package, which cargo builds together with its tests.
pub fn example(name: &str) -> PathBuf {
    let me = std::env::current_exe().unwrap();
    me.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

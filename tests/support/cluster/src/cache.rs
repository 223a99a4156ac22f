//! Where programs that take minutes to build are kept: outside of cargo's target folder, so that
//! `cargo clean` doesn't cost them.

use std::env;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

/// The cache folder: `SWANSONG_CACHE`, else `swansong` in the user's cache folder.
pub(crate) fn directory() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(chosen) = set("SWANSONG_CACHE") {
        return chosen;
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("swansong")
}

/// A short name for contents, so that two versions never meet in one folder.
pub(crate) fn fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())[..16].to_owned()
}

/// Lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;

    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

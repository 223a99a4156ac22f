//! `/etc/ld.so.preload`: the loader reads it in every process, and preloads its libraries after those of LD_PRELOAD
//! (ld.so(8)).

use swansong_api::preload::entries;

use super::{HostRoot, PathError, file_kind};

pub(crate) const LD_SO_PRELOAD: &str = "/etc/ld.so.preload";

/// Programs with larger files don't exist.
const MAX_SIZE: u64 = 64 << 10;

/// The loader prints an error in every process, and continues without the libraries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LdSoPreloadError {
    #[error("{LD_SO_PRELOAD} is {0}, not a file, so it preloads nothing")]
    NotAFile(&'static str),
    #[error("{LD_SO_PRELOAD} can't be read: {0}")]
    NotReadable(String),
    #[error("{LD_SO_PRELOAD} names {}, which can't be opened; every program prints an error", .0.join(", "))]
    Missing(Vec<String>),
}

/// The libraries that the file names; `None` if it doesn't exist.
pub(crate) fn ld_so_preload(root: &HostRoot) -> Result<Option<Vec<String>>, LdSoPreloadError> {
    let unreadable = |error: PathError| LdSoPreloadError::NotReadable(error.to_string());
    let entry = match root.resolve(LD_SO_PRELOAD) {
        Err(PathError::Missing) => return Ok(None),
        entry => entry.map_err(unreadable)?,
    };
    if let Some(kind) = file_kind(entry.metadata().file_type()) {
        return Err(LdSoPreloadError::NotAFile(kind));
    }
    let content = entry.read(MAX_SIZE).map_err(unreadable)?;
    let content = String::from_utf8_lossy(&content);
    let lines = content.lines().map(|line| line.split('#').next().unwrap_or_default());
    let libraries: Vec<String> = lines.flat_map(entries).map(str::to_owned).collect();
    // Only the loader knows where it searches for a name without a folder, and the values of $LIB and its like.
    let is_path = |library: &&String| library.starts_with('/') && !library.contains('$');
    let missing = libraries.iter().filter(is_path).filter(|library| root.resolve(library).is_err());
    let missing: Vec<String> = missing.cloned().collect();
    if missing.is_empty() { Ok(Some(libraries)) } else { Err(LdSoPreloadError::Missing(missing)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_and_resolved() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = HostRoot::open(folder.path()).expect("opened");
        assert_eq!(ld_so_preload(&root), Ok(None));
        let etc = folder.path().join("etc");
        std::fs::create_dir_all(etc.join("ld.so.preload")).expect("made");
        assert_eq!(ld_so_preload(&root), Err(LdSoPreloadError::NotAFile("a folder")));
        std::fs::remove_dir(etc.join("ld.so.preload")).expect("removed");
        let write = |text: &str| std::fs::write(etc.join("ld.so.preload"), text).expect("written");
        write("# none\n");
        assert_eq!(ld_so_preload(&root), Ok(Some(Vec::new())));
        write("/etc/a.so:/etc/b.so # /etc/c.so\nlibd.so /$LIB/e.so\n");
        std::fs::write(etc.join("a.so"), "").expect("written");
        assert_eq!(ld_so_preload(&root), Err(LdSoPreloadError::Missing(vec!["/etc/b.so".to_owned()])));
        std::fs::write(etc.join("b.so"), "").expect("written");
        let libraries = ["/etc/a.so", "/etc/b.so", "libd.so", "/$LIB/e.so"].map(str::to_owned).to_vec();
        assert_eq!(ld_so_preload(&root), Ok(Some(libraries)));
    }
}

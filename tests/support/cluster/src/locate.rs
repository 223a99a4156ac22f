//! Finding the supervisor's binary from a test of any package.
//!
//! Cargo passes a test the paths of binaries of the same package, but not those of a dependency, and
//! building a test of another package doesn't build them. So the library searches beside the running
//! test, in `target/<profile>/`, and has cargo build the binary when it is missing or older than
//! its source.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::Error;
use crate::process::run;

const PACKAGE: &str = env!("CARGO_PKG_NAME");
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");
const BINARY: &str = "testcluster";

/// The supervisor's binary, built if need be. `SWANSONG_TESTCLUSTER` names another one.
pub(crate) fn supervisor() -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os("SWANSONG_TESTCLUSTER").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let me = env::current_exe().map_err(Error::io("find the running program"))?;
    let folder = profile_folder(&me);
    let binary = folder.join(BINARY);
    if !is_current(&binary) {
        build(folder)?;
    }
    Ok(binary)
}

/// `target/debug` for `target/debug/deps/test-0123`, `target/debug/examples/demo` and `target/debug/demo`.
fn profile_folder(program: &Path) -> &Path {
    let folder = program.parent().unwrap_or(program);
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("deps" | "examples") => folder.parent().unwrap_or(folder),
        _ => folder,
    }
}

fn is_current(binary: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    modified(binary).is_some_and(|built| newest(Path::new(SOURCE)).is_none_or(|source| source <= built))
}

/// The last change to the files that the binary is made from; nothing where the source isn't kept.
fn newest(source: &Path) -> Option<SystemTime> {
    let mut folders = vec![source.join("src"), source.join("programs")];
    let mut newest = fs::metadata(source.join("Cargo.toml")).and_then(|data| data.modified()).ok();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => folders.push(entry.path()),
                Ok(data) => newest = newest.max(data.modified().ok()),
                Err(_) => {}
            }
        }
    }
    newest
}

fn build(folder: &Path) -> Result<(), Error> {
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", PACKAGE, "--bin", BINARY, "--profile", profile]);
    command.current_dir(SOURCE);
    if let Some(target) = folder.parent() {
        command.arg("--target-dir").arg(target);
    }
    run(&mut command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_folder_is_found_from_tests_examples_and_binaries() {
        for program in ["/w/target/debug/deps/a-1", "/w/target/debug/examples/a", "/w/target/debug/a"] {
            assert_eq!(profile_folder(Path::new(program)), Path::new("/w/target/debug"));
        }
    }

    #[test]
    fn a_missing_binary_is_not_current() {
        assert!(!is_current(Path::new("/nowhere/testcluster")));
    }
}

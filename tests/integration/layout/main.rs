//! The layout of the repository: what each crate may depend on, no cycles between modules, and folders as documented.
#![allow(missing_docs, clippy::unwrap_used)]
#![allow(clippy::case_sensitive_file_extension_comparisons, reason = "the repository's own files end in .rs")]

mod architecture;
mod crates;
mod folders;
mod modules;
mod source;

use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The standard output of a program that is run in the root of the repository.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(ROOT).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The files of the repository, tracked or new, relative to its root.
fn files() -> Vec<String> {
    let listed = output("git", &["ls-files", "--cached", "--others", "--exclude-standard"]);
    let exists = |file: &&str| Path::new(ROOT).join(file).is_file();
    listed.lines().filter(exists).map(str::to_owned).collect()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap()
}

//! The launcher hook in each CPython that this machine has.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The versions that TaskD's and MindSpeed's images have.
const MINOR_VERSIONS: std::ops::RangeInclusive<u32> = 7..=13;

#[test]
fn launcher_hook_waits_for_the_dump_in_each_python() {
    let pythons = installed_pythons();
    assert!(!pythons.is_empty(), "no python3 is installed: apt-get install python3");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/launcher_hook/test_launcher_hook.py");
    // Most of a run is waiting, so all interpreters run side by side.
    let runs: Vec<_> = pythons
        .into_iter()
        .map(|(version, python)| {
            let run = Command::new(&python).arg("-B").arg(&tests).stderr(Stdio::piped()).spawn();
            (version, run.unwrap_or_else(|error| panic!("{}: {error}", python.display())))
        })
        .collect();
    for (version, run) in runs {
        let run = run.wait_with_output().unwrap();
        assert!(run.status.success(), "Python 3.{version}:\n{}", String::from_utf8_lossy(&run.stderr));
    }
}

/// One interpreter of each minor version, from the PATH and from pyenv.
fn installed_pythons() -> BTreeMap<u32, PathBuf> {
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".pyenv")));
    let versions = pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok()).into_iter().flatten();
    let candidates = versions.flatten().map(|entry| entry.path().join("bin/python3"));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path)
        .flat_map(|folder| MINOR_VERSIONS.map(move |minor| folder.join(format!("python3.{minor}"))))
        .collect::<Vec<_>>();
    candidates.chain(on_path).filter_map(|python| Some((minor_version(&python)?, python))).collect()
}

/// The minor version of an interpreter that starts, if the hook supports it.
fn minor_version(python: &Path) -> Option<u32> {
    let output = Command::new(python).args(["-c", "import sys; print(sys.version_info[1])"]).output().ok()?;
    let minor = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    MINOR_VERSIONS.contains(&minor).then_some(minor)
}

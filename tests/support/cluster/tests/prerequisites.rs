//! The script that checks a machine before anything is built, on machines that lack everything.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A folder of programs to be the `PATH`.
struct Machine(tempfile::TempDir);

impl Machine {
    fn bare() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for program in ["cut", "id", "sed", "sh", "uname"] {
            let real = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(program));
            symlink(real.iter().find(|file| file.exists()).unwrap(), machine.path(program)).unwrap();
        }
        machine
    }

    fn path(&self, program: &str) -> PathBuf {
        self.0.path().join(program)
    }

    fn with(self, program: &str, output: &str) -> Self {
        fs::write(self.path(program), format!("#!/bin/sh\necho {output}\n")).unwrap();
        fs::set_permissions(self.path(program), fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// What the script prints before it exits with 1, which takes less than five seconds.
    fn complaint(&self, tier: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("prerequisites.sh");
        let started = Instant::now();
        let output =
            Command::new("/bin/sh").arg(script).arg(tier).env("PATH", self.0.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(started.elapsed() < Duration::from_secs(5));
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn names_the_command_for_each_missing_compiler() {
    let complaint = Machine::bare().complaint("api");
    for part in ["https://sh.rustup.rs", "https://go.dev/dl/", "gcc libc6-dev"] {
        assert!(complaint.contains(part), "{part}: {complaint}");
    }
}

#[test]
fn rejects_compilers_that_are_too_old() {
    let machine = Machine::bare().with("cargo", "cargo 1.85.1").with("go", "go1.19.8").with("cc", "");
    let complaint = machine.complaint("api");
    assert!(complaint.contains("cargo 1.85.1 is too old"), "{complaint}");
    assert!(complaint.contains("Go 1.19.8 is too old"), "{complaint}");
}

#[test]
fn asks_for_no_more_than_the_tier_needs() {
    let complaint = Machine::bare().complaint("build");
    assert!(!complaint.contains("Go ") && !complaint.contains("containerd"), "{complaint}");
}

//! The script that checks a machine before anything is built, on machines that lack everything.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A folder of programs to be the `PATH`, and the home folder.
struct Machine(tempfile::TempDir);

impl Machine {
    /// A machine of root's without compilers.
    fn bare() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for program in ["cut", "sed", "sh", "uname"] {
            let real = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(program));
            symlink(real.iter().find(|file| file.exists()).unwrap(), machine.path(program)).unwrap();
        }
        machine.with("id", "echo 0")
    }

    /// A machine of root's with compilers.
    fn with_compilers() -> Self {
        let go = r#"case "$2" in GOVERSION) echo go1.26.8 ;; *) echo auto ;; esac"#;
        Self::bare().with("cargo", "echo cargo 1.95.0").with("go", go).with("cc", "").with("python3", "")
    }

    fn path(&self, program: &str) -> PathBuf {
        self.0.path().join(program)
    }

    /// Adds a program, a shell script.
    fn with(self, program: &str, script: &str) -> Self {
        let path = self.path(program);
        assert!(!path.is_symlink(), "{program} is the machine's own");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// Runs the script, which takes less than five seconds.
    fn check(&self, tier: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("prerequisites.sh");
        let started = Instant::now();
        let mut command = Command::new("/bin/sh");
        command.arg(script).args([tier, "demo"]).env_clear();
        command.env("PATH", self.0.path()).env("HOME", self.0.path());
        command.env("SWANSONG_GO_HOME", self.path("go-home"));
        let output = command.output().unwrap();
        assert!(started.elapsed() < Duration::from_secs(5));
        output
    }

    /// What the script prints before it exits with 1.
    fn complaint(&self, tier: &str) -> String {
        let output = self.check(tier);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        complaint
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
    let machine =
        Machine::bare().with("cargo", "echo cargo 1.85.1").with("go", "echo go1.19.8").with("cc", "");
    let complaint = machine.complaint("api");
    assert!(complaint.contains("cargo 1.85.1 is too old"), "{complaint}");
    assert!(complaint.contains("Go 1.19.8 is too old"), "{complaint}");
}

#[test]
fn asks_for_no_more_than_the_tier_needs() {
    let complaint = Machine::bare().complaint("build");
    assert!(!complaint.contains("Go ") && !complaint.contains("containerd"), "{complaint}");
}

#[test]
fn finds_a_rust_that_this_shell_does_not_know_yet() {
    let complaint = Machine::bare().with(".cargo/bin/cargo", "").complaint("build");
    assert!(complaint.contains(". \"$HOME/.cargo/env\"") && !complaint.contains("rustup.rs"), "{complaint}");
}

#[test]
fn finds_a_go_that_is_not_on_the_path() {
    let complaint = Machine::bare().with("go-home/bin/go", "").complaint("api");
    assert!(complaint.contains("go-home/bin\"") && !complaint.contains("go.dev"), "{complaint}");
}

#[test]
fn names_the_variable_that_keeps_go_from_downloading_its_version() {
    let go = r#"case "$2" in GOVERSION) echo go1.24.1 ;; *) echo local ;; esac"#;
    let machine = Machine::bare().with("cargo", "echo cargo 1.95.0").with("cc", "").with("python3", "");
    let complaint = machine.with("go", go).complaint("api");
    assert!(complaint.contains("export GOTOOLCHAIN=auto"), "{complaint}");
}

#[test]
fn names_the_command_for_other_users_than_root() {
    let machine = Machine::with_compilers();
    fs::remove_file(machine.path("id")).unwrap();
    let complaint = machine.with("id", "echo 1000").complaint("node");
    assert!(complaint.contains("sudo env \"PATH=$PATH\" make demo"), "{complaint}");
}

#[test]
fn recognizes_a_container_without_privileges() {
    let complaint = Machine::with_compilers().with("unshare", "exit 1").complaint("node");
    assert!(complaint.contains("docker run --privileged"), "{complaint}");
}

#[test]
fn warns_of_a_disk_that_is_too_small_and_of_no_other() {
    let warning = |available: &str| {
        // The columns of POSIX, as `df -P` aligns them.
        let line = format!("/dev/vda 264212084 13889416  {available}      15% /");
        let machine = Machine::with_compilers().with("df", &format!("echo Filesystem; echo '{line}'"));
        let output = machine.with("prometheus", "").with("promtool", "").check("api");
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(warning("81611848"), "");
    assert!(warning("3145728").contains("3 GB are free here"));
}

#[test]
fn installs_what_is_missing_as_root_where_there_is_apt() {
    let bare = Machine::bare();
    let log = bare.path("log");
    let machine = bare
        .with("cargo", "echo cargo 1.95.0")
        .with(
            "apt-cache",
            "echo 'golang-go | 2:1.24~3~bpo12+1 | http://deb bookworm-backports/main amd64 Packages'",
        )
        .with("apt-get", &format!("echo \"$@\" >> {}", log.display()));
    let output = machine.check("api");
    assert!(output.status.success(), "{output:?}");
    let called = fs::read_to_string(log).unwrap();
    let install = called.lines().find(|line| line.starts_with("install")).unwrap();
    assert!(install.contains("gcc libc6-dev python3 golang-go/bookworm-backports"), "{called}");
}

//! `swansong agent --once` as other programs call it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Nothing that depends on the machine of the test.
const CONFIG: &str = "driver: {libraries: []}\nclusterd: {dial: false}\nnpus: 1\n";

fn agent(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swansong"));
    command.arg("agent").args(arguments);
    command.env_remove("NODE_NAME").env_remove("SWANSONG_AGENT_CONFIG").env_remove("SWANSONG_HOST_ROOT");
    command.env_remove("KUBERNETES_SERVICE_HOST").env("KUBECONFIG", "/no/such/file");
    command.output().expect("the program runs")
}

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("below")).expect("made");
    fs::write(path, content).expect("written");
}

/// The least that a node of the A2 generation has.
fn host() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path();
    for (path, content) in [
        ("agent.yaml", CONFIG),
        ("etc/hostname", "Worker-7\n"),
        ("proc/devices", "Character devices:\n  0 devdrv-cdev\n\nBlock devices:\n"),
        ("proc/1/net/tcp", "  sl  local_address\n"),
        ("sys/bus/pci/devices/0000:00:00.0/vendor", "0x19e5\n"),
        ("sys/bus/pci/devices/0000:00:00.0/device", "0xd802\n"),
        ("usr/local/Ascend/driver/version.info", "Version=25.5.0\n"),
        ("usr/local/Ascend/driver/lib64/driver/README", ""),
        ("usr/local/Ascend/driver/lib64/common/README", ""),
        ("usr/local/bin/npu-smi", "#!/bin/sh\n"),
    ] {
        write(root, path, content);
    }
    fs::create_dir(root.join("dev")).expect("made");
    for device in ["davinci_manager", "hisi_hdc", "devmm_svm", "davinci0"] {
        // The device 0:0, which everybody may make.
        let made = Command::new("mknod").arg(root.join("dev").join(device)).args(["c", "0", "0"]).status();
        assert!(made.expect("mknod").success());
    }
    let executable = Command::new("chmod").arg("+x").arg(root.join("usr/local/bin/npu-smi")).status();
    assert!(executable.expect("chmod").success());
    folder
}

fn check(host: &Path, arguments: &[&str]) -> Output {
    let (root, config) = (host.to_str().expect("plain"), host.join("agent.yaml"));
    let config = config.to_str().expect("plain");
    agent(&[&["--once", "--host-root", root, "--config", config], arguments].concat())
}

#[test]
fn exit_codes_and_json() {
    let host = host();
    let json = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).expect("JSON") };

    let healthy = check(host.path(), &["-o", "json"]);
    let report = json(&healthy);
    assert_eq!(healthy.status.code(), Some(0), "{report:#}");
    assert_eq!((report["node"].as_str(), report["ready"].as_str()), (Some("worker-7"), Some("True")));
    assert_eq!(report["checks"][0]["name"], "device-manager");
    assert_eq!(report["checks"][0]["path"], "/dev/davinci_manager");

    fs::remove_dir_all(host.path().join("sys")).expect("removed");
    fs::remove_file(host.path().join("dev/devmm_svm")).expect("removed");
    let unknown = check(host.path(), &["-o", "json"]);
    assert_eq!(unknown.status.code(), Some(3));
    assert_eq!(json(&unknown)["ready"], "Unknown");

    fs::remove_file(host.path().join("dev/davinci_manager")).expect("removed");
    let broken = check(host.path(), &["-o", "json", "--node", "n"]);
    let report = json(&broken);
    assert_eq!(broken.status.code(), Some(2));
    assert_eq!((report["node"].as_str(), report["ready"].as_str()), (Some("n"), Some("False")));
    assert_eq!(report["checks"][0]["status"], "fail");
    assert_eq!(report["checks"][0]["reason"], "DeviceMissing");
    assert!(broken.stderr.is_empty());
}

#[test]
fn text_for_people() {
    let host = host();
    let output = check(host.path(), &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("worker-7  True"));
    assert!(lines.all(|line| line.starts_with("pass  ")), "{text}");
    assert!(text.contains("the driver is 25.5.0"), "{text}");
}

#[test]
fn errors_of_its_own() {
    let host = host();
    fs::write(host.path().join("agent.yaml"), "npus: none\n").expect("written");
    for (output, needle) in [
        (check(host.path(), &[]), "agent.yaml: line 1, column 7: npus:"),
        (agent(&["--once", "--host-root", "/no/such/folder"]), "--host-root /no/such/folder can't be opened"),
        (agent(&[]), "which can't be found; run it in a cluster, set KUBECONFIG, or check once with --once"),
        (agent(&["--once", "--colour"]), "--colour"),
    ] {
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(needle), "{error}");
        assert!(output.stdout.is_empty());
    }
}

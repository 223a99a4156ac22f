//! `swansong agent --once` as a program.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Independent of the machine of the test.
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

/// A minimal host of the A2 generation.
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
        // Any user may create the device 0:0.
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
fn text_has_one_line_per_check() {
    let host = host();
    let output = check(host.path(), &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("worker-7  True"));
    assert!(lines.all(|line| line.starts_with("pass  ")), "{text}");
    assert!(text.contains("the driver is 25.5.0"), "{text}");
}

#[test]
fn errors_are_on_stderr() {
    let host = host();
    fs::write(host.path().join("agent.yaml"), "npus: none\n").expect("written");
    for (output, needle) in [
        (check(host.path(), &[]), "agent.yaml: line 1, column 7: npus:"),
        (agent(&["--once", "--host-root", "/no/such/folder"]), "--host-root /no/such/folder can't be opened"),
        (agent(&[]), "needs the API server to publish this node's state; run it in a cluster"),
        (agent(&["--once", "--colour"]), "--colour"),
    ] {
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(needle), "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_node_is_named_after_the_host() {
    let host = host();
    let first_line = |output: Output| {
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().next().unwrap_or_default().to_owned()
    };
    write(host.path(), "etc/hostname", "# set by the installer\n\nWorker-7.lab.example\n");
    assert_eq!(first_line(check(host.path(), &[])), "worker-7.lab.example  True");
    write(host.path(), "etc/hostname", "\u{feff}worker-7. # rack 3\n");
    assert_eq!(first_line(check(host.path(), &[])), "worker-7  True");
    write(host.path(), "proc/sys/kernel/hostname", "worker-8\n");
    for no_node in [
        "worker 7\n",
        "; set by the installer\nworker-7\n",
        "worker_7\n",
        "localhost.localdomain\n",
        "-\n",
        "\n",
    ] {
        write(host.path(), "etc/hostname", no_node);
        assert_eq!(first_line(check(host.path(), &[])), "worker-8  True", "{no_node:?}");
    }
    fs::remove_file(host.path().join("etc/hostname")).expect("removed");
    assert_eq!(first_line(check(host.path(), &[])), "worker-8  True");
    for no_node in ["(none)\n", "localhost\n", "", "worker-8..lab\n"] {
        write(host.path(), "proc/sys/kernel/hostname", no_node);
        let output = check(host.path(), &[]);
        assert_eq!(output.status.code(), Some(1), "{no_node:?}");
        assert!(String::from_utf8(output.stderr).expect("text").contains("--node"), "{no_node:?}");
    }
}

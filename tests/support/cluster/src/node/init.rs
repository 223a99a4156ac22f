//! The node's first process: mounts, network, containerd, kubelet, kube-proxy, and reaping.
//!
//! It talks to the supervisor by lines: [`NETWORK_READY`] and [`RUNTIME_READY`] on its standard
//! output; on its standard input [`GO`] once the API server answers, and [`REGISTERED`] once there is a
//! Node. The end of its standard input means that the supervisor is gone.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use std::{process as std_process, thread};

use nix::mount::{MsFlags, mount, umount};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, sethostname};

use super::config::{self, CONTAINERD_SOCKET};
use super::spec::NodeSpec;
use crate::process::{system_command, tail};
use crate::wait::eventually_blocking;
use crate::{Error, containerd, network};

/// The node's end of the link exists and has its address.
pub(crate) const NETWORK_READY: &str = "network";
/// containerd answers and has the image it needs.
pub(crate) const RUNTIME_READY: &str = "runtime";
/// The API server answers: join it.
pub(crate) const GO: &str = "go";
/// The Node exists and has its addresses, without which kube-router doesn't start.
pub(crate) const REGISTERED: &str = "registered";

/// Folders of the machine in whose place the node has its own, in the cluster's folder.
const OWN_FOLDERS: [(&str, &str); 6] = [
    ("run", "/run"),
    ("kubelet", "/var/lib/kubelet"),
    ("containerd", "/var/lib/containerd"),
    ("cni", "/var/lib/cni"),
    ("log", "/var/log"),
    ("swansong", "/var/lib/swansong"),
];

const TIMEOUT: Duration = Duration::from_secs(30);

/// What `testcluster init-node SPEC` does, as process 1. It returns only when something failed.
pub fn init(spec_path: &Path) -> Result<(), Error> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(Error::errno("ask for a death signal"))?;
    let orders = listen();
    let spec = NodeSpec::read(spec_path)?;

    own_mounts(&spec)?;
    sethostname(&spec.name).map_err(Error::errno("set the node's host name"))?;
    network::configure_node_end(&spec.network)?;
    report(NETWORK_READY)?;

    let containerd = start_containerd(&spec)?;
    report(RUNTIME_READY)?;

    await_order(&orders, GO);
    let kubelet = start_kubelet(&spec)?;
    let proxy = start_proxy(&spec)?;
    let mut programs = vec![("containerd", containerd), ("kubelet", kubelet), ("kube-proxy", proxy)];
    if let Some(kube_router) = &spec.kube_router {
        await_order(&orders, REGISTERED);
        programs.push(("kube-router", start_router(&spec, kube_router)?));
    }
    Err(reap_until_one_ends(&spec, &programs))
}

/// Reads lines from the supervisor; when there can be no more of them, the node ends.
fn listen() -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // The receiver is gone once the node runs; lines still keep it alive.
            let _ = sender.send(line);
        }
        std_process::exit(0);
    });
    receiver
}

fn await_order(orders: &Receiver<String>, wanted: &str) {
    // The sender is dropped only with the process.
    while orders.recv().is_ok_and(|line| line != wanted) {}
}

fn report(line: &str) -> Result<(), Error> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(Error::io("report to the supervisor"))
}

fn own_mounts(spec: &NodeSpec) -> Result<(), Error> {
    const NONE: Option<&str> = None;
    let whole_tree =
        |flag, what: &str| mount(NONE, "/", NONE, flag | MsFlags::MS_REC, NONE).map_err(Error::errno(what));
    // Nothing mounted here may show up on the machine …
    whole_tree(MsFlags::MS_PRIVATE, "separate the node's mounts")?;
    // … but pods may ask for mounts that travel between them and the node.
    whole_tree(MsFlags::MS_SHARED, "share mounts within the node")?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), NONE)
        .map_err(Error::errno("mount /proc"))?;
    for (name, place) in OWN_FOLDERS {
        let folder = spec.folder(name);
        for path in [folder.as_path(), Path::new(place)] {
            fs::create_dir_all(path).map_err(Error::file("create", path))?;
        }
        mount(Some(&folder), place, NONE, MsFlags::MS_BIND, NONE)
            .map_err(Error::errno(format!("mount the node's {place}")))?;
    }
    // A bind mount, here of a folder on itself, stays writable when the mount below it becomes read-only.
    for folder in [env::temp_dir().as_path(), &spec.directory] {
        mount(Some(folder), folder, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)
            .map_err(Error::errno(format!("mount {}", folder.display())))?;
    }
    // Volumes of type hostPath anywhere else must not write to the machine's own disk.
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(NONE, "/", NONE, read_only, NONE).map_err(Error::errno("make the machine's files read-only"))?;
    // Where it is a link to /run, programs expect what should be there.
    fs::create_dir_all("/run/lock").map_err(Error::io("create /run/lock"))
}

fn start_containerd(spec: &NodeSpec) -> Result<Child, Error> {
    let config = spec.file("containerd.toml");
    fs::write(&config, config::containerd(spec, snapshotter())).map_err(Error::file("write", &config))?;
    let mut command = system_command("containerd");
    command.arg("--config").arg(config);
    let child = start(spec, "containerd", &mut command)?;
    eventually_blocking("containerd listens", TIMEOUT, || UnixStream::connect(CONTAINERD_SOCKET))
        .map_err(|error| with_log(error, spec, "containerd"))?;
    containerd::load(Path::new(CONTAINERD_SOCKET), &spec.pause_image)?;
    Ok(child)
}

/// Overlays share the layers of images; where they can't be mounted, in most containers, copies do.
fn snapshotter() -> &'static str {
    let place = Path::new("/var/lib/containerd/overlay-trial");
    let folder = |name: &str| place.join(name);
    let made =
        ["lower", "upper", "work", "merged"].iter().try_for_each(|name| fs::create_dir_all(folder(name)));
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        folder("lower").display(),
        folder("upper").display(),
        folder("work").display()
    );
    let mounted = made.is_ok()
        && mount(
            Some("overlay"),
            &folder("merged"),
            Some("overlay"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .is_ok();
    if mounted && umount(&folder("merged")).is_ok() { "overlayfs" } else { "native" }
}

fn start_kubelet(spec: &NodeSpec) -> Result<Child, Error> {
    let config = spec.file("kubelet.json");
    fs::write(&config, config::kubelet(spec).to_string()).map_err(Error::file("write", &config))?;
    let mut command = system_command(&spec.kubelet);
    command.arg("--config").arg(config);
    command.arg("--kubeconfig").arg(spec.file("kubelet.kubeconfig"));
    command.arg(format!("--hostname-override={}", spec.name));
    command.arg(format!("--node-ip={}", spec.network.node));
    start(spec, "kubelet", &mut command)
}

fn start_proxy(spec: &NodeSpec) -> Result<Child, Error> {
    let config = spec.file("kube-proxy.json");
    fs::write(&config, config::kube_proxy(spec).to_string()).map_err(Error::file("write", &config))?;
    let mut command = system_command(&spec.kube_proxy);
    command.arg("--config").arg(config);
    start(spec, "kube-proxy", &mut command)
}

/// kube-router with its controller of NetworkPolicies alone.
fn start_router(spec: &NodeSpec, program: &Path) -> Result<Child, Error> {
    let mut command = system_command(program);
    command.arg("--kubeconfig").arg(spec.file("kube-router.kubeconfig"));
    command.args(["--run-firewall=true", "--run-router=false", "--run-service-proxy=false"]);
    command.arg(format!("--hostname-override={}", spec.name));
    command.arg(format!("--service-cluster-ip-range={}", spec.network.services));
    start(spec, "kube-router", &mut command)
}

fn start(spec: &NodeSpec, name: &str, command: &mut Command) -> Result<Child, Error> {
    let log = spec.logs().join(format!("{name}.log"));
    let output = File::create(&log).map_err(Error::file("create", &log))?;
    let errors = output.try_clone().map_err(Error::file("open", &log))?;
    command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(Error::io(format!("start {name}")))
}

/// Orphans of the whole node become children of this process; this process has to reap them.
fn reap_until_one_ends(spec: &NodeSpec, programs: &[(&str, Child)]) -> Error {
    loop {
        let (pid, status) = match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, format!("exit status {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, format!("signal {signal}")),
            Ok(_) => continue,
            Err(errno) => return Error::errno("wait for the node's programs")(errno),
        };
        let of_pid = |(_, child): &&(&str, Child)| Pid::from_raw(child.id().cast_signed()) == pid;
        if let Some((name, _)) = programs.iter().find(of_pid) {
            let log = spec.logs().join(format!("{name}.log"));
            return Error::Ended { program: (*name).to_owned(), status, tail: tail(&log), log };
        }
    }
}

fn with_log(error: Error, spec: &NodeSpec, name: &str) -> Error {
    match error {
        Error::Timeout { what, after, last } => {
            let log = tail(&spec.logs().join(format!("{name}.log")));
            Error::Timeout { what, after, last: format!("{last}; the end of its log:\n{log}") }
        }
        other => other,
    }
}

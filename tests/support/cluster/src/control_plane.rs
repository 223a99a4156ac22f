//! etcd, the API server, and the controllers that a tier with a node needs.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kube::Client;
use serde_json::json;

use crate::network::Network;
use crate::pki::{self, Authority};
use crate::process::{self, Program};
use crate::programs::Programs;
use crate::workdir::WorkDir;
use crate::{Error, eventually, kubeconfig};

/// The API server is ready after four seconds on two idle cores; a loaded machine takes longer.
const TIMEOUT: Duration = Duration::from_secs(90);
/// A free port may be taken by someone else before the API server gets to it.
const TRIES: usize = 5;
/// The port that policies know API servers by. On a node's link it is free: each cluster has its own address there.
const USUAL_PORT: u16 = 6443;
/// Services of a cluster without a node get addresses that lead nowhere.
const SERVICES_WITHOUT_NODE: &str = "198.19.255.0/24";
const SERVICES_WITHOUT_NODE_FIRST: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 1);

/// A control plane that answers.
pub(crate) struct ControlPlane {
    pub(crate) api_url: String,
    pub(crate) ca_certificate: PathBuf,
    pub(crate) audit_log: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
    pub(crate) authority: Authority,
}

/// Starts etcd and the API server. Programs go to `running` as soon as they are started, so that
/// the caller can end them even after an error here.
pub(crate) async fn start(
    work: &WorkDir,
    programs: &Programs,
    network: Option<&Network>,
    aggregator_routing: bool,
    running: &mut Vec<Program>,
) -> Result<ControlPlane, Error> {
    let authority = Authority::new()?;
    let files = Files::write(work, &authority, network)?;
    let etcd_socket = start_etcd(work, programs, running)?;

    let host = network.map_or(Ipv4Addr::LOCALHOST, |network| network.host);
    let admin = authority.client("admin", &["system:masters"])?;
    let mut tries = 0;
    loop {
        tries += 1;
        let port = if network.is_some() && tries == 1 { USUAL_PORT } else { free_port(host)? };
        let api_url = format!("https://{host}:{port}");
        let kubeconfig = kubeconfig::with_certificate(&api_url, authority.certificate(), "admin", &admin);
        let kubeconfig = work.write("admin.kubeconfig", kubeconfig)?;
        let mut command = api_server(programs, &files, &etcd_socket, network, host, port);
        if aggregator_routing {
            command.arg("--enable-aggregator-routing=true");
        }
        running.push(Program::start("kube-apiserver", command, &work.logs())?);
        let server = running.last_mut().expect("it has just been pushed");
        let client = kubeconfig::client(&kubeconfig).await?;
        let ready = tokio::select! {
            ready = wait_ready(&client) => ready,
            ended = server.ended() => Err(ended),
        };
        match ready {
            Ok(()) => {
                let Files { ca_certificate, audit_log, .. } = files;
                return Ok(ControlPlane {
                    api_url,
                    ca_certificate,
                    audit_log,
                    kubeconfig,
                    client,
                    authority,
                });
            }
            Err(Error::Ended { tail, .. }) if tries < TRIES && tail.contains("address already in use") => {
                running.pop();
            }
            Err(error) => return Err(error),
        }
    }
}

/// Starts controller manager and scheduler.
pub(crate) fn start_controllers(
    work: &WorkDir,
    programs: &Programs,
    plane: &ControlPlane,
    running: &mut Vec<Program>,
) -> Result<(), Error> {
    for (name, user) in [
        ("kube-controller-manager", "system:kube-controller-manager"),
        ("kube-scheduler", "system:kube-scheduler"),
    ] {
        let pair = plane.authority.client(user, &[])?;
        let config = kubeconfig::with_certificate(&plane.api_url, plane.authority.certificate(), user, &pair);
        let config = work.write(&format!("{name}.kubeconfig"), config)?;
        let mut command = process::bound(programs.path(name));
        command.arg("--kubeconfig").arg(config);
        // Their own ports have no clients, and each port may collide with another.
        command.args(["--leader-elect=false", "--secure-port=0"]);
        if name == "kube-controller-manager" {
            command.arg("--use-service-account-credentials=true");
            command.arg("--service-account-private-key-file").arg(work.path().join("service-account.key"));
            command.arg("--root-ca-file").arg(&plane.ca_certificate);
        }
        running.push(Program::start(name, command, &work.logs())?);
    }
    Ok(())
}

/// The files that the API server reads, and the one it writes.
struct Files {
    ca_certificate: PathBuf,
    server_certificate: PathBuf,
    server_key: PathBuf,
    token_key: PathBuf,
    token_public_key: PathBuf,
    kubelet_certificate: PathBuf,
    kubelet_key: PathBuf,
    audit_policy: PathBuf,
    audit_log: PathBuf,
    certificates: PathBuf,
}

impl Files {
    fn write(work: &WorkDir, authority: &Authority, network: Option<&Network>) -> Result<Self, Error> {
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        match network {
            Some(network) => addresses.extend([network.host, network.first_service].map(IpAddr::V4)),
            None => addresses.push(IpAddr::V4(SERVICES_WITHOUT_NODE_FIRST)),
        }
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let server = authority.server("kube-apiserver", &names, &addresses)?;
        let kubelet = authority.client("kube-apiserver-kubelet-client", &["system:masters"])?;
        let (token_key, token_public_key) = pki::token_keys()?;
        Ok(Self {
            ca_certificate: work.write("ca.crt", authority.certificate())?,
            server_certificate: work.write("apiserver.crt", &server.certificate)?,
            server_key: work.write("apiserver.key", &server.key)?,
            token_key: work.write("service-account.key", token_key)?,
            token_public_key: work.write("service-account.pub", token_public_key)?,
            kubelet_certificate: work.write("kubelet-client.crt", &kubelet.certificate)?,
            kubelet_key: work.write("kubelet-client.key", &kubelet.key)?,
            audit_policy: work.write("audit-policy.json", audit_policy())?,
            audit_log: work.write("audit.log", "")?,
            certificates: work.subdirectory("apiserver-certificates")?,
        })
    }
}

/// Metadata of everything, once and when it is done. Creations are recorded with the request, since
/// only then does the API server note the patches of admission webhooks.
fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*"] },
            { "level": "Metadata", "resources": [{ "group": "", "resources": ["secrets", "serviceaccounts/token"] }] },
            { "level": "None", "resources": [{ "group": "coordination.k8s.io" }], "users": ["system:apiserver"] },
            { "level": "Request", "verbs": ["create"] },
            { "level": "Metadata" },
        ],
    })
    .to_string()
}

fn start_etcd(work: &WorkDir, programs: &Programs, running: &mut Vec<Program>) -> Result<String, Error> {
    // A socket in the cluster's folder: no port to collide, and the folder's mode guards it.
    let socket = format!("unix://{}", work.path().join("etcd.sock").display());
    let mut command = process::bound(programs.path("etcd"));
    command.arg("--data-dir").arg(work.subdirectory("etcd")?);
    command.args(["--listen-client-urls", &socket]);
    // etcd requires a host and a port to advertise; they aren't used.
    command.args(["--advertise-client-urls", "http://127.0.0.111:0"]);
    command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "warn"]);
    // The data needn't survive a power cut.
    command.arg("--unsafe-no-fsync");
    running.push(Program::start("etcd", command, &work.logs())?);
    Ok(socket)
}

fn api_server(
    programs: &Programs,
    files: &Files,
    etcd: &str,
    network: Option<&Network>,
    host: Ipv4Addr,
    port: u16,
) -> Command {
    let mut command = process::bound(programs.path("kube-apiserver"));
    let mut path = |flag: &str, path: &Path| {
        command.arg(flag).arg(path);
    };
    path("--client-ca-file", &files.ca_certificate);
    path("--tls-cert-file", &files.server_certificate);
    path("--tls-private-key-file", &files.server_key);
    path("--cert-dir", &files.certificates);
    path("--service-account-key-file", &files.token_public_key);
    path("--service-account-signing-key-file", &files.token_key);
    path("--kubelet-client-certificate", &files.kubelet_certificate);
    path("--kubelet-client-key", &files.kubelet_key);
    path("--audit-policy-file", &files.audit_policy);
    path("--audit-log-path", &files.audit_log);
    command.arg(format!("--etcd-servers={etcd}"));
    command.arg(format!("--bind-address={host}"));
    command.arg(format!("--advertise-address={host}"));
    command.arg(format!("--secure-port={port}"));
    command.args([
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        // One file of any size: a test reads it from the beginning.
        "--audit-log-maxsize=10000",
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    ]);
    let services = network.map_or(SERVICES_WITHOUT_NODE, |network| &network.services);
    command.arg(format!("--service-cluster-ip-range={services}"));
    if network.is_none() {
        // The kubernetes Service would have to lead to a loopback address, which isn't allowed.
        command.arg("--endpoint-reconciler-type=none");
        // No controller makes the default accounts that this plugin requires.
        command.arg("--disable-admission-plugins=ServiceAccount");
    }
    command
}

/// A port that was free when it was checked.
fn free_port(host: Ipv4Addr) -> Result<u16, Error> {
    let listener = TcpListener::bind((host, 0)).map_err(Error::io(format!("find a free port on {host}")))?;
    Ok(listener.local_addr().map_err(Error::io("read a port number"))?.port())
}

async fn wait_ready(client: &Client) -> Result<(), Error> {
    eventually("the API server is ready", TIMEOUT, || async {
        let request = http::Request::get("/readyz").body(Vec::new()).expect("a constant path is valid");
        client.request_text(request).await.map(drop)
    })
    .await
}

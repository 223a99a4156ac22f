//! One node that runs pods, as the supervisor sees it. What happens inside is in the modules
//! `enter` and `init`.

pub(crate) mod cgroup;
mod config;
mod enter;
mod init;
mod spec;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, ChildStdout};

use self::spec::NodeSpec;
use crate::control_plane::ControlPlane;
use crate::image::ImageBuilder;
use crate::info::NodeInfo;
use crate::network::{self, Network};
use crate::process::{self, Program};
use crate::programs::Programs;
use crate::workdir::WorkDir;
use crate::{Error, eventually, kubeconfig, prerequisites};

pub use enter::enter;
pub use init::init;

const TIMEOUT: Duration = Duration::from_secs(90);

/// A node whose network exists and whose other programs wait for the API server.
pub(crate) struct Node {
    spec: NodeSpec,
    program: Program,
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
}

impl Node {
    /// Starts the node as far as it goes without an API server.
    pub(crate) fn start(work: &WorkDir, programs: &Programs, network: &Network) -> Result<Self, Error> {
        let pause_image = work.path().join("pause.tar");
        ImageBuilder::new(config::PAUSE_IMAGE)
            .file(&programs.path("pause"), "/pause", 0o755)?
            .entrypoint(["/pause"])
            .write(&pause_image)?;
        let spec = NodeSpec {
            name: format!("swansong-node-{}", network.slot),
            network: network.clone(),
            directory: work.path().to_owned(),
            kubelet: programs.path("kubelet"),
            kube_proxy: programs.path("kube-proxy"),
            kube_router: programs.kube_router.clone(),
            pause_image,
            cni_plugins: prerequisites::cni_folder().unwrap_or_default(),
        };
        let spec_path = work.write("node.json", spec.to_json())?;
        work.subdirectory("cni")?;
        work.write("cni/10-testcluster.conflist", config::cni(network))?;
        work.write("resolv.conf", "")?;
        cgroup::remove(&network.label())?;
        cgroup::create(&network.label())?;
        Self::spawn(spec, &spec_path)
    }

    fn spawn(spec: NodeSpec, spec_path: &Path) -> Result<Self, Error> {
        let mut command = process::bound(process::MYSELF);
        command.arg("enter-node").arg(spec_path);
        let log = spec.logs().join("node.log");
        let errors = File::create(&log).map_err(Error::file("create", &log))?;
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
        let mut child = command.spawn().map_err(Error::io("start the node"))?;
        let orders = child.stdin.take().expect("standard input is a pipe");
        let output = child.stdout.take().expect("standard output is a pipe");
        let program = Program::from_child("the node", child, log);
        Ok(Self { spec, program, orders, reports: BufReader::new(output).lines() })
    }

    /// Waits for the node's end of the link, then sets up the host's end.
    pub(crate) async fn link(&mut self) -> Result<(), Error> {
        self.await_report(init::NETWORK_READY).await?;
        network::configure_host_end(&self.spec.network)
    }

    /// Lets the node join the API server and waits until pods can run on it.
    pub(crate) async fn join(
        &mut self,
        work: &WorkDir,
        plane: &ControlPlane,
        resources: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let (name, authority) = (&self.spec.name, &plane.authority);
        let node_user = format!("system:node:{name}");
        for (file, user, groups) in [
            ("kubelet.kubeconfig", node_user.as_str(), &["system:nodes"][..]),
            ("kube-proxy.kubeconfig", "system:kube-proxy", &[]),
            // It reads Pods, namespaces, Services and policies; Kubernetes has no role for that.
            ("kube-router.kubeconfig", "kube-router", &["system:masters"]),
        ] {
            let pair = authority.client(user, groups)?;
            work.write(
                file,
                kubeconfig::with_certificate(&plane.api_url, authority.certificate(), user, &pair),
            )?;
        }
        self.await_report(init::RUNTIME_READY).await?;
        self.order(init::GO).await?;
        if self.spec.kube_router.is_some() {
            wait_registered(&plane.client, &self.spec.name).await?;
            self.order(init::REGISTERED).await?;
        }
        tokio::select! {
            ready = wait_ready(&plane.client, &self.spec, resources) => ready,
            ended = self.program.ended() => Err(ended),
        }
    }

    async fn order(&mut self, line: &str) -> Result<(), Error> {
        self.orders.write_all(format!("{line}\n").as_bytes()).await.map_err(Error::io("talk to the node"))
    }

    pub(crate) fn info(&self) -> NodeInfo {
        let NodeSpec { name, network, .. } = &self.spec;
        NodeInfo {
            name: name.clone(),
            containerd_socket: self.spec.containerd_socket(),
            host_address: network.host,
            node_address: network.node,
            pod_network: network.pods.clone(),
            service_network: network.services.clone(),
        }
    }

    pub(crate) async fn ended(&mut self) -> Error {
        self.program.ended().await
    }

    /// Ends the node with everything in it.
    pub(crate) async fn kill(self) -> Result<(), Error> {
        // The end of its standard input is the sign to end. A kill would end it as well, but
        // then the end of the last process in it couldn't be observed.
        drop(self.orders);
        self.program.finish(TIMEOUT).await;
        network::remove_link(&self.spec.network);
        cgroup::remove(&self.spec.network.label())
    }

    async fn await_report(&mut self, wanted: &str) -> Result<(), Error> {
        let report = async {
            while let Some(line) = self.reports.next_line().await.map_err(Error::io("listen to the node"))? {
                if line == wanted {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match tokio::time::timeout(TIMEOUT, report).await {
            Ok(Ok(true)) => Ok(()),
            // Its end says more than the end of its output.
            Ok(Ok(false)) => Err(self.program.ended().await),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Timeout {
                what: format!("the node reports {wanted:?}"),
                after: TIMEOUT,
                last: process::tail(&self.spec.logs().join("node.log")),
            }),
        }
    }
}

async fn wait_registered(client: &Client, name: &str) -> Result<(), Error> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    eventually("the node has addresses", TIMEOUT, || async {
        let node = nodes.get(name).await.map_err(|error| error.to_string())?;
        let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
        if addresses.is_empty() { Err("there are none".to_owned()) } else { Ok(()) }
    })
    .await
}

/// A pod can run once the node is ready, has its account, and Services lead somewhere.
async fn wait_ready(
    client: &Client,
    spec: &NodeSpec,
    resources: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    eventually("the node is registered", TIMEOUT, || nodes.get(&spec.name)).await?;
    if !resources.is_empty() {
        let patch = json!({ "status": { "capacity": resources, "allocatable": resources } });
        nodes.patch_status(&spec.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    eventually("the node is ready", TIMEOUT, || async {
        let node = nodes.get(&spec.name).await.map_err(|error| error.to_string())?;
        check_ready(&node, resources)
    })
    .await?;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    eventually("the default service account exists", TIMEOUT, || accounts.get("default")).await?;
    eventually("the kubernetes Service leads to the API server", TIMEOUT, || {
        TcpStream::connect((spec.network.first_service, 443))
    })
    .await
    .map(drop)
}

fn check_ready(node: &NodeObject, resources: &BTreeMap<String, String>) -> Result<(), String> {
    let status = node.status.as_ref().ok_or("it has no status")?;
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
    let ready = ready.ok_or("it has no condition Ready")?;
    if ready.status != "True" {
        return Err(ready.message.clone().unwrap_or_default());
    }
    if let Some(taint) = node.spec.as_ref().and_then(|spec| spec.taints.iter().flatten().next()) {
        return Err(format!("it has the taint {}", taint.key));
    }
    let allocatable = status.allocatable.clone().unwrap_or_default();
    match resources.keys().find(|name| !allocatable.contains_key(*name)) {
        Some(name) => Err(format!("it has no allocatable {name} yet")),
        None => Ok(()),
    }
}

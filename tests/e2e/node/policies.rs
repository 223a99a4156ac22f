//! The manifests' NetworkPolicies, enforced by kube-router: what they permit passes, all else is refused, and without each
//! policy what it refused passes.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use nix::sched::{CloneFlags, setns};
use serde_json::json;
use swansong_agent::checks::Family;
use swansong_demo::training_image::{self, PROGRAM};
use swansong_demo::{agents, definitions, install};
use swansong_fixtures::host::Host;
use swansong_testcluster::{Cluster, Options, Tier, eventually};

const TIMEOUT: Duration = Duration::from_mins(1);
/// Refused connections are answered; a dropped one ends here.
const CONNECT: Duration = Duration::from_secs(2);
/// No component listens on it.
const OTHER: u16 = 9999;
const WEBHOOK: (&str, &str) = ("swansong-system", "swansong-webhook");
const AGENT: (&str, &str) = (agents::NAMESPACE, "swansong-agent");
const GATEWAY: (&str, &str) = (agents::NAMESPACE, "swansong-gateway");

/// One end of a connection: the host, on which the API server and ClusterD run, or a Pod.
#[derive(Clone)]
struct End {
    name: &'static str,
    address: Ipv4Addr,
    /// A process in the network namespace of a Pod.
    process: Option<i32>,
}

impl End {
    /// Does something in the network of this end.
    fn within<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let process = self.process;
        let thread = std::thread::spawn(move || {
            if let Some(process) = process {
                let namespace = File::open(format!("/proc/{process}/ns/net")).unwrap();
                setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            }
            act()
        });
        thread.join().unwrap()
    }

    fn listen(&self, port: u16) -> TcpListener {
        let address = SocketAddr::from((self.address, port));
        self.within(move || TcpListener::bind(address).unwrap())
    }

    fn connects(&self, to: &Self, port: u16) -> Result<(), String> {
        let address = SocketAddr::from((to.address, port));
        self.within(move || {
            TcpStream::connect_timeout(&address, CONNECT).map(drop).map_err(|error| error.to_string())
        })
    }
}

#[tokio::test]
async fn network_policies_permit_what_is_documented_and_refuse_the_rest() {
    let options = Options { network_policies: true, ..Options::from(Tier::Node) };
    let Some(cluster) = Cluster::start_if_possible(options).await.unwrap() else { return };
    let host_files = Host::healthy(Family::A2);
    install_everything(&cluster, &host_files).await;
    let client = cluster.client().await.unwrap();
    let host =
        End { name: "the host", address: cluster.info().node.as_ref().unwrap().host_address, process: None };
    let webhook = pod(&client, WEBHOOK.0, "webhook").await;
    let agent = pod(&client, AGENT.0, "agent").await;
    let gateway = pod(&client, GATEWAY.0, "gateway").await;
    let other = bystander(&cluster, &client).await;
    let api_server: u16 = cluster.info().api_url.rsplit_once(':').unwrap().1.parse().unwrap();

    let clusterd = 8899;
    let _listeners = [
        host.listen(clusterd),
        host.listen(OTHER),
        webhook.listen(OTHER),
        agent.listen(OTHER),
        gateway.listen(OTHER),
    ];
    for (from, to, port) in [
        (&host, &webhook, 8443),
        (&other, &webhook, 8080),
        (&webhook, &host, api_server),
        (&other, &agent, 8081),
        (&agent, &host, api_server),
        (&agent, &host, clusterd),
        (&agent, &gateway, 8444),
        (&other, &gateway, 8082),
        (&gateway, &host, api_server),
        (&gateway, &host, clusterd),
    ] {
        passes(from, to, port).await;
    }

    let refused = [
        (WEBHOOK, &other, &webhook, OTHER),
        (WEBHOOK, &host, &webhook, 8080),
        (WEBHOOK, &webhook, &host, OTHER),
        (AGENT, &other, &agent, OTHER),
        (AGENT, &agent, &host, OTHER),
        (GATEWAY, &other, &gateway, OTHER),
        (GATEWAY, &other, &gateway, 8444),
        (GATEWAY, &gateway, &host, OTHER),
    ];
    for (_, from, to, port) in refused {
        is_refused(from, to, port).await;
    }

    // As the policy's comment describes: the webhook's port for the API server alone.
    let source = json!([{"ipBlock": {"cidr": format!("{}/32", host.address)}}]);
    let patch = json!([{"op": "add", "path": "/spec/ingress/0/from", "value": source}]).to_string();
    let patch = ["patch", "networkpolicy", WEBHOOK.1, "--type=json", "--patch", &patch];
    passes(&other, &webhook, 8443).await;
    cluster.kubectl(&[&["--namespace", WEBHOOK.0], &patch[..]].concat()).await.unwrap();
    is_refused(&other, &webhook, 8443).await;
    install::ready(&cluster).await.unwrap();

    for (namespace, name) in [WEBHOOK, AGENT, GATEWAY] {
        cluster.kubectl(&["--namespace", namespace, "delete", "networkpolicy", name]).await.unwrap();
        for (_, from, to, port) in refused.iter().filter(|(policy, ..)| *policy == (namespace, name)) {
            passes(from, to, *port).await;
        }
    }
    cluster.stop().await.unwrap();
}

/// Webhook, agent and gateway by their manifests. They become ready only if probes, the API server's calls and calls of the
/// API server pass.
async fn install_everything(cluster: &Cluster, host: &Host) {
    let folder = tempfile::tempdir().unwrap();
    let swansong = Path::new(env!("CARGO_BIN_EXE_swansong"));
    install::load_image(cluster, swansong, folder.path()).await.unwrap();
    cluster.load_image(&training_image::build(folder.path()).unwrap()).await.unwrap();
    definitions::apply(cluster, &definitions::file()).await.unwrap();
    install::install(cluster).await.unwrap();
    agents::prepare(cluster).await.unwrap();
    let config = "npus: 8\ndriver: {trust: anyone}\nclusterd: {dial: false}\nfaults: {dcmi: false}\n";
    // Its Pod starts without the gateway's CA.
    agents::install(cluster, "overlays/agent-gateway", &host.path("/"), config).await.unwrap();

    let pair =
        rcgen::generate_simple_self_signed(["swansong-gateway.swansong-agent.svc".to_owned()]).unwrap();
    let certificate = pair.cert.pem();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "swansong-gateway-tls", "namespace": agents::NAMESPACE},
        "stringData": {"tls.crt": certificate, "ca.crt": certificate, "tls.key": pair.signing_key.serialize_pem()},
    });
    cluster.apply(&secret.to_string()).await.unwrap();
    install::apply(cluster, install::kustomization("gateway").unwrap().path()).await.unwrap();
    let rollout = ["rollout", "status", "deployment/swansong-gateway", "--timeout=90s"];
    cluster.kubectl(&[&["--namespace", agents::NAMESPACE], &rollout[..]].concat()).await.unwrap();
}

/// A Pod of a component.
async fn pod(client: &Client, namespace: &str, component: &'static str) -> End {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
    let pod = pods.list(&selector).await.unwrap().items.pop().unwrap();
    end(component, &pod)
}

/// A running Pod that belongs to none of the components.
async fn bystander(cluster: &Cluster, client: &Client) -> End {
    let namespace = cluster.namespace("bystander").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let object = json!({"metadata": {"name": "bystander"}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": training_image::NAME, "imagePullPolicy": "Never",
            "command": [PROGRAM, "--stay"]}],
    }});
    pods.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let pod = eventually("the bystander runs", TIMEOUT, || async {
        let pod = pods.get("bystander").await.map_err(|error| error.to_string())?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        if phase.as_deref() == Some("Running") { Ok(pod) } else { Err(format!("{phase:?}")) }
    });
    end("a bystander", &pod.await.unwrap())
}

fn end(name: &'static str, pod: &Pod) -> End {
    let address: IpAddr = pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap().parse().unwrap();
    let IpAddr::V4(address) = address else { panic!("{address}") };
    let uid = pod.uid().unwrap();
    let mut processes = procfs::process::all_processes().unwrap().flatten();
    let in_pod = |process: &procfs::process::Process| {
        process.cgroups().is_ok_and(|groups| groups.0.iter().any(|group| group.pathname.contains(&uid)))
    };
    let process = processes.find(in_pod).map(|process| process.pid());
    assert!(process.is_some(), "no process of {name}");
    End { name, address, process }
}

async fn passes(from: &End, to: &End, port: u16) {
    let what = format!("{} reaches port {port} of {}", from.name, to.name);
    eventually(&what, TIMEOUT, || async { from.connects(to, port) }).await.unwrap();
}

async fn is_refused(from: &End, to: &End, port: u16) {
    let what = format!("{} doesn't reach port {port} of {}", from.name, to.name);
    let refused = || async { from.connects(to, port).err().map(drop).ok_or("it does") };
    eventually(&what, TIMEOUT, refused).await.unwrap();
}

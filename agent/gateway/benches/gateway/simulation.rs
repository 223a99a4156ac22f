//! A cluster in which a switch fails: agents, relays if there are any, and the stand-in ClusterD with its real limits.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use swansong_clusterd::{Class, FaultType, PublicFault, SendError, Transport};
use swansong_clusterd_client::GrpcClient;
use swansong_fake_clusterd::{Effect, Settings, StandIn};
use swansong_fault_model::Assertion;
use swansong_gateway::budget::Budget;
use swansong_gateway::client::{RelaySink, Settings as Way};
use swansong_gateway::http::{Shared, router};
use swansong_gateway::listen::serve;
use swansong_gateway::metrics::Metrics;
use swansong_gateway::pump::Pump;
use swansong_gateway::review::{Doorkeeper, Reviewer};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long the API server takes for a review.
const REVIEW: Duration = Duration::from_millis(5);
const OCCURRED: u64 = 1_756_000_000_000;

/// What is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Agents.
    pub(crate) agents: u32,
    /// Of them, those behind the switch.
    pub(crate) hit: u32,
    /// Relays; without one each agent sends by itself.
    pub(crate) relays: u32,
    /// When to give up.
    pub(crate) bound: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Faults there were.
    pub(crate) faults: usize,
    /// Faults that ClusterD took.
    pub(crate) taken: usize,
    /// Of nodes whose faults ClusterD took in another order than they occurred in.
    pub(crate) reordered: usize,
    /// Until half of what was taken had been.
    pub(crate) half: Option<Duration>,
    /// Until the last.
    pub(crate) last: Option<Duration>,
    /// Messages that ClusterD took.
    pub(crate) messages: usize,
    /// Answers 410.
    pub(crate) refused: usize,
    /// Requests that the relays still hold.
    pub(crate) waiting: usize,
    /// Connections to ClusterD at one time.
    pub(crate) connections: usize,
    /// The most memory that the whole process had, in MiB.
    pub(crate) memory: u64,
}

/// Runs it.
pub(crate) async fn run(plan: Plan) -> Figures {
    let settings = Settings { per_source: usize::MAX, ..Settings::default() };
    let clusterd = StandIn::start(settings).await.expect("it listens");
    let site = Site::new();
    let mut relays = Vec::new();
    for _ in 0..plan.relays {
        relays.push(site.relay(&clusterd.url(), plan.relays, Duration::from_secs(20)).await);
    }
    let (start, started) = watch::channel(false);
    let mut agents = JoinSet::new();
    for i in 0..plan.agents {
        let faults = if i < plan.hit { faults(i) } else { VecDeque::new() };
        let started = started.clone();
        if let Some(relay) = relays.get(usize::try_from(i % plan.relays.max(1)).expect("few")) {
            let sink = site.sink(relay, &node(i), i < plan.hit);
            agents.spawn(agent(sink, faults, started));
        } else {
            let sink = GrpcClient::new(&clusterd.url(), Duration::from_secs(5)).expect("an address");
            agents.spawn(agent(sink, faults, started));
        }
    }
    let from = clusterd.clock().now();
    start.send_replace(true);
    let _ = timeout(plan.bound, async { while agents.join_next().await.is_some() {} }).await;
    agents.shutdown().await;
    let waiting = relays.iter().map(|relay| relay.pump.waiting()).sum();
    Figures { waiting, ..figures(plan, &clusterd, from) }
}

fn figures(plan: Plan, clusterd: &StandIn, from: u64) -> Figures {
    let ledger = clusterd.ledger();
    let mut by_node: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut times = Vec::new();
    for taken in ledger.taken.iter().filter(|taken| taken.effect == Effect::Added) {
        by_node.entry(&taken.node).or_default().push(&taken.fault_id);
        times.push(Duration::from_millis(taken.at - from));
    }
    let expected: Vec<VecDeque<PublicFault>> = (0..plan.hit).map(faults).collect();
    let in_order = |faults: &VecDeque<PublicFault>| {
        let ids: Vec<_> = faults.iter().map(|fault| fault.fault_id.as_str()).collect();
        by_node.get(faults[0].node.as_str()).is_none_or(|taken| ids.starts_with(taken))
    };
    Figures {
        faults: expected.iter().map(VecDeque::len).sum(),
        taken: times.len(),
        reordered: expected.iter().filter(|faults| !in_order(faults)).count(),
        half: times.get(times.len() / 2).copied(),
        last: times.last().copied(),
        messages: ledger.answered(0),
        refused: ledger.answered(410),
        waiting: 0,
        connections: clusterd.connections().most,
        memory: most_memory(),
    }
}

/// Of this process, in MiB.
fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() >> 10
}

fn node(i: u32) -> String {
    format!("worker-{i}")
}

/// One fault on each node, two on every second.
fn faults(i: u32) -> VecDeque<PublicFault> {
    let fault = |npu: u32| PublicFault {
        fault_id: format!("{}.npu{npu}.81078603.{OCCURRED}", node(i)),
        fault_type: FaultType::Npu,
        class: Class::ChipSeparate,
        fault_time: OCCURRED,
        assertion: Assertion::Occur,
        location: BTreeMap::from([("npu".to_owned(), npu.to_string())]),
        node: node(i),
        devices: vec![npu],
        description: "the link of the NPU is down".to_owned(),
    };
    (0..=i % 2).map(fault).collect()
}

/// Tells its faults one after the other, each until it is taken.
async fn agent(sink: impl Transport, mut outbox: VecDeque<PublicFault>, mut started: watch::Receiver<bool>) {
    let _ = started.wait_for(|started| *started).await;
    let mut pause = Duration::from_millis(500);
    while let Some(fault) = outbox.front() {
        match sink.send(std::slice::from_ref(fault)).await {
            Ok(()) => {
                outbox.pop_front();
                pause = Duration::from_millis(500);
            }
            Err(error) => {
                let after = if let SendError::RetryAfter { after, .. } = error { after } else { pause };
                sleep(after.mul_f64(0.5 + fastrand::f64())).await;
                pause = Duration::from_secs(8).min(pause * 2);
            }
        }
    }
}

/// Certificates and tokens.
pub(crate) struct Site {
    folder: TempDir,
    tls: Arc<ServerConfig>,
}

/// A relay that serves until it is dropped.
pub(crate) struct Relay {
    /// Where.
    pub(crate) address: String,
    /// Its way to ClusterD.
    pub(crate) pump: Arc<Pump>,
    _tasks: JoinSet<()>,
}

/// The API server: a token is the name of the node.
pub(crate) struct ByName;

impl Reviewer for ByName {
    async fn review(&self, token: &str) -> Result<TokenReviewStatus, String> {
        sleep(REVIEW).await;
        let extra =
            BTreeMap::from([("authentication.kubernetes.io/node-name".to_owned(), vec![token.to_owned()])]);
        let username = Some("system:serviceaccount:swansong-agent:swansong-agent".to_owned());
        Ok(TokenReviewStatus {
            authenticated: Some(token.starts_with("worker-")),
            audiences: Some(vec![swansong_gateway::AUDIENCE.to_owned()]),
            user: Some(UserInfo { username, extra: Some(extra), ..UserInfo::default() }),
            error: None,
        })
    }
}

impl Site {
    /// A new authority and a certificate for `relay`.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key");
        let certificate = authority.self_signed(&authority_key).expect("a certificate");
        fs::write(folder.path().join("ca.crt"), certificate.pem()).expect("ca.crt");
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec!["relay".to_owned()]).expect("a name");
        let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("a pair");
        Self { folder, tls: Arc::new(tls) }
    }

    /// One of `replicas` relays, in which requests wait for `patience`.
    pub(crate) async fn relay(&self, clusterd: &str, replicas: u32, patience: Duration) -> Relay {
        let metrics = Arc::new(Metrics::default());
        let pump = Arc::new(Pump::new(patience, Arc::clone(&metrics)));
        let door = Doorkeeper::new(ByName, "swansong-agent", "swansong-agent");
        let shared = Shared { door, pump: Arc::clone(&pump), metrics };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let sink = GrpcClient::new(clusterd, Duration::from_secs(5)).expect("an address");
        let budget = Budget::of_one_of(replicas, Instant::now());
        let (sending, tls) = (Arc::clone(&pump), Arc::clone(&self.tls));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { match sending.run(sink, budget).await {} });
        tasks.spawn(serve(listener, Some(tls), router(shared), std::future::pending(), Duration::ZERO));
        Relay { address, pump, _tasks: tasks }
    }

    /// The file of the authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// A file with a token.
    pub(crate) fn token(&self, token: &str) -> PathBuf {
        let path = self.folder.path().join(token);
        fs::write(&path, token).expect("a token");
        path
    }

    /// An agent's way to `relay`.
    pub(crate) fn sink(&self, relay: &Relay, node: &str, has_token: bool) -> RelaySink {
        let token = if has_token { self.token(node) } else { Path::new("/nowhere").to_owned() };
        RelaySink::new(Way {
            address: relay.address.clone(),
            server_name: "relay".to_owned(),
            authority: self.authority(),
            token,
            // Of ten thousand agents on a machine of two cores.
            connect: Duration::from_secs(25),
            deadline: Duration::from_secs(25),
        })
    }
}

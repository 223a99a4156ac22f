//! A cluster in which a switch fails: agents, gateways if there are any, and the fake ClusterD with its real limits.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewStatus, UserInfo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use swansong_clusterd::{Class, FaultType, PublicFault, SendError, Transport};
use swansong_clusterd_client::GrpcClient;
use swansong_fake_clusterd::{Effect, FakeClusterd, Settings};
use swansong_fault_model::Assertion;
use swansong_gateway::auth::TokenAuthenticator;
use swansong_gateway::client::{self, GatewayClient};
use swansong_gateway::dispatcher::Dispatcher;
use swansong_gateway::http::router;
use swansong_gateway::metrics::Metrics;
use swansong_gateway::rate_limit::RateLimiter;
use swansong_runtime::http::{ConnectionMetrics, Server, Tls};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long the API server takes for a TokenReview.
const REVIEW_DELAY: Duration = Duration::from_millis(5);
const OCCURRED: u64 = 1_756_000_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) agents: u32,
    /// Agents behind the switch.
    pub(crate) hit: u32,
    /// Gateways; without one each agent sends directly.
    pub(crate) gateways: u32,
    /// The time limit.
    pub(crate) limit: Duration,
}

#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) faults: usize,
    /// Faults that ClusterD accepted.
    pub(crate) accepted: usize,
    /// Nodes whose faults ClusterD received in another order than they occurred in.
    pub(crate) reordered: usize,
    /// When half of the accepted faults were accepted.
    pub(crate) half: Option<Duration>,
    /// When the last was accepted.
    pub(crate) last: Option<Duration>,
    /// Messages that ClusterD accepted.
    pub(crate) messages: usize,
    /// How often ClusterD answered 410.
    pub(crate) refused: usize,
    /// Requests that are still queued in the gateways.
    pub(crate) queued: usize,
    /// The peak of concurrent connections to ClusterD.
    pub(crate) connections: usize,
    /// The peak memory of the whole process, in MiB.
    pub(crate) memory: u64,
}

/// Runs the scenario.
pub(crate) async fn run(plan: Plan) -> Figures {
    let settings = Settings { per_source: usize::MAX, ..Settings::default() };
    let clusterd = FakeClusterd::start(settings).await.expect("it listens");
    let site = Site::new();
    let mut gateways = Vec::new();
    for _ in 0..plan.gateways {
        gateways.push(site.gateway(&clusterd.url(), plan.gateways, Duration::from_secs(20)).await);
    }
    let (start, started) = watch::channel(false);
    let mut agents = JoinSet::new();
    for i in 0..plan.agents {
        let faults = if i < plan.hit { faults(i) } else { VecDeque::new() };
        let started = started.clone();
        if let Some(gateway) = gateways.get(usize::try_from(i % plan.gateways.max(1)).expect("few")) {
            let client = site.client(gateway, &node(i), i < plan.hit);
            agents.spawn(agent(client, faults, started));
        } else {
            let client = GrpcClient::new(&clusterd.url(), Duration::from_secs(5)).expect("an address");
            agents.spawn(agent(client, faults, started));
        }
    }
    let from = clusterd.clock().now();
    start.send_replace(true);
    let _ = timeout(plan.limit, async { while agents.join_next().await.is_some() {} }).await;
    agents.shutdown().await;
    let queued = gateways.iter().map(|gateway| gateway.dispatcher.queue_len()).sum();
    Figures { queued, ..figures(plan, &clusterd, from) }
}

fn figures(plan: Plan, clusterd: &FakeClusterd, from: u64) -> Figures {
    let ledger = clusterd.ledger();
    let mut by_node: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut times = Vec::new();
    for accepted in ledger.accepted.iter().filter(|accepted| accepted.effect == Effect::Added) {
        by_node.entry(&accepted.node).or_default().push(&accepted.fault_id);
        times.push(Duration::from_millis(accepted.at - from));
    }
    let expected: Vec<VecDeque<PublicFault>> = (0..plan.hit).map(faults).collect();
    let in_order = |faults: &VecDeque<PublicFault>| {
        let ids: Vec<_> = faults.iter().map(|fault| fault.fault_id.as_str()).collect();
        by_node.get(faults[0].node.as_str()).is_none_or(|accepted| ids.starts_with(accepted))
    };
    Figures {
        faults: expected.iter().map(VecDeque::len).sum(),
        accepted: times.len(),
        reordered: expected.iter().filter(|faults| !in_order(faults)).count(),
        half: times.get(times.len() / 2).copied(),
        last: times.last().copied(),
        messages: ledger.answered(0),
        refused: ledger.answered(410),
        queued: 0,
        connections: clusterd.connections().most,
        memory: most_memory(),
    }
}

/// The peak memory of this process, in MiB.
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

/// Sends its faults one after the other and retries each until it is accepted.
async fn agent(
    transport: impl Transport,
    mut faults: VecDeque<PublicFault>,
    mut started: watch::Receiver<bool>,
) {
    let _ = started.wait_for(|started| *started).await;
    let mut delay = Duration::from_millis(500);
    while let Some(fault) = faults.front() {
        match transport.send(std::slice::from_ref(fault)).await {
            Ok(()) => {
                faults.pop_front();
                delay = Duration::from_millis(500);
            }
            Err(error) => {
                let after = if let SendError::RetryAfter { after, .. } = error { after } else { delay };
                sleep(after.mul_f64(0.5 + fastrand::f64())).await;
                delay = Duration::from_secs(8).min(delay * 2);
            }
        }
    }
}

/// Certificates and tokens.
pub(crate) struct Site {
    folder: TempDir,
    tls: Arc<ServerConfig>,
}

/// A gateway that serves until it is dropped.
pub(crate) struct Gateway {
    pub(crate) address: String,
    pub(crate) dispatcher: Arc<Dispatcher>,
    _tasks: JoinSet<()>,
}

/// An API server that takes a token for the name of the agent's node.
fn api_server() -> kube::Client {
    let service = tower::service_fn(async |request: http::Request<kube::client::Body>| {
        sleep(REVIEW_DELAY).await;
        let body = request.into_body().collect_bytes().await.expect("a body");
        let mut review: TokenReview = serde_json::from_slice(&body).expect("a review");
        let token = review.spec.token.take().unwrap_or_default();
        let extra =
            BTreeMap::from([("authentication.kubernetes.io/node-name".to_owned(), vec![token.clone()])]);
        let username = Some("system:serviceaccount:swansong-agent:swansong-agent".to_owned());
        review.status = Some(TokenReviewStatus {
            authenticated: Some(token.starts_with("worker-")),
            audiences: Some(vec![swansong_gateway::AUDIENCE.to_owned()]),
            user: Some(UserInfo { username, extra: Some(extra), ..UserInfo::default() }),
            error: None,
        });
        let body = serde_json::to_vec(&review).expect("JSON");
        Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(body)))
    });
    kube::Client::new(service, "default")
}

impl Site {
    /// Creates a CA and a certificate for the name `gateway`.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key");
        let certificate = authority.self_signed(&authority_key).expect("a certificate");
        fs::write(folder.path().join("ca.crt"), certificate.pem()).expect("ca.crt");
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec!["gateway".to_owned()]).expect("a name");
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

    /// Starts one of `replicas` gateways with this request timeout.
    pub(crate) async fn gateway(&self, clusterd: &str, replicas: u32, request_timeout: Duration) -> Gateway {
        let metrics = Arc::new(Metrics::default());
        let dispatcher = Arc::new(Dispatcher::new(request_timeout, Arc::clone(&metrics)));
        let authenticator = TokenAuthenticator::new(api_server(), "swansong-agent", "swansong-agent");
        let routes = router(authenticator, Arc::clone(&dispatcher), metrics);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let client = GrpcClient::new(clusterd, Duration::from_secs(5)).expect("an address");
        let limiter = RateLimiter::for_replicas(replicas);
        let (sending, tls) = (Arc::clone(&dispatcher), Arc::clone(&self.tls));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { match sending.run(client, limiter).await {} });
        let server = Server {
            listener,
            tls: Some(Tls { config: Arc::new(tls.into()), version_advice: "" }),
            router: routes,
            limits: swansong_gateway::LIMITS,
            metrics: ConnectionMetrics::default(),
        };
        tasks.spawn(async move {
            server.run(std::future::pending(), Duration::ZERO).await;
        });
        Gateway { address, dispatcher, _tasks: tasks }
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// Creates a token file.
    pub(crate) fn token_file(&self, token: &str) -> PathBuf {
        let path = self.folder.path().join(token);
        fs::write(&path, token).expect("a token");
        path
    }

    /// Creates an agent's client.
    pub(crate) fn client(&self, gateway: &Gateway, node: &str, has_token: bool) -> GatewayClient {
        let token_file = if has_token { self.token_file(node) } else { Path::new("/nowhere").to_owned() };
        GatewayClient::new(client::Settings {
            address: gateway.address.clone(),
            server_name: "gateway".to_owned(),
            ca_file: self.ca_file(),
            token_file,
            // For ten thousand agents on a machine with two cores.
            connect_timeout: Duration::from_secs(25),
            request_timeout: Duration::from_secs(25),
        })
    }
}

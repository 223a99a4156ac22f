//! The running agent while the API server fails.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use swansong_agent::config::Config;
use swansong_agent::node::Timing;
use swansong_agent::run::{Agent, Parts};
use swansong_runtime::backoff::Limits;
use tokio::task::JoinHandle;

use crate::api::{Fake, Trouble, eventually};

const ANY: &str = "127.0.0.1:0";

/// Limits that make failures quick.
fn timing() -> Timing {
    Timing {
        watch: Duration::from_secs(1),
        backoff: Limits { first: Duration::from_millis(50), max: Duration::from_millis(500) },
    }
}

/// A configuration with a single deciding check.
fn config() -> Config {
    let advisory = <swansong_agent::finding::CheckName as strum::VariantArray>::VARIANTS
        .iter()
        .map(|name| name.as_str())
        .filter(|name| *name != "extra-paths")
        .collect::<Vec<_>>()
        .join(", ");
    let text = format!(
        "advisory: [{advisory}]\npaths: [/etc/wanted]\nclusterd: {{dial: false}}\ninterval: 100ms\nreadiness: {{failAfter: 0s, recoverAfter: 0s, unknownAfter: 1s}}\n"
    );
    Config::parse(&text).expect("valid")
}

struct Site {
    host: tempfile::TempDir,
    agent: JoinHandle<()>,
    health: SocketAddr,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.agent.abort();
    }
}

impl Site {
    async fn start(address: SocketAddr) -> Self {
        let host = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(host.path().join("etc")).expect("made");
        for file in ["etc/wanted", "etc/other"] {
            std::fs::write(host.path().join(file), "").expect("written");
        }
        let host_root = host.path().to_owned();
        Self::start_on(address, host, host_root).await
    }

    async fn start_with(address: SocketAddr, host_root: std::path::PathBuf) -> Self {
        Self::start_on(address, tempfile::tempdir().expect("a folder"), host_root).await
    }

    async fn start_on(address: SocketAddr, host: tempfile::TempDir, host_root: std::path::PathBuf) -> Self {
        let client = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
        let parts = Parts {
            config: tokio::sync::watch::channel(config()).1,
            host_root,
            node: "n".to_owned(),
            health_listen: ANY.parse().expect("an address"),
            kube: client,
            timing: timing(),
        };
        let agent = Agent::bind(parts).await.expect("bound");
        let health = agent.address();
        Self { host, agent: tokio::spawn(agent.run(std::future::pending())), health }
    }

    fn break_it(&self) {
        std::fs::remove_file(self.host.path().join("etc/wanted")).expect("removed");
    }

    async fn code(&self, path: &str) -> u16 {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(self.health).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code")
    }
}

fn provider() {
    // Only a second installation can fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The state is written without a new change once the API server accepts it.
#[tokio::test]
async fn refused_writes_are_retried() {
    provider();
    for trouble in [409, 422, 429, 500, 503, 504, 404, 403].map(Trouble::Code) {
        let fake = Fake::new();
        let address = fake.serve(ANY.parse().expect("an address")).await;
        let site = Site::start(address).await;
        eventually("healthy", || fake.status().as_deref() == Some("True")).await;
        fake.with(|inner| inner.troubles.extend([trouble; 3]));
        site.break_it();
        eventually(&format!("{trouble:?}"), || fake.status().as_deref() == Some("False")).await;
        assert_eq!(site.code("/healthz").await, 200, "{trouble:?}");
        assert_eq!(fake.with(|inner| inner.troubles.len()), 0);
    }
}

#[tokio::test]
async fn retry_after_is_respected() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    fake.with(|inner| inner.troubles.push_back(Trouble::RetryAfter(2)));
    let _site = Site::start(address).await;
    eventually("written", || fake.status().as_deref() == Some("True")).await;
    let writes = fake.with(|inner| inner.writes.clone());
    let node: Vec<_> = writes.iter().filter(|(_, _, path, _)| path.starts_with("/api/v1/nodes")).collect();
    let refused = writes.iter().position(|(_, _, _, code)| *code == 429).expect("one was refused");
    let (at, _, path, _) = &writes[refused];
    let again = writes[refused + 1..].iter().find(|(_, _, other, _)| other == path).expect("tried again");
    assert!(again.0.duration_since(*at) >= Duration::from_secs(2), "{writes:?}");
    assert!(node.len() <= 2, "{writes:?}");
}

#[tokio::test]
async fn a_request_without_response_times_out() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    fake.with(|inner| inner.troubles.push_back(Trouble::Silence));
    let _site = Site::start(address).await;
    eventually("written", || fake.status().as_deref() == Some("True")).await;
}

#[tokio::test]
async fn the_api_server_may_start_later() {
    provider();
    // A port that was free when it was checked.
    let address =
        std::net::TcpListener::bind(ANY).and_then(|listener| listener.local_addr()).expect("a port");
    let site = Site::start(address).await;
    eventually("started", || !site.agent.is_finished()).await;
    assert_eq!(site.code("/healthz").await, 200);
    assert_eq!(site.code("/readyz").await, 503);
    let fake = Fake::new();
    fake.serve(address).await;
    eventually("written", || fake.status().as_deref() == Some("True")).await;
    let mut ready = 503;
    for _ in 0..100 {
        ready = site.code("/readyz").await;
        if ready == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(ready, 200);
}

/// A change that a broken watch doesn't deliver is found by the next watch.
#[tokio::test]
async fn a_silent_watch_is_restarted() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    let _site = Site::start(address).await;
    eventually("written", || fake.status().as_deref() == Some("True")).await;
    fake.with(|inner| {
        inner.version += 10;
        let version = inner.version.to_string();
        let node = inner.node.as_mut().expect("there");
        node["status"]["conditions"] = json!([]);
        node["metadata"]["resourceVersion"] = version.into();
    });
    eventually("corrected", || fake.status().as_deref() == Some("True")).await;
}

#[tokio::test]
async fn the_node_may_be_created_later() {
    provider();
    let fake = Fake::new();
    let node = fake.with(|inner| inner.node.take());
    let address = fake.serve(ANY.parse().expect("an address")).await;
    let site = Site::start(address).await;
    eventually("both lists are read", || fake.with(|inner| inner.lists) >= 2).await;
    assert_eq!(site.code("/healthz").await, 200);
    fake.with(|inner| {
        inner.version += 1;
        let version = inner.version.to_string();
        inner.node = node;
        inner.node.as_mut().expect("a Node")["metadata"]["resourceVersion"] = version.into();
    });
    eventually("written", || fake.status().as_deref() == Some("True")).await;
}

/// An earlier result no longer applies while the host root can't be opened; the agent itself stays alive.
#[tokio::test]
async fn a_missing_host_root_is_unknown() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    let site = Site::start(address).await;
    eventually("healthy", || fake.status().as_deref() == Some("True")).await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let moved = elsewhere.path().join("host");
    std::fs::rename(site.host.path(), &moved).expect("moved");
    eventually("unknown", || fake.status().as_deref() == Some("Unknown")).await;
    assert_eq!(fake.condition().expect("a condition")["reason"], "CheckFailed");
    assert_eq!(site.code("/livez").await, 200);
    std::fs::rename(&moved, site.host.path()).expect("moved back");
    eventually("healthy again", || fake.status().as_deref() == Some("True")).await;
}

/// A Node that an earlier agent called ready doesn't stay so if the host root can't be opened from the start.
#[tokio::test]
async fn a_host_root_that_is_missing_at_start_is_unknown() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    let site = Site::start(address).await;
    eventually("healthy", || fake.status().as_deref() == Some("True")).await;
    site.agent.abort();
    let gone = site.host.path().join("gone");
    let _second = Site::start_with(address, gone).await;
    eventually("unknown", || fake.status().as_deref() == Some("Unknown")).await;
    let message = fake.condition().expect("a condition")["message"].to_string();
    assert!(message.contains("can't be opened"), "{message}");
}

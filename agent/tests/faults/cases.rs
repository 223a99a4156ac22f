//! Each trouble, and what has to come of it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use swansong_agent::config::Config;
use swansong_agent::node::{ApiServer, Timing};
use swansong_agent::run::{Agent, Parts};
use swansong_runtime::backoff::Limits;
use tokio::task::JoinHandle;

use crate::api::{Fake, Trouble, eventually};

const ANY: &str = "127.0.0.1:0";

/// Quick for what takes minutes otherwise.
fn timing() -> Timing {
    Timing {
        watch: Duration::from_mins(1),
        silence: Duration::from_millis(300),
        backoff: Limits { first: Duration::from_millis(50), max: Duration::from_millis(500) },
    }
}

/// A host of which nothing but one file decides.
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
    Config::parse(&text).expect("sound")
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
    async fn start(address: SocketAddr, token: Option<&Path>) -> Self {
        let host = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(host.path().join("etc")).expect("made");
        for file in ["etc/wanted", "etc/other"] {
            std::fs::write(host.path().join(file), "").expect("written");
        }
        let mut client = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
        client.auth_info.token_file = token.map(|path| path.to_str().expect("plain").to_owned());
        let api = ApiServer::new(client, Duration::from_secs(2)).expect("a client");
        let parts = Parts {
            config: config(),
            host_root: host.path().to_owned(),
            node: "n".to_owned(),
            health_listen: ANY.parse().expect("an address"),
            api,
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

/// B83 and B88: each refusal is survived, and the state arrives without a new change.
#[tokio::test]
async fn b83_b88_refused_writes_arrive_later() {
    provider();
    for trouble in [409, 422, 429, 500, 503, 504, 404, 403].map(Trouble::Code) {
        let fake = Fake::new();
        let address = fake.serve(ANY.parse().expect("an address")).await;
        let site = Site::start(address, None).await;
        eventually("healthy", || fake.status().as_deref() == Some("True")).await;
        fake.with(|inner| inner.troubles.extend([trouble; 3]));
        site.break_it();
        eventually(&format!("{trouble:?}"), || fake.status().as_deref() == Some("False")).await;
        assert_eq!(site.code("/healthz").await, 200, "{trouble:?}");
        assert_eq!(fake.with(|inner| inner.troubles.len()), 0);
    }
}

#[tokio::test]
async fn retry_after_is_heeded() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    fake.with(|inner| inner.troubles.push_back(Trouble::RetryAfter(2)));
    let _site = Site::start(address, None).await;
    eventually("told", || fake.status().as_deref() == Some("True")).await;
    let writes = fake.with(|inner| inner.writes.clone());
    let node: Vec<_> = writes.iter().filter(|(_, _, path, _)| path.starts_with("/api/v1/nodes")).collect();
    let refused = writes.iter().position(|(_, _, _, code)| *code == 429).expect("one was refused");
    let (at, _, path, _) = &writes[refused];
    let again = writes[refused + 1..].iter().find(|(_, _, other, _)| other == path).expect("tried again");
    assert!(again.0.duration_since(*at) >= Duration::from_secs(2), "{writes:?}");
    assert!(node.len() <= 2, "{writes:?}");
}

#[tokio::test]
async fn an_answer_that_never_comes_is_not_waited_for() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    fake.with(|inner| inner.troubles.push_back(Trouble::Silence));
    let _site = Site::start(address, None).await;
    eventually("told", || fake.status().as_deref() == Some("True")).await;
}

/// B75: the agent first, the API server later.
#[tokio::test]
async fn b75_an_api_server_that_comes_later() {
    provider();
    // A port that was free a moment ago.
    let address =
        std::net::TcpListener::bind(ANY).and_then(|listener| listener.local_addr()).expect("a port");
    let site = Site::start(address, None).await;
    eventually("asked in vain", || !site.agent.is_finished()).await;
    assert_eq!(site.code("/healthz").await, 200);
    assert_eq!(site.code("/readyz").await, 503);
    let fake = Fake::new();
    fake.serve(address).await;
    eventually("told", || fake.status().as_deref() == Some("True")).await;
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

/// A watch that never says a word: what others do is seen all the same.
#[tokio::test]
async fn a_silent_watch_is_noticed() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    let _site = Site::start(address, None).await;
    eventually("told", || fake.status().as_deref() == Some("True")).await;
    let lists = fake.with(|inner| inner.lists);
    fake.with(|inner| {
        inner.version += 10;
        let version = inner.version.to_string();
        let node = inner.node.as_mut().expect("there");
        node["status"]["conditions"] = json!([]);
        node["metadata"]["resourceVersion"] = version.into();
    });
    eventually("mended", || fake.status().as_deref() == Some("True")).await;
    assert!(fake.with(|inner| inner.lists) > lists);
}

#[tokio::test]
async fn an_expired_token_is_read_anew() {
    provider();
    let fake = Fake::new();
    fake.with(|inner| inner.token = Some("old".to_owned()));
    let address = fake.serve(ANY.parse().expect("an address")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "old").expect("written");
    let site = Site::start(address, Some(&file)).await;
    eventually("told", || fake.status().as_deref() == Some("True")).await;
    fake.with(|inner| inner.token = Some("new".to_owned()));
    std::fs::write(&file, "new").expect("written");
    site.break_it();
    let begun = std::time::Instant::now();
    eventually("told with the new token", || fake.status().as_deref() == Some("False")).await;
    assert!(begun.elapsed() < Duration::from_secs(40), "kube itself keeps a token for a minute");
}

#[tokio::test]
async fn a_node_that_is_not_there_yet() {
    provider();
    let fake = Fake::new();
    let node = fake.with(|inner| inner.node.take());
    let address = fake.serve(ANY.parse().expect("an address")).await;
    let site = Site::start(address, None).await;
    eventually("looked for", || fake.with(|inner| inner.lists) > 2).await;
    assert_eq!(site.code("/healthz").await, 200);
    fake.with(|inner| inner.node = node);
    eventually("told", || fake.status().as_deref() == Some("True")).await;
}

/// What was seen before the checks broke off doesn't stand for what is: a node isn't healthy by that.
#[tokio::test]
async fn checks_that_break_off_are_unknown() {
    provider();
    let fake = Fake::new();
    let address = fake.serve(ANY.parse().expect("an address")).await;
    let site = Site::start(address, None).await;
    eventually("healthy", || fake.status().as_deref() == Some("True")).await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let moved = elsewhere.path().join("host");
    std::fs::rename(site.host.path(), &moved).expect("moved");
    eventually("unknown", || fake.status().as_deref() == Some("Unknown")).await;
    assert_eq!(fake.condition().expect("told")["reason"], "CheckFailed");
    std::fs::rename(&moved, site.host.path()).expect("moved back");
    eventually("healthy again", || fake.status().as_deref() == Some("True")).await;
}

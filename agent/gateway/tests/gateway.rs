//! Gateways with TLS, agents, and the fake ClusterD.

#[path = "../benches/gateway/simulation.rs"]
#[allow(dead_code, reason = "the benchmark shows more figures")]
mod simulation;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use swansong_clusterd::{Class, FaultType, PublicFault, SendError, Transport};
use swansong_fake_clusterd::{self as fake, Behaviour, FakeClusterd};
use swansong_fault_model::Assertion;
use swansong_gateway::client::{GatewayClient, Settings};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use self::simulation::{Gateway, Plan, Site, run};

/// Longer than any step takes.
const LONG: Duration = Duration::from_secs(30);
/// The request timeout where ClusterD accepts nothing.
const SHORT: Duration = Duration::from_millis(700);

fn fault(node: &str, npu: u32) -> PublicFault {
    PublicFault {
        fault_id: format!("{node}.npu{npu}.1.1756000000000"),
        fault_type: FaultType::Npu,
        class: Class::ChipSeparate,
        fault_time: 1_756_000_000_000,
        assertion: Assertion::Occur,
        location: BTreeMap::new(),
        node: node.to_owned(),
        devices: vec![npu],
        description: String::new(),
    }
}

async fn start(request_timeout: Duration) -> (FakeClusterd, Site, Gateway) {
    let clusterd = FakeClusterd::start(fake::Settings::default()).await.expect("listening");
    let site = Site::new();
    let gateway = site.gateway(&clusterd.url(), 1, request_timeout).await;
    (clusterd, site, gateway)
}

#[tokio::test]
async fn responds_after_clusterd_accepted() {
    let (clusterd, site, gateway) = start(LONG).await;
    let client = site.client(&gateway, "worker-1", true);
    client.send(&[fault("worker-1", 3), fault("worker-1", 4)]).await.expect("accepted");
    let ledger = clusterd.ledger();
    let devices: Vec<_> = ledger.accepted.iter().map(|accepted| accepted.devices[0]).collect();
    assert_eq!((devices, ledger.answers.len()), (vec![3, 4], 1));
}

#[tokio::test]
async fn agent_reports_only_its_own_node() {
    let (clusterd, site, gateway) = start(LONG).await;
    let client = site.client(&gateway, "worker-1", true);
    let sent = client.send(&[fault("worker-1", 3), fault("worker-2", 3)]).await.expect_err("another node");
    assert!(matches!(&sent, SendError::Unavailable(why) if why.contains("worker-2")), "{sent}");
    let stranger = site.client(&gateway, "stranger", true);
    let sent = stranger.send(&[fault("worker-1", 3)]).await.expect_err("a stranger");
    assert!(matches!(&sent, SendError::Unavailable(why) if why.contains("isn't one of an agent")), "{sent}");
    assert!(clusterd.ledger().answers.is_empty());
}

#[tokio::test]
async fn clusterds_responses_reach_the_agent() {
    let (clusterd, site, gateway) = start(SHORT).await;
    let client = site.client(&gateway, "worker-1", true);
    clusterd.behave(Behaviour::TooMany);
    let sent = client.send(&[fault("worker-1", 1)]).await.expect_err("410");
    assert!(matches!(sent, SendError::TooMany(_)), "{sent}");
    clusterd.behave(Behaviour::Unavailable);
    let sent = client.send(&[fault("worker-1", 1)]).await.expect_err("a status");
    assert!(matches!(sent, SendError::RetryAfter { .. } | SendError::TooMany(_)), "{sent}");
    clusterd.behave(Behaviour::Refuse);
    let refused = async {
        loop {
            match client.send(&[fault("worker-1", 1)]).await {
                Err(SendError::Invalid(_)) => return,
                other => assert!(matches!(other, Err(SendError::RetryAfter { .. })), "{other:?}"),
            }
        }
    };
    timeout(LONG, refused).await.expect("409");
    clusterd.behave(Behaviour::Normal);
    let sent = client.send(&[fault("worker-1", 1)]).await;
    assert_eq!(sent, Ok(()));
}

/// Otherwise a fault could be sent after its recovery took another transport, and stay active for ever.
#[tokio::test]
async fn timed_out_faults_are_never_sent() {
    let (clusterd, site, gateway) = start(SHORT).await;
    let client = site.client(&gateway, "worker-1", true);
    clusterd.behave(Behaviour::TooMany);
    assert!(client.send(&[fault("worker-1", 1)]).await.is_err());
    clusterd.behave(Behaviour::Normal);
    // It is queued later, so the first would have been sent before it.
    let other = site.client(&gateway, "worker-2", true);
    let sent = async { while other.send(&[fault("worker-2", 1)]).await.is_err() {} };
    timeout(LONG, sent).await.expect("accepted");
    assert_eq!(clusterd.ledger().of(&fault("worker-1", 1).fault_id), []);
}

#[tokio::test]
async fn faults_of_a_disconnected_agent_are_not_sent() {
    let (clusterd, site, gateway) = start(LONG).await;
    clusterd.behave(Behaviour::TooMany);
    let client = site.client(&gateway, "worker-1", true);
    let batch = [fault("worker-1", 1)];
    let queued = async {
        while gateway.dispatcher.queue_len() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        sent = client.send(&batch) => panic!("{sent:?}"),
        () = queued => {}
    }
    drop(client);
    let other = site.client(&gateway, "worker-2", true);
    let recovery = async {
        sleep(Duration::from_millis(50)).await;
        clusterd.behave(Behaviour::Normal);
    };
    let batch = [fault("worker-2", 1)];
    let (sent, ()) = tokio::join!(other.send(&batch), recovery);
    sent.expect("accepted");
    assert_eq!(clusterd.ledger().of(&fault("worker-1", 1).fault_id), []);
}

#[tokio::test]
async fn unreachable_or_untrusted_gateway_is_unavailable() {
    let (_clusterd, site, gateway) = start(LONG).await;
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed = free.local_addr().expect("an address").to_string();
    drop(free);
    let foreign = Site::new();
    let settings = |address: &str, ca_file| Settings {
        address: address.to_owned(),
        server_name: "gateway".to_owned(),
        ca_file,
        token_file: site.token_file("worker-1"),
        connect_timeout: LONG,
        request_timeout: LONG,
    };
    // Accepts connections and never responds.
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mute = mute.local_addr().map(|address| (address.to_string(), mute)).expect("an address");
    let cases = [
        Settings { connect_timeout: Duration::from_millis(100), ..settings(&mute.0, site.ca_file()) },
        settings(&closed, site.ca_file()),
        settings(&gateway.address, foreign.ca_file()),
        Settings { server_name: "another".to_owned(), ..settings(&gateway.address, site.ca_file()) },
        Settings { token_file: "/nowhere".into(), ..settings(&gateway.address, site.ca_file()) },
        settings(&gateway.address, "/nowhere".into()),
    ];
    for (i, settings) in (0..).zip(cases) {
        let sent = GatewayClient::new(settings).send(&[fault("worker-1", i)]).await;
        assert!(matches!(sent, Err(SendError::Unavailable(_))), "{i}: {sent:?}");
    }
}

#[tokio::test]
async fn reads_the_token_for_each_batch() {
    let (_clusterd, site, gateway) = start(LONG).await;
    let path = site.token_file("worker-1");
    fs::write(&path, "stale").expect("written");
    let client = GatewayClient::new(Settings {
        address: gateway.address.clone(),
        server_name: "gateway".to_owned(),
        ca_file: site.ca_file(),
        token_file: path.clone(),
        connect_timeout: LONG,
        request_timeout: LONG,
    });
    assert!(client.send(&[fault("worker-1", 1)]).await.is_err());
    fs::write(&path, "worker-1\n").expect("written");
    client.send(&[fault("worker-1", 1)]).await.expect("accepted");
}

/// The small version of the benchmark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_switch_needs_few_messages() {
    let start = Instant::now();
    let plan = Plan { agents: 600, hit: 150, gateways: 2, limit: Duration::from_mins(2) };
    let figures = run(plan).await;
    assert_eq!((figures.accepted, figures.reordered), (225, 0), "{figures:?} after {:?}", start.elapsed());
    assert!(figures.messages <= 80, "never more than the gateways' share: {figures:?}");
    assert_eq!((figures.refused, figures.queued), (0, 0), "{figures:?}");
}

//! Relays with TLS, their agents, and the stand-in ClusterD.
#![allow(missing_docs)]

#[path = "../benches/relay/simulation.rs"]
#[allow(dead_code, reason = "the benchmark shows more figures")]
mod simulation;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use swansong_clusterd::{Class, FaultType, PublicFault, SendError, Transport};
use swansong_clusterd_client::GrpcClient;
use swansong_fake_clusterd::{Behaviour, Effect, Settings, StandIn};
use swansong_fault_model::Assertion;
use swansong_gateway::client::{FallingBack, RelaySink, Settings as Way};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use self::simulation::{Plan, Relay, Site, run};

/// Nothing here takes as long.
const LONG: Duration = Duration::from_secs(30);
/// What requests wait for when ClusterD takes nothing.
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

async fn start(patience: Duration) -> (StandIn, Site, Relay) {
    let clusterd = StandIn::start(Settings::default()).await.expect("it listens");
    let site = Site::new();
    let relay = site.relay(&clusterd.url(), 1, patience).await;
    (clusterd, site, relay)
}

#[tokio::test]
async fn a_fault_is_taken_by_clusterd_before_the_agent_is_answered() {
    let (clusterd, site, relay) = start(LONG).await;
    let sink = site.sink(&relay, "worker-1", true);
    sink.send(&[fault("worker-1", 3), fault("worker-1", 4)]).await.expect("taken");
    let ledger = clusterd.ledger();
    let devices: Vec<_> = ledger.taken.iter().map(|taken| taken.devices[0]).collect();
    assert_eq!((devices, ledger.answers.len()), (vec![3, 4], 1));
}

#[tokio::test]
async fn an_agent_tells_of_its_own_node_only() {
    let (clusterd, site, relay) = start(LONG).await;
    let sink = site.sink(&relay, "worker-1", true);
    let sent = sink.send(&[fault("worker-1", 3), fault("worker-2", 3)]).await.expect_err("another's");
    assert!(matches!(&sent, SendError::Unavailable(why) if why.contains("worker-2")), "{sent}");
    let stranger = site.sink(&relay, "stranger", true);
    let sent = stranger.send(&[fault("worker-1", 3)]).await.expect_err("a stranger");
    assert!(matches!(&sent, SendError::Unavailable(why) if why.contains("isn't one of an agent")), "{sent}");
    assert!(clusterd.ledger().answers.is_empty());
}

#[tokio::test]
async fn clusterds_answers_come_through() {
    let (clusterd, site, relay) = start(SHORT).await;
    let sink = site.sink(&relay, "worker-1", true);
    clusterd.behave(Behaviour::TooMany);
    let sent = sink.send(&[fault("worker-1", 1)]).await.expect_err("410");
    assert!(matches!(sent, SendError::TooMany(_)), "{sent}");
    clusterd.behave(Behaviour::Unavailable);
    let sent = sink.send(&[fault("worker-1", 1)]).await.expect_err("a status");
    assert!(matches!(sent, SendError::RetryAfter { .. } | SendError::TooMany(_)), "{sent}");
    clusterd.behave(Behaviour::Refuse);
    let refused = async {
        loop {
            match sink.send(&[fault("worker-1", 1)]).await {
                Err(SendError::Invalid(_)) => return,
                other => assert!(matches!(other, Err(SendError::RetryAfter { .. })), "{other:?}"),
            }
        }
    };
    timeout(LONG, refused).await.expect("409 comes through");
    clusterd.behave(Behaviour::Normal);
    let sent = sink.send(&[fault("worker-1", 1)]).await;
    assert_eq!(sent, Ok(()));
}

/// Else a fault could be sent after its recovery, which went another way, and stand for ever.
#[tokio::test]
async fn what_an_agent_gave_up_is_never_sent() {
    let (clusterd, site, relay) = start(SHORT).await;
    let sink = site.sink(&relay, "worker-1", true);
    clusterd.behave(Behaviour::TooMany);
    assert!(sink.send(&[fault("worker-1", 1)]).await.is_err());
    clusterd.behave(Behaviour::Normal);
    // It comes after in the queue, so that the first would have been sent before it.
    let other = site.sink(&relay, "worker-2", true);
    let sent = async { while other.send(&[fault("worker-2", 1)]).await.is_err() {} };
    timeout(LONG, sent).await.expect("taken");
    assert_eq!(clusterd.ledger().of(&fault("worker-1", 1).fault_id), []);
}

/// A client that is gone in the middle is as one that gave up.
#[tokio::test]
async fn what_an_agent_that_died_handed_over_is_not_sent() {
    let (clusterd, site, relay) = start(LONG).await;
    clusterd.behave(Behaviour::TooMany);
    let sink = site.sink(&relay, "worker-1", true);
    let batch = [fault("worker-1", 1)];
    let waits = async {
        while relay.pump.waiting() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        sent = sink.send(&batch) => panic!("{sent:?}"),
        () = waits => {}
    }
    drop(sink);
    let other = site.sink(&relay, "worker-2", true);
    let told = async {
        sleep(Duration::from_millis(50)).await;
        clusterd.behave(Behaviour::Normal);
    };
    let batch = [fault("worker-2", 1)];
    let (sent, ()) = tokio::join!(other.send(&batch), told);
    sent.expect("taken");
    assert_eq!(clusterd.ledger().of(&fault("worker-1", 1).fault_id), []);
}

#[tokio::test]
async fn without_a_relay_that_can_be_reached_and_trusted_the_agent_sends_itself() {
    let (clusterd, site, relay) = start(LONG).await;
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let nobody = free.local_addr().expect("an address").to_string();
    drop(free);
    let foreign = Site::new();
    let way = |address: &str, authority| Way {
        address: address.to_owned(),
        server_name: "relay".to_owned(),
        authority,
        token: site.token("worker-1"),
        connect: LONG,
        deadline: LONG,
    };
    // It is there and never says a word.
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mute = mute.local_addr().map(|address| (address.to_string(), mute)).expect("an address");
    let ways = [
        Way { connect: Duration::from_millis(100), ..way(&mute.0, site.authority()) },
        way(&nobody, site.authority()),
        way(&relay.address, foreign.authority()),
        Way { server_name: "another".to_owned(), ..way(&relay.address, site.authority()) },
        Way { token: "/nowhere".into(), ..way(&relay.address, site.authority()) },
        way(&relay.address, "/nowhere".into()),
    ];
    for (i, way) in (0..).zip(ways) {
        let sent = RelaySink::new(way.clone()).send(&[fault("worker-1", i)]).await;
        assert!(matches!(sent, Err(SendError::Unavailable(_))), "{i}: {sent:?}");
        let second = GrpcClient::new(&clusterd.url(), LONG).expect("an address");
        let sink = FallingBack { first: RelaySink::new(way), second };
        sink.send(&[fault("worker-1", i)]).await.expect("by itself");
        assert_eq!(clusterd.ledger().of(&fault("worker-1", i).fault_id), [("occur", Effect::Added)]);
    }
}

#[tokio::test]
async fn the_token_is_read_anew_each_time() {
    let (_clusterd, site, relay) = start(LONG).await;
    let path = site.token("worker-1");
    fs::write(&path, "stale").expect("written");
    let sink = RelaySink::new(Way {
        address: relay.address.clone(),
        server_name: "relay".to_owned(),
        authority: site.authority(),
        token: path.clone(),
        connect: LONG,
        deadline: LONG,
    });
    assert!(sink.send(&[fault("worker-1", 1)]).await.is_err());
    fs::write(&path, "worker-1\n").expect("written");
    sink.send(&[fault("worker-1", 1)]).await.expect("taken");
}

/// The small version of `relay/benches/relay`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_that_fails_costs_a_few_messages() {
    let start = Instant::now();
    let plan = Plan { agents: 600, hit: 150, relays: 2, bound: Duration::from_mins(2) };
    let figures = run(plan).await;
    assert_eq!((figures.taken, figures.reordered), (225, 0), "{figures:?} after {:?}", start.elapsed());
    assert!(figures.messages <= 80, "never more than the relays' part: {figures:?}");
    assert_eq!((figures.refused, figures.waiting), (0, 0), "{figures:?}");
}

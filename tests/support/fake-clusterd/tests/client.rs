//! The client against the fake ClusterD.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swansong_clusterd::message::InvalidBatch;
use swansong_clusterd::{Class, FaultType, PublicFault, SendError, Transport};
use swansong_clusterd_client::GrpcClient;
use swansong_clusterd_client::proto::PublicFaultRequest;
use swansong_clusterd_client::proto::pub_fault_client::PubFaultClient;
use swansong_fake_clusterd::connection::Count;
use swansong_fake_clusterd::server::Clock;
use swansong_fake_clusterd::whitelist::Customization;
use swansong_fake_clusterd::{Behaviour, Effect, FakeClusterd, Settings};
use swansong_fault_model::Assertion;
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::transport::Endpoint;

/// Long enough for a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);
/// For tests that wait until it expires.
const SHORT: Duration = Duration::from_millis(300);
const NOW: u64 = 1_756_000_000_000;

fn fault(i: u32) -> PublicFault {
    PublicFault {
        fault_id: format!("worker-1.npu{i}.1.1756000000000"),
        fault_type: FaultType::Npu,
        class: Class::ChipSeparate,
        fault_time: NOW,
        assertion: Assertion::Occur,
        location: BTreeMap::new(),
        node: "worker-1".to_owned(),
        devices: vec![i % 32],
        description: "gone".to_owned(),
    }
}

async fn start() -> FakeClusterd {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    FakeClusterd::start_at(nowhere, Settings::default(), Clock::manual(NOW)).await.expect("it listens")
}

fn client(clusterd: &FakeClusterd, deadline: Duration) -> GrpcClient {
    GrpcClient::new(&clusterd.url(), deadline).expect("an address")
}

/// Waits until the connections match, since separate tasks accept and close them.
async fn until(clusterd: &FakeClusterd, wanted: impl Fn(Count) -> bool) {
    let start = Instant::now();
    while !wanted(clusterd.connections()) {
        assert!(start.elapsed() < DEADLINE, "{:?}", clusterd.connections());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn closed(clusterd: &FakeClusterd) {
    until(clusterd, |count| count.open == 0).await;
}

#[tokio::test]
async fn delivers_fault_and_recovery_in_order() {
    let clusterd = start().await;
    let client = client(&clusterd, DEADLINE);
    let recovery = fault(1).with_assertion(Assertion::Recover);
    client.send(&[fault(1), fault(2)]).await.expect("accepted");
    clusterd.clock().advance(Duration::from_secs(6));
    client.send(&[recovery, fault(1)]).await.expect("accepted");
    let ledger = clusterd.ledger();
    let accepted: Vec<_> = ledger
        .accepted
        .iter()
        .map(|accepted| (accepted.devices[0], accepted.assertion.as_str(), accepted.effect))
        .collect();
    let expected = [
        (1, "occur", Effect::Added),
        (2, "occur", Effect::Added),
        (1, "recover", Effect::Recovered),
        (1, "occur", Effect::Added),
    ];
    assert_eq!(accepted, expected);
    let first = &ledger.accepted[0];
    assert_eq!((&*first.node, &*first.code, &*first.resource), ("worker-1", "020011001", "swansong"));
    assert_eq!((first.fault_time, ledger.dropped.len(), ledger.misdirected.len()), (1_756_000_000_000, 0, 0));
}

#[tokio::test]
async fn sends_a_hundred_faults_of_maximum_size() {
    let clusterd = start().await;
    let biggest = |i: u32| PublicFault {
        fault_id: format!("{i:0128}"),
        location: (0..10).map(|key| (format!("{key:016}"), "v".repeat(128))).collect(),
        node: "n".repeat(253),
        devices: (0..32).collect(),
        description: "障".repeat(512),
        ..fault(i)
    };
    let batch: Vec<_> = (0..100).map(biggest).collect();
    client(&clusterd, DEADLINE).send(&batch).await.expect("accepted");
    assert_eq!((clusterd.ledger().accepted.len(), clusterd.ledger().dropped.len()), (100, 0));
}

#[tokio::test]
async fn does_not_send_invalid_faults() {
    let clusterd = start().await;
    let client = client(&clusterd, DEADLINE);
    let nameless = PublicFault { node: String::new(), ..fault(2) };
    let many: Vec<_> = (0..101).map(fault).collect();
    assert_eq!(client.send(&[]).await, Err(SendError::InvalidBatch(InvalidBatch::Empty)));
    assert_eq!(client.send(&many).await, Err(SendError::InvalidBatch(InvalidBatch::TooMany(101))));
    let sent = client.send(&[fault(1), nameless]).await;
    assert!(matches!(sent, Err(SendError::InvalidBatch(InvalidBatch::Invalid(_)))), "{sent:?}");
    assert_eq!(clusterd.connections().accepted, 0);
}

#[tokio::test]
async fn maps_every_response() {
    let clusterd = start().await;
    let client = client(&clusterd, DEADLINE);
    clusterd.behave(Behaviour::Refuse);
    let sent = client.send(&[fault(1)]).await.expect_err("409");
    assert!(matches!(&sent, SendError::Invalid(info) if info.contains("no valid fault")), "{sent}");
    clusterd.behave(Behaviour::Code(500));
    let sent = client.send(&[fault(1)]).await.expect_err("500");
    assert!(matches!(sent, SendError::UnexpectedResponse { code: 500, .. }), "{sent}");
    clusterd.behave(Behaviour::Unavailable);
    let sent = client.send(&[fault(1)]).await.expect_err("a status");
    assert!(matches!(&sent, SendError::Unavailable(why) if why.contains("not now")), "{sent}");
    clusterd.behave(Behaviour::Normal);
    client.send(&[fault(1)]).await.expect("accepted");
}

#[tokio::test]
async fn unregistered_sender_gets_410_with_the_possible_causes() {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings { customization: Customization::Absent, ..Settings::default() };
    let clusterd = FakeClusterd::start_at(nowhere, settings, Clock::manual(NOW)).await.expect("it listens");
    let client = client(&clusterd, DEADLINE);
    for _ in 0..3 {
        clusterd.clock().advance(Duration::from_hours(1));
        let sent = client.send(&[fault(1)]).await.expect_err("410");
        assert!(matches!(sent, SendError::TooMany(_)), "{sent}");
        for word in ["410", "too many", "clusterd-config"] {
            assert!(sent.to_string().contains(word), "{sent}");
        }
    }
    // Installing the file is enough.
    let Settings { customization, .. } = Settings::default();
    clusterd.with(|core, _| core.customize(customization));
    client.send(&[fault(1)]).await.expect("accepted");
}

#[tokio::test]
async fn refused_connection_is_unavailable() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let client = GrpcClient::new(&format!("http://{address}"), DEADLINE).expect("an address");
    let sent = client.send(&[fault(1)]).await.expect_err("no listener");
    assert!(
        matches!(&sent, SendError::Unavailable(why) if why.contains("refused") && why.contains(&address.to_string())),
        "{sent}"
    );
}

#[tokio::test]
async fn hanging_server_times_out() {
    let clusterd = start().await;
    let client = client(&clusterd, SHORT);
    for behaviour in [Behaviour::Hang, Behaviour::HalfOpen] {
        clusterd.behave(behaviour);
        let sent = client.send(&[fault(1)]).await.expect_err("no answer");
        assert!(
            matches!(&sent, SendError::Unavailable(why) if why.contains("300ms")),
            "{behaviour:?}: {sent}"
        );
        closed(&clusterd).await;
    }
    assert!(clusterd.ledger().accepted.is_empty());
}

#[tokio::test]
async fn recovers_after_a_connection_reset() {
    let clusterd = start().await;
    let client = client(&clusterd, DEADLINE);
    clusterd.behave(Behaviour::Reset);
    let sent = client.send(&[fault(1)]).await.expect_err("reset");
    assert!(matches!(sent, SendError::Unavailable(_)), "{sent}");
    // AcceptedFault, but we can't know: sent again, it is the same fault.
    clusterd.behave(Behaviour::ResetAfter);
    let sent = client.send(&[fault(1)]).await.expect_err("reset");
    assert!(matches!(sent, SendError::Unavailable(_)), "{sent}");
    clusterd.behave(Behaviour::Normal);
    client.send(&[fault(1)]).await.expect("accepted");
    let id = fault(1).fault_id;
    assert_eq!(clusterd.ledger().of(&id), [("occur", Effect::Added), ("occur", Effect::Repeated)]);
}

#[tokio::test]
async fn client_survives_a_restart_of_the_server() {
    let mut clusterd = start().await;
    let client = client(&clusterd, DEADLINE);
    client.send(&[fault(1)]).await.expect("accepted");
    clusterd.stop().await;
    let sent = client.send(&[fault(2)]).await.expect_err("no listener");
    assert!(matches!(sent, SendError::Unavailable(_)), "{sent}");
    clusterd.restart().await.expect("it listens");
    client.send(&[fault(2)]).await.expect("accepted");
    assert_eq!(clusterd.ledger().kills.len(), 3, "the active fault ended the ranks again");
}

#[tokio::test]
async fn uses_one_connection_at_a_time_and_none_when_idle() {
    let clusterd = start().await;
    let client = Arc::new(client(&clusterd, DEADLINE));
    let sends = (0..20).map(|i| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { client.send(&[fault(i)]).await })
    });
    for send in sends.collect::<Vec<_>>() {
        send.await.expect("no panic").expect("accepted");
    }
    closed(&clusterd).await;
    let count = clusterd.connections();
    assert_eq!(count.accepted, 20, "one per batch");
    // The previous connection may be closing while the next one opens.
    assert!(count.most <= 2, "{count:?}");
}

/// A naive client that holds a connection per node and pings it.
#[tokio::test]
async fn closes_connections_with_frequent_pings() {
    let clusterd = start().await;
    let endpoint = Endpoint::from_shared(clusterd.url()).expect("an address");
    let endpoint = endpoint
        .http2_keep_alive_interval(Duration::from_millis(50))
        .keep_alive_timeout(DEADLINE)
        .keep_alive_while_idle(true);
    let _channel = endpoint.connect().await.expect("connected");
    until(&clusterd, |count| count.too_many_pings == 1 && count.open == 0).await;
}

#[tokio::test]
async fn limits_connections_per_address_to_512() {
    let clusterd = start().await;
    let mut held = Vec::new();
    for _ in 0..512 {
        held.push(TcpStream::connect(clusterd.address()).await.expect("connected"));
    }
    until(&clusterd, |count| count.open == 512).await;
    let sent = client(&clusterd, DEADLINE).send(&[fault(1)]).await.expect_err("no room");
    assert!(matches!(sent, SendError::Unavailable(_)), "{sent}");
    drop(held);
    closed(&clusterd).await;
    client(&clusterd, DEADLINE).send(&[fault(1)]).await.expect("accepted");
    assert_eq!(clusterd.connections().most, 512);
}

/// All methods of all clients share a thousand calls a second.
#[tokio::test]
async fn limits_calls_to_a_thousand_a_second() {
    let clusterd = start().await;
    let channel =
        Endpoint::from_shared(clusterd.url()).expect("an address").connect().await.expect("connected");
    let mut client = PubFaultClient::new(channel);
    for i in 0..1000 {
        let answer = client.send_public_fault(PublicFaultRequest::default()).await;
        assert!(answer.is_ok(), "{i}: {answer:?}");
    }
    let status = client.send_public_fault(PublicFaultRequest::default()).await.expect_err("too many");
    assert_eq!(status.code(), Code::ResourceExhausted);
    clusterd.clock().advance(Duration::from_millis(1));
    client.send_public_fault(PublicFaultRequest::default()).await.expect("a new token");
}

//! The client against the stand-in ClusterD.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swansong_clusterd::message::InvalidBatch;
use swansong_clusterd::process_fault::{Cause, ReportError};
use swansong_clusterd::{Class, FaultType, PublicFault, SendError, Transport};
use swansong_clusterd_client::GrpcClient;
use swansong_clusterd_client::proto::PublicFaultRequest;
use swansong_clusterd_client::proto::pub_fault_client::PubFaultClient;
use swansong_fake_clusterd::connection::Count;
use swansong_fake_clusterd::server::Clock;
use swansong_fake_clusterd::whitelist::Customization;
use swansong_fake_clusterd::{Behaviour, Effect, Settings, StandIn};
use swansong_fault_model::Assertion;
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::transport::Endpoint;

/// Long enough for a busy machine; tests that wait for it set their own.
const DEADLINE: Duration = Duration::from_secs(20);
/// For those that wait for it.
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

async fn start() -> StandIn {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    StandIn::start_at(nowhere, Settings::default(), Clock::manual(NOW)).await.expect("it listens")
}

fn client(stand_in: &StandIn, deadline: Duration) -> GrpcClient {
    GrpcClient::new(&stand_in.url(), deadline).expect("an address")
}

/// Until its connections are as wanted: they come and go in tasks of their own.
async fn until(stand_in: &StandIn, wanted: impl Fn(Count) -> bool) {
    let start = Instant::now();
    while !wanted(stand_in.connections()) {
        assert!(start.elapsed() < DEADLINE, "{:?}", stand_in.connections());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn closed(stand_in: &StandIn) {
    until(stand_in, |count| count.open == 0).await;
}

#[tokio::test]
async fn delivers_fault_and_recovery_in_order() {
    let stand_in = start().await;
    let client = client(&stand_in, DEADLINE);
    let recovery = fault(1).with_assertion(Assertion::Recover);
    client.send(&[fault(1), fault(2)]).await.expect("taken");
    stand_in.clock().advance(Duration::from_secs(6));
    client.send(&[recovery, fault(1)]).await.expect("taken");
    let ledger = stand_in.ledger();
    let told: Vec<_> =
        ledger.taken.iter().map(|taken| (taken.devices[0], taken.assertion.as_str(), taken.effect)).collect();
    let expected = [
        (1, "occur", Effect::Added),
        (2, "occur", Effect::Added),
        (1, "recover", Effect::Recovered),
        (1, "occur", Effect::Added),
    ];
    assert_eq!(told, expected);
    let first = &ledger.taken[0];
    assert_eq!((&*first.node, &*first.code, &*first.resource), ("worker-1", "020011001", "swansong"));
    assert_eq!((first.fault_time, ledger.dropped.len(), ledger.harm.len()), (1_756_000_000_000, 0, 0));
}

#[tokio::test]
async fn sends_a_hundred_faults_of_maximum_size() {
    let stand_in = start().await;
    let biggest = |i: u32| PublicFault {
        fault_id: format!("{i:0128}"),
        location: (0..10).map(|key| (format!("{key:016}"), "v".repeat(128))).collect(),
        node: "n".repeat(253),
        devices: (0..32).collect(),
        description: "障".repeat(512),
        ..fault(i)
    };
    let batch: Vec<_> = (0..100).map(biggest).collect();
    client(&stand_in, DEADLINE).send(&batch).await.expect("taken");
    assert_eq!((stand_in.ledger().taken.len(), stand_in.ledger().dropped.len()), (100, 0));
}

#[tokio::test]
async fn does_not_send_invalid_faults() {
    let stand_in = start().await;
    let client = client(&stand_in, DEADLINE);
    let nameless = PublicFault { node: String::new(), ..fault(2) };
    let many: Vec<_> = (0..101).map(fault).collect();
    assert_eq!(client.send(&[]).await, Err(SendError::InvalidBatch(InvalidBatch::Empty)));
    assert_eq!(client.send(&many).await, Err(SendError::InvalidBatch(InvalidBatch::TooMany(101))));
    let sent = client.send(&[fault(1), nameless]).await;
    assert!(matches!(sent, Err(SendError::InvalidBatch(InvalidBatch::Invalid(_)))), "{sent:?}");
    assert_eq!(stand_in.connections().accepted, 0);
}

#[tokio::test]
async fn maps_every_response() {
    let stand_in = start().await;
    let client = client(&stand_in, DEADLINE);
    stand_in.behave(Behaviour::Refuse);
    let sent = client.send(&[fault(1)]).await.expect_err("409");
    assert!(matches!(&sent, SendError::Invalid(info) if info.contains("no valid fault")), "{sent}");
    stand_in.behave(Behaviour::Code(500));
    let sent = client.send(&[fault(1)]).await.expect_err("500");
    assert!(matches!(sent, SendError::UnexpectedResponse { code: 500, .. }), "{sent}");
    stand_in.behave(Behaviour::Unavailable);
    let sent = client.send(&[fault(1)]).await.expect_err("a status");
    assert!(matches!(&sent, SendError::Unavailable(why) if why.contains("not now")), "{sent}");
    stand_in.behave(Behaviour::Normal);
    client.send(&[fault(1)]).await.expect("taken");
}

#[tokio::test]
async fn unregistered_sender_gets_410_with_the_possible_causes() {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings { customization: Customization::Absent, ..Settings::default() };
    let stand_in = StandIn::start_at(nowhere, settings, Clock::manual(NOW)).await.expect("it listens");
    let client = client(&stand_in, DEADLINE);
    for _ in 0..3 {
        stand_in.clock().advance(Duration::from_hours(1));
        let sent = client.send(&[fault(1)]).await.expect_err("410");
        assert!(matches!(sent, SendError::TooMany(_)), "{sent}");
        for word in ["410", "too many", "clusterd-config"] {
            assert!(sent.to_string().contains(word), "{sent}");
        }
    }
    // The administrator installs the file: nothing else has to happen.
    let Settings { customization, .. } = Settings::default();
    stand_in.with(|core, _| core.customize(customization));
    client.send(&[fault(1)]).await.expect("taken");
}

#[tokio::test]
async fn refused_connection_is_unavailable() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let client = GrpcClient::new(&format!("http://{address}"), DEADLINE).expect("an address");
    let sent = client.send(&[fault(1)]).await.expect_err("nobody listens");
    assert!(
        matches!(&sent, SendError::Unavailable(why) if why.contains("refused") && why.contains(&address.to_string())),
        "{sent}"
    );
}

#[tokio::test]
async fn hanging_server_times_out() {
    let stand_in = start().await;
    let client = client(&stand_in, SHORT);
    for behaviour in [Behaviour::Hang, Behaviour::HalfOpen] {
        stand_in.behave(behaviour);
        let sent = client.send(&[fault(1)]).await.expect_err("no answer");
        assert!(
            matches!(&sent, SendError::Unavailable(why) if why.contains("300ms")),
            "{behaviour:?}: {sent}"
        );
        closed(&stand_in).await;
    }
    assert!(stand_in.ledger().taken.is_empty());
}

#[tokio::test]
async fn recovers_after_a_connection_reset() {
    let stand_in = start().await;
    let client = client(&stand_in, DEADLINE);
    stand_in.behave(Behaviour::Reset);
    let sent = client.send(&[fault(1)]).await.expect_err("reset");
    assert!(matches!(sent, SendError::Unavailable(_)), "{sent}");
    // Taken, but we can't know: sent again, it is the same fault.
    stand_in.behave(Behaviour::ResetAfter);
    let sent = client.send(&[fault(1)]).await.expect_err("reset");
    assert!(matches!(sent, SendError::Unavailable(_)), "{sent}");
    stand_in.behave(Behaviour::Normal);
    client.send(&[fault(1)]).await.expect("taken");
    let id = fault(1).fault_id;
    assert_eq!(stand_in.ledger().of(&id), [("occur", Effect::Added), ("occur", Effect::Repeated)]);
}

#[tokio::test]
async fn client_survives_a_restart_of_the_server() {
    let mut stand_in = start().await;
    let client = client(&stand_in, DEADLINE);
    client.send(&[fault(1)]).await.expect("taken");
    stand_in.stop().await;
    let sent = client.send(&[fault(2)]).await.expect_err("nobody listens");
    assert!(matches!(sent, SendError::Unavailable(_)), "{sent}");
    stand_in.start_again().await.expect("it listens");
    client.send(&[fault(2)]).await.expect("taken");
    assert_eq!(stand_in.ledger().kills.len(), 3, "the standing fault killed again");
}

#[tokio::test]
async fn uses_one_connection_at_a_time_and_none_when_idle() {
    let stand_in = start().await;
    let client = Arc::new(client(&stand_in, DEADLINE));
    let sends = (0..20).map(|i| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { client.send(&[fault(i)]).await })
    });
    for send in sends.collect::<Vec<_>>() {
        send.await.expect("no panic").expect("taken");
    }
    closed(&stand_in).await;
    let count = stand_in.connections();
    assert_eq!(count.accepted, 20, "one a batch");
    // The last may be closing while the next one comes.
    assert!(count.most <= 2, "{count:?}");
}

#[tokio::test]
async fn reports_process_faults() {
    let stand_in = start().await;
    let client = client(&stand_in, SHORT);
    let report = async |job| client.report_process_fault(job, &[3, 11], Cause::Other).await;
    assert!(matches!(report("uid-1").await, Err(ReportError::UnknownJob(_))));
    stand_in.with(|core, _| core.register("uid-1"));
    assert_eq!(report("uid-1").await, Ok(()));
    let ranks = &stand_in.ledger().reported[0].ranks;
    assert_eq!(ranks, &[("3".to_owned(), "1".to_owned()), ("11".to_owned(), "1".to_owned())]);
    assert_eq!(client.report_process_fault("uid-1", &[], Cause::Other).await, Err(ReportError::NoRanks));
    stand_in.behave(Behaviour::Code(501));
    assert!(matches!(report("uid-1").await, Err(ReportError::Refused { code: 501, .. })));
    stand_in.behave(Behaviour::Hang);
    assert!(matches!(report("uid-1").await, Err(ReportError::Unavailable(_))));
}

/// A naive client that holds a connection per node and pings it.
#[tokio::test]
async fn closes_connections_with_frequent_pings() {
    let stand_in = start().await;
    let endpoint = Endpoint::from_shared(stand_in.url()).expect("an address");
    let endpoint = endpoint
        .http2_keep_alive_interval(Duration::from_millis(50))
        .keep_alive_timeout(DEADLINE)
        .keep_alive_while_idle(true);
    let _channel = endpoint.connect().await.expect("connected");
    until(&stand_in, |count| count.too_many_pings == 1 && count.open == 0).await;
}

#[tokio::test]
async fn limits_connections_per_address_to_512() {
    let stand_in = start().await;
    let mut held = Vec::new();
    for _ in 0..512 {
        held.push(TcpStream::connect(stand_in.address()).await.expect("connected"));
    }
    until(&stand_in, |count| count.open == 512).await;
    let sent = client(&stand_in, DEADLINE).send(&[fault(1)]).await.expect_err("no room");
    assert!(matches!(sent, SendError::Unavailable(_)), "{sent}");
    drop(held);
    closed(&stand_in).await;
    client(&stand_in, DEADLINE).send(&[fault(1)]).await.expect("taken");
    assert_eq!(stand_in.connections().most, 512);
}

/// All methods of all clients share a thousand calls a second.
#[tokio::test]
async fn limits_calls_to_a_thousand_a_second() {
    let stand_in = start().await;
    let channel =
        Endpoint::from_shared(stand_in.url()).expect("an address").connect().await.expect("connected");
    let mut client = PubFaultClient::new(channel);
    for i in 0..1000 {
        let answer = client.send_public_fault(PublicFaultRequest::default()).await;
        assert!(answer.is_ok(), "{i}: {answer:?}");
    }
    let status = client.send_public_fault(PublicFaultRequest::default()).await.expect_err("too many");
    assert_eq!(status.code(), Code::ResourceExhausted);
    stand_in.clock().advance(Duration::from_millis(1));
    client.send_public_fault(PublicFaultRequest::default()).await.expect("a new token");
}

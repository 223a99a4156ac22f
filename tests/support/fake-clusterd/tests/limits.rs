//! The fake ClusterD has the limits of the real one, on which naive clients fail.

use std::collections::HashMap;
use std::fs;

use swansong_clusterd::customization::BUILT_IN;
use swansong_clusterd_client::proto::{Fault, PubFaultInfo, PublicFaultRequest, RespStatus};
use swansong_fake_clusterd::whitelist::Customization;
use swansong_fake_clusterd::{Core, Effect, Settings};

const NOW: u64 = 1_756_000_000_000;
const SECOND: u64 = 1000;

fn fault(id: &str, assertion: &str) -> Fault {
    Fault {
        fault_id: id.to_owned(),
        fault_type: "NPU".to_owned(),
        fault_code: "020011001".to_owned(),
        fault_time: 1_756_000_000_000,
        assertion: assertion.to_owned(),
        fault_location: HashMap::new(),
        influence: vec![PubFaultInfo {
            node_name: "worker-1".to_owned(),
            node_sn: String::new(),
            device_ids: vec![3],
        }],
        description: "gone".to_owned(),
    }
}

fn message(faults: Vec<Fault>) -> PublicFaultRequest {
    PublicFaultRequest {
        id: "message-1".to_owned(),
        timestamp: 1_756_000_000_000,
        version: "1.0".to_owned(),
        resource: "swansong".to_owned(),
        faults,
    }
}

fn core() -> Core {
    Core::new(Settings::default())
}

fn send(core: &mut Core, now: u64, faults: Vec<Fault>) -> RespStatus {
    core.send_public_fault(&message(faults), now)
}

fn is_active(core: &mut Core, now: u64, id: &str) -> bool {
    core.tick(now);
    core.statistic()["PublicFaults"].contains(id)
}

#[test]
fn invalid_message_gets_409() {
    type Change = fn(&mut PublicFaultRequest);
    let cases: [(Change, &str); 7] = [
        (|m| m.id = "short".to_owned(), "invalid id"),
        (|m| m.id = "with/slash".to_owned(), "invalid id"),
        (|m| m.version = "2.0".to_owned(), "invalid version"),
        (|m| m.timestamp /= 1000, "invalid timestamp"),
        (|m| m.timestamp = 1_700_000_000_000, "invalid timestamp"),
        (|m| m.faults.clear(), "invalid faults length"),
        (|m| m.faults = vec![m.faults[0].clone(); 101], "invalid faults length"),
    ];
    for (change, text) in cases {
        let mut message = message(vec![fault("fault-0001", "occur")]);
        change(&mut message);
        let answer = core().send_public_fault(&message, NOW);
        assert_eq!(answer.code, 409, "{answer:?}");
        assert!(answer.info.contains(text), "{answer:?}");
    }
}

#[test]
fn drops_invalid_faults_and_answers_409_if_all_are() {
    type Change = fn(&mut Fault);
    let cases: [(Change, &str); 22] = [
        (|f| f.fault_id = "seven77".to_owned(), "fault id"),
        (|f| f.fault_id = "with:colon".to_owned(), "fault id"),
        (|f| f.fault_type = "npu".to_owned(), "fault type"),
        (|f| f.fault_code = "02001100".to_owned(), "fault code"),
        (|f| f.fault_code = "029911001".to_owned(), "not exist in the configuration file"),
        (|f| f.fault_time /= 1000, "fault time"),
        (|f| f.fault_time = 1_700_000_000_000, "fault time"),
        (|f| f.assertion = "Occur".to_owned(), "assertion"),
        (|f| f.fault_location = (0..11).map(|i| (i.to_string(), String::new())).collect(), "location"),
        (|f| f.fault_location = HashMap::from([("k".repeat(17), String::new())]), "location"),
        (|f| f.fault_location = HashMap::from([("k".to_owned(), "v".repeat(129))]), "location"),
        (|f| f.influence.clear(), "influence length"),
        (|f| f.influence[0].node_name = "Worker-1".to_owned(), "node name"),
        (|f| f.influence[0].node_sn = "unknown".to_owned(), ""),
        (|f| f.influence[0].device_ids = vec![32], "device id"),
        (|f| f.influence[0].device_ids = vec![-1], "device id"),
        (|f| f.influence[0].device_ids = vec![], "device id length"),
        (|f| f.influence[0].device_ids = vec![1, 1], "duplicate ids"),
        (|f| f.influence[0].device_ids = (0..33).collect(), "device id length"),
        (|f| f.description = "a\nb".to_owned(), "description"),
        (|f| f.description = "d".repeat(513), "description"),
        (|f| f.influence.push(PubFaultInfo::default()), "device id length"),
    ];
    for (change, why) in cases {
        let mut bad = fault("fault-0001", "occur");
        change(&mut bad);
        // A serial number beside a name is ignored.
        if why.is_empty() {
            assert_eq!(send(&mut core(), NOW, vec![bad]).code, 0);
            continue;
        }
        assert_eq!(send(&mut core(), NOW, vec![bad.clone()]).code, 409, "{why}");
        let mut core = core();
        let answer = send(&mut core, NOW, vec![bad, fault("fault-0002", "occur")]);
        assert_eq!(answer.code, 0, "the sender isn't notified of dropped faults: {why}");
        assert_eq!((core.ledger().accepted.len(), core.ledger().dropped.len()), (1, 1), "{why}");
        assert!(core.ledger().dropped[0].why.contains(why), "{:?}: {why}", core.ledger().dropped);
    }
}

/// A naive client sends each fault in a separate message, without a rate limit.
#[test]
fn accepts_a_hundred_messages_and_one_a_second() {
    let mut core = core();
    let ids: Vec<_> = (0..130).map(|i| format!("fault-{i:04}")).collect();
    for id in &ids {
        send(&mut core, NOW, vec![fault(id, "occur")]);
    }
    assert_eq!((core.ledger().answered(0), core.ledger().answered(410)), (100, 30));
    assert!(!is_active(&mut core, NOW, "fault-0100"), "a client that doesn't send again has lost it");
    assert_eq!(send(&mut core, NOW + SECOND, vec![fault("fault-0100", "occur")]).code, 0);
    assert_eq!(send(&mut core, NOW + SECOND, vec![fault("fault-0101", "occur")]).code, 410);
}

#[test]
fn invalid_messages_count_for_the_rate_limit() {
    let mut core = core();
    for _ in 0..100 {
        assert_eq!(send(&mut core, NOW, vec![]).code, 409);
    }
    assert_eq!(send(&mut core, NOW, vec![fault("fault-0001", "occur")]).code, 410);
}

#[test]
fn unknown_sender_gets_the_response_of_the_rate_limit() {
    let built_in = Settings { customization: Customization::Absent, ..Settings::default() };
    let mut core = Core::new(built_in);
    let unknown = send(&mut core, NOW, vec![fault("fault-0001", "occur")]);
    assert_eq!(unknown, RespStatus { code: 410, info: "limiter work by resource failed".to_owned() });
}

#[test]
fn reads_the_file_at_the_first_fault_and_at_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("publicCustomization.json");
    fs::write(&path, "{").expect("written");
    let settings = Settings { customization: Customization::File(path.clone()), ..Settings::default() };
    let mut core = Core::new(settings);
    let answer = |core: &mut Core| send(core, NOW, vec![fault("fault-0001", "occur")]).code;
    assert_eq!(answer(&mut core), 410, "a broken file leaves the built-in list");
    let ours = swansong_clusterd::customization::customize(BUILT_IN).expect("sound").text;
    fs::write(&path, &ours).expect("written");
    assert_eq!(answer(&mut core), 0);
    fs::write(&path, ours.trim_end().trim_end_matches('}')).expect("written");
    assert_eq!(answer(&mut core), 410);
    fs::write(&path, &ours).expect("written");
    for _ in 0..100 {
        assert_eq!(answer(&mut core), 0, "the bucket is full again");
    }
    assert_eq!(answer(&mut core), 410);
    fs::remove_file(&path).expect("removed");
    assert_eq!(answer(&mut core), 410);
}

#[test]
fn ignores_repeated_faults() {
    let mut core = core();
    send(&mut core, NOW, vec![fault("fault-0001", "occur")]);
    let mut grown = fault("fault-0001", "occur");
    grown.influence[0].device_ids = vec![3, 4];
    send(&mut core, NOW, vec![grown]);
    assert_eq!(core.ledger().of("fault-0001"), [("occur", Effect::Added), ("occur", Effect::Repeated)]);
    assert!(core.statistic()["PublicFaults"].contains("\"devIds\":[3]"));
    // The same id of another sender is another fault.
    let mut foreign = message(vec![fault("fault-0001", "recover")]);
    foreign.resource = "CCAE".to_owned();
    assert_eq!(core.send_public_fault(&foreign, NOW + 9 * SECOND).code, 0);
    assert!(is_active(&mut core, NOW + 60 * SECOND, "fault-0001"));
}

#[test]
fn delays_early_recoveries_and_undoes_no_kill() {
    let mut core = core();
    send(&mut core, NOW, vec![fault("fault-0001", "occur")]);
    send(&mut core, NOW + 2 * SECOND, vec![fault("fault-0001", "recover")]);
    assert_eq!(core.ledger().of("fault-0001")[1], ("recover", Effect::Deferred));
    assert!(is_active(&mut core, NOW + 4 * SECOND, "fault-0001"));
    assert!(!is_active(&mut core, NOW + 5 * SECOND, "fault-0001"));
    assert_eq!(core.ledger().kills.len(), 1);
}

#[test]
fn retries_the_recovery_of_an_unknown_fault() {
    // The recovery arrives before its fault.
    let mut core = core();
    send(&mut core, NOW, vec![fault("fault-0001", "recover")]);
    send(&mut core, NOW + SECOND, vec![fault("fault-0001", "occur")]);
    assert!(is_active(&mut core, NOW + 4 * SECOND, "fault-0001"));
    assert!(!is_active(&mut core, NOW + 5 * SECOND, "fault-0001"));
    // A recovery that arrives more than five seconds early has no effect.
    send(&mut core, NOW + 10 * SECOND, vec![fault("fault-0002", "recover")]);
    core.tick(NOW + 16 * SECOND);
    send(&mut core, NOW + 16 * SECOND, vec![fault("fault-0002", "occur")]);
    assert!(is_active(&mut core, NOW + 3600 * SECOND, "fault-0002"));
}

#[test]
fn once_ends_after_five_seconds_and_kills() {
    let mut core = core();
    send(&mut core, NOW, vec![fault("fault-0001", "once")]);
    assert!(is_active(&mut core, NOW + 4 * SECOND, "fault-0001"));
    assert!(!is_active(&mut core, NOW + 5 * SECOND, "fault-0001"));
    assert_eq!(core.ledger().kills.len(), 1);
}

/// A naive client leaves the node's name empty when it doesn't know it.
#[test]
fn fault_without_a_node_hits_another_node() {
    let mut core = core();
    let mut nameless = fault("fault-0001", "occur");
    nameless.influence[0].node_name.clear();
    assert_eq!(send(&mut core, NOW, vec![nameless]).code, 0);
    assert_eq!(core.ledger().misdirected.len(), 1);
    assert_eq!(core.ledger().kills[0].node, "some-other-node");
}

/// A naive client doesn't withdraw the fault after the dump.
#[test]
fn active_faults_kill_again_after_a_restart() {
    let mut core = core();
    send(&mut core, NOW, vec![fault("fault-0001", "occur"), fault("fault-0002", "occur")]);
    assert_eq!(core.ledger().kills.len(), 1, "the same device is handled once");
    core.restart(NOW + 60 * SECOND);
    assert!(is_active(&mut core, NOW + 60 * SECOND, "fault-0001"));
    assert_eq!(core.ledger().kills.len(), 2);
}

#[test]
fn restart_loses_delayed_recoveries() {
    let mut core = core();
    send(&mut core, NOW, vec![fault("fault-0001", "occur")]);
    send(&mut core, NOW + SECOND, vec![fault("fault-0001", "recover")]);
    core.restart(NOW + 2 * SECOND);
    assert!(is_active(&mut core, NOW + 3600 * SECOND, "fault-0001"), "it has to be sent again");
}

#[test]
fn answers_0_for_unknown_nodes_and_does_nothing() {
    let settings = Settings { nodes: Some(["worker-9".to_owned()].into()), ..Settings::default() };
    let mut core = Core::new(settings);
    assert_eq!(send(&mut core, NOW, vec![fault("fault-0001", "occur")]).code, 0);
    assert_eq!(core.ledger().kills, []);
}

#[test]
fn answers_0_and_drops_faults_beyond_fifty_thousand() {
    let mut core = core();
    let batch = |i: u32| (0..100).map(|j| fault(&format!("fault-{:06}", i * 100 + j), "occur")).collect();
    for i in 0..500 {
        assert_eq!(send(&mut core, NOW + u64::from(i) * SECOND, batch(i)).code, 0);
    }
    assert!(core.ledger().accepted.iter().all(|accepted| accepted.effect == Effect::Added));
    assert_eq!(send(&mut core, NOW + 1000 * SECOND, vec![fault("fault-more", "occur")]).code, 0);
    assert_eq!(core.ledger().of("fault-more"), [("occur", Effect::Full)]);
    assert!(core.statistic().contains_key("Description"), "the statistic says that it isn't complete");
}

#[test]
fn reader_parses_the_statistic() {
    let mut core = core();
    send(&mut core, NOW, vec![fault("fault-0001", "occur")]);
    let data = core.statistic();
    let read = |node| {
        let faults = data.get("PublicFaults").map(String::as_str);
        let found = swansong_clusterd::statistic::node_faults(faults, None, node).expect("a statistic");
        found.faults.into_iter().map(|fault| fault.id).collect::<Vec<_>>()
    };
    assert_eq!(read("worker-1"), ["fault-0001"]);
    assert!(read("worker-2").is_empty());
}

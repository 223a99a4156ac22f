use std::time::Duration;

use swansong_fault_model::{DurationRule, FrequencyRule, Level, Rules};

use super::*;
use swansong_faults::LevelSettings;

use crate::checks::{ClusterdSettings, DriverSettings, Family, Trust, pci_ids};
use crate::finding::CheckName;

#[test]
fn an_empty_file_is_the_default() {
    for text in ["", "# all comments\n", "{}", "driver:\nclusterd:\nnpuSmi:\npreload:\n  # grace: 1m\n"] {
        assert_eq!(Config::parse(text), Ok(Config::default()), "{text:?}");
    }
}

#[test]
fn parses_every_key() {
    let config = Config::parse(
        r#"
family: a3
pciIds: {"0xd807": A5}
npus: 16
driver:
  path: /opt/Ascend/driver/
  minimumVersion: 25.5.rc1
  libraries: [libdcmi.so, liblingqu-dcmi.so]
  libraryFolders: [/opt/dcmi]
  trust: anyone
npuSmi: [/opt/bin/npu-smi]
hostLibraries: {libmspti: /cann/libmspti.so, libtaskd: /t/libtaskd.so}
paths: [/etc/hccn.conf]
ports: [9601]
clusterd: {dial: false, address: "10.0.0.1:8899", timeout: 500ms, interval: 2m}
clock: {maxSkew: 1m}
preload: {grace: 2m, interval: 1m}
advisory: [ports, clock]
interval: 2s
readiness: {failAfter: 0s, recoverAfter: 5s, unknownAfter: 1m, heartbeat: 20m, taint: true}
faults:
  classification: {file: /etc/swansong/faultCode.json}
  rules:
    fromCluster: true
    frequency:
      - {codes: ["80E01801", 80C98000], times: 2, window: 24h, level: ManuallySeparateNPU, release: 48h}
    duration:
      - {codes: ["81078603"], after: 20s, recover: 1m, level: PreSeparateNPU}
  devices: {interval: 2s}
"#,
    )
    .expect("valid");
    let mut pci_ids = pci_ids();
    pci_ids.insert(0xd807, Family::A5);
    let mut rules = Rules::default();
    let day = Duration::from_hours(24);
    let twice = FrequencyRule::new(2, day, Level::ManuallySeparateNPU, Some(day * 2)).expect("valid");
    for code in ["80E01801", "80C98000"] {
        assert!(rules.add_frequency_rule(code.parse().expect("a code"), twice));
    }
    let lasting = DurationRule::new(Duration::from_secs(20), Duration::from_mins(1), Level::PreSeparateNPU);
    assert!(rules.add_duration_rule("81078603".parse().expect("a code"), lasting.expect("valid")));
    let checks = checks::Settings {
        family: Some(Family::A3),
        pci_ids,
        npus: Some(16),
        driver: DriverSettings {
            path: Some("/opt/Ascend/driver".to_owned()),
            minimum_version: Some("25.5.RC1".parse().expect("a version")),
            libraries: vec!["libdcmi.so".to_owned(), "liblingqu-dcmi.so".to_owned()],
            library_folders: vec!["/opt/dcmi".to_owned()],
            trust: Trust::Anyone,
        },
        npu_smi: vec!["/opt/bin/npu-smi".to_owned()],
        host_libmspti: Some("/cann/libmspti.so".to_owned()),
        host_libtaskd: Some("/t/libtaskd.so".to_owned()),
        paths: vec!["/etc/hccn.conf".to_owned()],
        ports: vec![9601],
        clusterd: ClusterdSettings {
            dial: false,
            address: "10.0.0.1:8899".to_owned(),
            timeout: Duration::from_millis(500),
            interval: Duration::from_mins(2),
        },
        max_skew: Duration::from_mins(1),
        advisory: vec![CheckName::Ports, CheckName::Clock],
        interval: Duration::from_secs(2),
    };
    let expected = Config {
        checks,
        preload: preload::Settings { grace: Duration::from_mins(2), interval: Duration::from_mins(1) },
        readiness: readiness::Settings {
            fail_after: Duration::ZERO,
            recover_after: Duration::from_secs(5),
            unknown_after: Duration::from_mins(1),
            heartbeat: Duration::from_mins(20),
            taint: true,
        },
        faults: FaultSettings {
            levels: LevelSettings {
                file: Some("/etc/swansong/faultCode.json".into()),
                rules,
                rules_from_cluster: true,
            },
            device_interval: Duration::from_secs(2),
            ..FaultSettings::default()
        },
    };
    assert_eq!(config, expected);
}

/// Text, line of the problem, parts of its message.
const INVALID: &[(&str, u64, &[&str])] = &[
    ("famly: A2", 1, &["famly", "no key", "family"]),
    ("\nfamily: H100", 2, &["family: \"H100\"", "910A, A2, A3"]),
    ("driver:\n  path: relative", 2, &["driver.path", "absolute"]),
    ("driver:\n  path: /a/../b", 2, &["driver.path", "without `..`"]),
    ("driver:\n  minimumVersion: newest", 2, &["driver.minimumVersion", "24.1.rc1"]),
    ("driver:\n  libraries:\n    - /a/b.so", 3, &["driver.libraries[0]", "without folders"]),
    ("driver:\n  trust: user", 2, &["driver.trust"]),
    ("driver:\n  colour: red", 2, &["driver.colour", "minimumVersion"]),
    ("npus: 0", 1, &["npus: 0", "from 1"]),
    ("npus: eight", 1, &["npus"]),
    ("npus: 99999999999", 1, &["npus", "1024"]),
    ("pciIds: {d80: A2}", 1, &["pciIds.d80", "four hexadecimal digits"]),
    ("pciIds: {d804: A9}", 1, &["pciIds.d804", "\"A9\""]),
    ("ports: [0]", 1, &["ports[0]", "65535"]),
    ("paths:\n- /a\n- b", 3, &["paths[1]"]),
    ("npuSmi: [npu-smi]", 1, &["npuSmi[0]"]),
    ("clusterd: {address: \"http://x:1\"}", 1, &["clusterd.address", "host:port"]),
    ("clusterd: {address: x}", 1, &["clusterd.address"]),
    ("clusterd: {timeout: 0s}", 1, &["clusterd.timeout"]),
    ("clock: {maxSkew: soon}", 1, &["clock.maxSkew", "30s"]),
    ("advisory: [clusterD]", 1, &["advisory[0]", "driver-libs"]),
    ("interval: 0s", 1, &["interval"]),
    ("interval: 1ns", 1, &["interval: 1ns is too short", "100ms or more"]),
    ("clusterd: {interval: 999ms}", 1, &["clusterd.interval", "1s or more"]),
    ("preload: {interval: 99ms}", 1, &["preload.interval", "100ms or more"]),
    ("readiness: {heartbeat: 1s}", 1, &["readiness.heartbeat", "1m or more"]),
    ("faults: {gateway: {address: gateway}}", 1, &["faults.gateway.address", "HOST:PORT"]),
    ("faults:\n gateway:\n  tokenFile: /t", 3, &["faults.gateway", "HOST:PORT"]),
    ("readiness: {taint: maybe}", 1, &["readiness.taint"]),
    ("readiness: {failAfter: x}", 1, &["readiness.failAfter"]),
    ("preload: {grace: 1d}", 1, &["preload.grace"]),
    ("faults: {classification: {file: x.json}}", 1, &["faults.classification.file", "absolute"]),
    ("faults: {devices: {interval: 1ms}}", 1, &["faults.devices.interval", "100ms or more"]),
    ("faults: {rules: {fromCluster: maybe}}", 1, &["faults.rules.fromCluster"]),
    ("faults:\n  rules:\n    frequency:\n      - {times: 2}", 4, &["faults.rules.frequency[0]", "codes"]),
    (
        "faults:\n  rules:\n    frequency:\n      - {codes: [x], times: 2, window: 1h, level: SeparateNPU}",
        4,
        &["faults.rules.frequency[0].codes[0]", "`x` is no fault code"],
    ),
    (
        "faults: {rules: {frequency: [{codes: [a], times: 0, window: 1h, level: SeparateNPU}]}}",
        1,
        &["faults.rules.frequency[0]", "from 1 to 100"],
    ),
    (
        "faults: {rules: {frequency: [{codes: [a], times: 1, window: soon, level: SeparateNPU}]}}",
        1,
        &["faults.rules.frequency[0].window", "24h"],
    ),
    (
        "faults: {rules: {frequency: [{codes: [a], times: 1, window: 1h, level: Separate}]}}",
        1,
        &["faults.rules.frequency[0].level", "\"Separate\"", "SeparateNPU"],
    ),
    (
        "faults: {rules: {duration: [{codes: [a], after: 20m, level: SeparateNPU}]}}",
        1,
        &["faults.rules.duration[0]", "0 to 600 seconds"],
    ),
    (
        "faults: {rules: {duration: [{codes: [a, \"0A\"], after: 1s, level: SeparateNPU}]}}",
        1,
        &["faults.rules.duration[0].codes", "0A has such a rule already"],
    ),
    ("npus: 8\nnpus: 16", 2, &["npus", "twice"]),
    ("npus: 8\n---\nnpus: 8", 3, &["second document"]),
    ("[", 1, &[]),
];

#[test]
fn problems_name_position_and_key() {
    for (text, line, needles) in INVALID {
        let faults = Config::parse(text).expect_err(text);
        let fault = faults.iter().next().expect("never empty");
        let message = fault.to_string();
        assert_eq!(fault.position.map(|(line, _)| line), Some(*line), "{text:?}: {message}");
        for needle in *needles {
            assert!(message.contains(needle), "{text:?}: {message:?} lacks {needle:?}");
        }
    }
}

#[test]
fn the_shortest_intervals_are_valid() {
    let shortest =
        "{interval: 100ms, clusterd: {interval: 1s}, preload: {interval: 100ms}, readiness: {heartbeat: 1m}}";
    let config = Config::parse(shortest).expect("valid");
    assert_eq!(
        (config.checks.interval, config.checks.clusterd.interval),
        (Duration::from_millis(100), Duration::from_secs(1))
    );
    assert_eq!(
        (config.preload.interval, config.readiness.heartbeat),
        (Duration::from_millis(100), Duration::from_mins(1))
    );
}

#[test]
fn all_problems_are_reported() {
    let faults = Config::parse("npus: 0\nfamily: x\nports: [0, -1]").expect_err("invalid");
    assert_eq!(faults.iter().count(), 4, "{faults}");
}

#[test]
fn errors_name_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("agent.yaml");
    let missing = Config::load(&path).expect_err("missing").to_string();
    assert!(missing.contains("agent.yaml can't be read"), "{missing}");
    std::fs::write(&path, "x: 1").expect("written");
    let invalid = Config::load(&path).expect_err("invalid").to_string();
    assert!(invalid.contains("agent.yaml: line 1, column 1: x: "), "{invalid}");
    std::fs::write(&path, "npus: 8").expect("written");
    assert_eq!(Config::load(&path).expect("valid").checks.npus, Some(8));
}

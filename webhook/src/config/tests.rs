use super::*;
use swansong_inject::policy::{
    DumpPolicy, ImageRule, LIBMSPTI, NamedPort, NodeReadiness, PreloadOrder, PreloadValueFrom,
};
use swansong_runtime::config::{ConfigEvent, ConfigWatcher};

#[test]
fn nothing_written_is_the_default() {
    for text in ["", "# all comments\n", "{}", "libraries:\nports:\nenv:\npreload:\n  # order: last\n"] {
        assert_eq!(Config::parse(text), Ok(Config::default()), "{text:?}");
    }
}

#[test]
fn everything_written() {
    let config = Config::parse(
        r#"
libraries:
  libtaskd: /opt/libtaskd.so
  images:
    - match: "*mindspore*"
      libtaskd: /ms/libtaskd.so
    - { match: "*", libmspti: /m.so }
preload: { order: last, valueFrom: skip, keepFirst: [libhook.so*] }
ports:
  ttp: { name: ttp, port: 8001 }
env:
  Z_LAST: "1"
  A_FIRST: on
torchrunDefaults: true
strategies: [dump, exit]
nodeReadiness: prefer
dump: { launcherHook: false, launcherPatch: true, saveLimitSeconds: 0, saveLimitSecondsWithOtherStrategies: 600 }
strictness: deny
"#,
    )
    .expect("sound");
    assert_eq!(config.strictness(), Strictness::Deny);
    let policy = config.policy();
    assert_eq!(policy.libraries.libmspti, LIBMSPTI);
    assert_eq!(policy.libraries.libtaskd, "/opt/libtaskd.so");
    assert_eq!(
        policy.image_rules,
        [
            ImageRule {
                pattern: "*mindspore*".to_owned(),
                libmspti: None,
                libtaskd: Some("/ms/libtaskd.so".to_owned()),
                discover: None,
            },
            ImageRule {
                pattern: "*".to_owned(),
                libmspti: Some("/m.so".to_owned()),
                libtaskd: None,
                discover: None
            },
        ]
    );
    assert_eq!(policy.preload_order, PreloadOrder::Last);
    assert_eq!(policy.preload_keep_first, ["libhook.so*"]);
    assert_eq!(policy.preload_value_from, PreloadValueFrom::Skip);
    assert_eq!(policy.ttp_port, NamedPort { name: "ttp".to_owned(), port: 8001 });
    assert_eq!(policy.taskd_port, Policy::default().taskd_port);
    assert_eq!(policy.triggers, ["dump", "exit"]);
    assert_eq!(policy.node_readiness, NodeReadiness::Prefer);
    let dump = DumpPolicy {
        launcher_hook: false,
        launcher_patch: true,
        save_limit: None,
        save_limit_with_other_strategies: Some(600),
    };
    assert_eq!(policy.dump, dump);
    let env: Vec<(&str, &str)> =
        policy.extra_env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        env,
        [("Z_LAST", "1"), ("A_FIRST", "on"), ("PET_MAX_RESTARTS", "32767"), ("PET_MONITOR_INTERVAL", "10")]
    );
}

#[test]
fn a_value_of_env_outweighs_the_torchrun_default() {
    let config = Config::parse("torchrunDefaults: true\nenv: { PET_MAX_RESTARTS: 3 }\n").expect("sound");
    let names: Vec<_> =
        config.policy().extra_env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(names, ["PET_MAX_RESTARTS=3", "PET_MONITOR_INTERVAL=10"]);
}

#[test]
fn zero_touch_is_the_default_of_four_settings() {
    let settings = |text: &str, namespace: &str| {
        let config = Config::parse(text).expect(text);
        let policy = config.policy().for_namespace(namespace).clone();
        let has_defaults = policy.extra_env.iter().any(|(name, _)| name == "PET_MAX_RESTARTS");
        [policy.discover_libraries, policy.dump.launcher_patch, has_defaults, policy.manager.sidecar]
    };
    for (text, namespace, expected) in [
        ("", "a", [false; 4]),
        ("zeroTouch: true", "a", [true; 4]),
        ("zeroTouch: true\nlibraries: {discover: false}", "a", [false, true, true, true]),
        (
            "zeroTouch: true\ndump: {launcherPatch: false}\ntorchrunDefaults: false",
            "a",
            [true, false, false, true],
        ),
        ("zeroTouch: true\nmanager: {sidecar: false}", "a", [true, true, true, false]),
        ("manager: {sidecar: true}", "a", [false, false, false, true]),
        ("zeroTouchNamespaces: [team-*]", "team-a", [true; 4]),
        ("zeroTouchNamespaces: [team-*]\nlibraries: {discover: false}", "team-a", [false, true, true, true]),
        ("zeroTouchNamespaces: [team-*]", "a", [false; 4]),
        ("zeroTouchNamespaces: [team-*]\ntorchrunDefaults: true", "a", [false, false, true, false]),
    ] {
        assert_eq!(settings(text, namespace), expected, "{text} in {namespace}");
    }
    let limits = Config::parse("zeroTouchNamespaces: [x]\nmanager: {cpu: 500m, memory: 2Gi}").expect("sound");
    let manager = &limits.policy().for_namespace("x").manager;
    assert_eq!((manager.cpu.as_str(), manager.memory.as_str()), ("500m", "2Gi"));
}

/// YAML 1.1 would read a bare `off` as false.
#[test]
fn off_needs_no_quotes() {
    for (text, expected) in [
        ("nodeReadiness: off", NodeReadiness::Off),
        ("nodeReadiness: \"off\"", NodeReadiness::Off),
        ("nodeReadiness:", NodeReadiness::Off),
        ("nodeReadiness: require", NodeReadiness::Require),
    ] {
        assert_eq!(Config::parse(text).expect(text).policy().node_readiness, expected, "{text}");
    }
}

/// Text, line of the fault, what its message must hold.
const FAULTY: &[(&str, u64, &[&str])] = &[
    ("librarys: {}\n", 1, &["librarys", "libraries"]),
    ("ports:\n  ttp:\n    nam: x\n", 3, &["ports.ttp.nam: ", "name, port"]),
    ("libraries:\n  images:\n  - match: x\n    libtask: /a\n", 4, &["libraries.images[0].libtask: "]),
    ("manager:\n  cpu: many\n", 2, &["manager.cpu", "quantity"]),
    ("resetConfig:\n  mount: pvc\n", 2, &["pvc", "configMap"]),
    ("zeroTouch: true\nzeroTouchNamespaces: [a]\n", 2, &["zeroTouchNamespaces", "everywhere"]),
    ("preload: { order: middle }\n", 1, &["middle", "first"]),
    ("preload:\n  valueFrom: drop\n", 2, &["drop", "reference"]),
    ("strictness: fail\n", 1, &["fail", "warn"]),
    ("nodeReadiness: always\n", 1, &["always", "prefer", "require"]),
    ("torchrunDefaults: maybe\n", 1, &["true or false"]),
    ("ports: [1]\n", 1, &["mapping"]),
    ("a: b: c\n", 1, &[]),
    ("env: {A: 1, A: 2}\n", 1, &["env: has the key A twice"]),
    ("strictness: warn\nstrictness: warn\n", 2, &["key strictness twice"]),
    ("---\n{}\n---\n{}\n", 4, &["second document"]),
    ("ports:\n  ttp:\n    name: sixteen-letters-\n", 3, &["ports.ttp.name", "16"]),
    ("ports:\n  ttp:\n    name: abcdefghijklmnop\n", 3, &["ports.ttp.name", "16 characters, 15"]),
    ("ports: { taskd: { name: Taskd } }\n", 1, &["ports.taskd.name", "lower-case"]),
    ("ports: { taskd: { name: '9601' } }\n", 1, &["ports.taskd.name", "letter"]),
    ("ports: { taskd: { name: a--b } }\n", 1, &["ports.taskd.name", "hyphens"]),
    ("ports: { taskd: { name: '' } }\n", 1, &["ports.taskd.name"]),
    ("ports:\n  ttp:\n    port: 0\n", 3, &["ports.ttp.port", "1 to 65535"]),
    ("ports:\n  ttp:\n    port: 70000\n", 3, &["ports.ttp.port", "70000"]),
    ("ports:\n  ttp:\n    port: 9601\n", 3, &["ports", "9601"]),
    ("ports:\n  ttp: { name: x }\n  taskd: { name: x }\n", 3, &["one name"]),
    ("libraries:\n  libmspti: lib.so\n", 2, &["libraries.libmspti", "absolute"]),
    ("libraries:\n  libtaskd: '/a b.so'\n", 2, &["libraries.libtaskd", "white space"]),
    ("libraries:\n  images:\n  - libtaskd: /a.so\n", 3, &["images[0].match", "missing"]),
    ("libraries:\n  images:\n  - match: ''\n    libtaskd: /a.so\n", 3, &["images[0].match", "empty"]),
    ("libraries:\n  images:\n  - match: x\n", 3, &["images[0]", "sets nothing"]),
    ("libraries:\n  images:\n  - match: x\n    libtaskd: $A\n", 4, &["images[0].libtaskd"]),
    ("env:\n  A: '1'\n  RANK: '0'\n", 3, &["env.RANK", "ascend-operator"]),
    ("env: { ELASTIC_X: '1' }\n", 1, &["env.ELASTIC_X", "ascend-operator"]),
    ("env: { MS_ROLE: '1' }\n", 1, &["env.MS_ROLE"]),
    ("env: { MASTER_ADDR: '1' }\n", 1, &["env.MASTER_ADDR"]),
    ("env: { HCCL_IF_IP: '1' }\n", 1, &["env.HCCL_IF_IP"]),
    ("env: { MINDX_A: '1' }\n", 1, &["env.MINDX_A"]),
    ("env: { LD_PRELOAD: /a.so }\n", 1, &["env.LD_PRELOAD", "Swansong"]),
    ("env: { POD_IP: a }\n", 1, &["env.POD_IP", "Swansong"]),
    ("env: { 1A: a }\n", 1, &["env.1A", "name"]),
    ("env: { 'A=B': a }\n", 1, &["env.A=B", "name"]),
    ("ports: { ttp: { port: x } }\n", 1, &["ports.ttp.port: "]),
    ("env: [A]\n", 1, &["mapping"]),
    ("dump: { saveLimitSeconds: 29 }\n", 1, &["dump.saveLimitSeconds", "30 to 1800"]),
    ("dump:\n  saveLimitSecondsWithOtherStrategies: 70000\n", 2, &["70000"]),
    ("dump: { launcherhook: false }\n", 1, &["launcherHook"]),
    ("env: { TTP_NORMAL_ACTION_TIME_LIMIT: '600' }\n", 1, &["dump"]),
    ("strategies: []\n", 1, &["strategies", "empty"]),
    ("strategies:\n- dump\n- dmp\n", 3, &["strategies[1]", "dmp", "recover-in-place"]),
];

#[test]
fn faults_name_place_and_key() {
    for (text, line, needles) in FAULTY {
        let faults = Config::parse(text).expect_err(text);
        let message = faults.to_string();
        let fault = faults.iter().next().expect("never empty");
        assert_eq!(fault.position.map(|(line, _)| line), Some(*line), "{text:?}: {message}");
        for needle in *needles {
            assert!(message.contains(needle), "{text:?}: {message:?} lacks {needle:?}");
        }
    }
}

#[test]
fn neighbours_of_reserved_names_are_free() {
    for name in ["RANKS", "MS", "MASTER", "ELASTIC", "WORLD_SIZE_2", "POD_IP_2", "PET_MAX_RESTARTS", "a.b-c"]
    {
        assert!(Config::parse(&format!("env: {{ {name}: '1' }}\n")).is_ok(), "{name}");
    }
}

#[test]
fn reports_all_problems_at_once() {
    let text = "ports: { ttp: { port: 0 } }\nstrategies: [x]\nlibraries: { libmspti: x }\nstrictnes: warn\ndump: { launcherHook: 1 }\n";
    assert_eq!(Config::parse(text).expect_err("faulty").iter().count(), 5);
}

#[test]
fn the_error_of_a_file_names_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.yaml");
    let error = Config::load(&path).expect_err("missing");
    assert!(error.to_string().contains("config.yaml can't be read"), "{error}");
    std::fs::write(&path, "x: 1\n").expect("written");
    let error = Config::load(&path).expect_err("unknown key");
    assert!(error.to_string().contains("config.yaml: line 1, column 1: x: "), "{error}");
    std::fs::write(&path, vec![b'#'; 1 << 21]).expect("written");
    assert!(Config::load(&path).expect_err("large").to_string().contains("1 MiB"));
}

#[test]
fn the_last_good_configuration_stays_in_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.yaml");
    let write = |text: &str| std::fs::write(&path, text).expect("written");
    write("strictness: deny\n");
    let mut watcher = ConfigWatcher::start(&path, Config::parse).expect("sound");
    let current = watcher.subscribe();
    assert_eq!(current.borrow().strictness(), Strictness::Deny);
    assert_eq!(watcher.poll(), None);

    write("strictness: [\n");
    assert!(matches!(watcher.poll(), Some(ConfigEvent::Failed(_))));
    assert_eq!(watcher.poll(), None, "reported once");
    assert_eq!(current.borrow().strictness(), Strictness::Deny);

    std::fs::remove_file(&path).expect("removed");
    assert!(matches!(watcher.poll(), Some(ConfigEvent::Failed(_))), "another error is reported");
    write("strictness: deny\n");
    assert_eq!(watcher.poll(), Some(ConfigEvent::Recovered));

    write("strictness: warn\n");
    assert_eq!(watcher.poll(), Some(ConfigEvent::Reloaded));
    assert_eq!(current.borrow().strictness(), Strictness::Warn);
}

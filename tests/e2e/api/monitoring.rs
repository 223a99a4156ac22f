//! The alerts and the dashboard of `manifests/monitoring`, with Prometheus and promtool.
//!
//! `SWANSONG_PICTURE=240 cargo test -p swansong --test e2e-api monitoring::` draws docs/dashboard.svg from series of 240 s.

mod prometheus;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};
use swansong_testcluster::{Cluster, eventually};

use crate::agent::Agent;
use crate::faults::{CRITICAL, HBM, OCCUR, RECOVER, Scene};
use crate::support::{REPOSITORY, asking_pod, configuration, create, rig};
use prometheus::{Prometheus, REMEDY, target};

/// For what takes seconds unless the machine is very busy.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Metrics without series in this test: without a failure of that kind, and without a gateway.
const WITHOUT_SERIES: [&str; 5] = [
    "swansong_gateway_batches_total",
    "swansong_gateway_faults_total",
    "swansong_gateway_queued_requests",
    "swansong_gateway_requests_total",
    "swansong_tls_reload_failures_total",
];

fn monitoring(file: &str) -> std::path::PathBuf {
    Path::new(REPOSITORY).join("manifests/monitoring").join(file)
}

#[test]
fn alerts_fire_and_stay_silent_as_described() {
    let folder = tempfile::tempdir().unwrap();
    let tests = Path::new(REPOSITORY).join("tests/e2e/api/monitoring/rules.test.yaml");
    std::fs::copy(&tests, folder.path().join("rules.test.yaml")).unwrap();
    std::fs::copy(monitoring("rules.yaml"), folder.path().join("rules.yaml")).unwrap();
    let command = Command::new("promtool")
        .args(["test", "rules", "rules.test.yaml"])
        .current_dir(folder.path())
        .output();
    let output = command.expect(REMEDY);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // Each alert fires in one test and doesn't in another.
    let tests: Value = serde_saphyr::from_str(&std::fs::read_to_string(tests).unwrap()).unwrap();
    let rules: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(monitoring("rules.yaml")).unwrap()).unwrap();
    let cases = tests["tests"].as_array().unwrap().iter();
    let cases: Vec<&Value> = cases.flat_map(|test| test["alert_rule_test"].as_array().unwrap()).collect();
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let own = || cases.iter().filter(|case| case["alertname"] == rule["alert"]);
        assert!(own().any(|case| case["exp_alerts"].is_array()), "{} never fires", rule["alert"]);
        assert!(own().any(|case| case["exp_alerts"].is_null()), "{} is never silent", rule["alert"]);
    }
}

/// The names of metrics in an expression, without the suffixes of a histogram.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("swansong_") || word.starts_with("apiserver_"))
}

/// A webhook that isn't there: the API server counts the Pods of the namespace that it admits without an answer.
async fn unreachable_webhook(cluster: &Cluster, client: &Client, namespace: &str) {
    let nowhere = json!({"url": "https://127.0.0.1:9/mutate"});
    let only = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
    create(client, "", configuration(cluster, "unreachable", &nowhere, &only).await).await.unwrap();
}

/// An agent with a fault, the webhook of all tests, and their Prometheus.
struct Monitored {
    scene: Scene,
    _agent: Agent,
    prometheus: Prometheus,
    namespace: String,
}

impl Monitored {
    async fn start() -> Self {
        let scene = Scene::new("monitored").await;
        scene.reset_config().await;
        // A check that fails.
        scene.site.host.remove("/dev/davinci5");
        let agent = scene.site.start();
        let cluster = scene.site.cluster;
        let namespace = cluster.namespace("monitored").await.unwrap();
        unreachable_webhook(cluster, &scene.site.client, &namespace).await;
        cluster
            .kubectl(&["create", "serviceaccount", "prometheus", "--namespace", &namespace])
            .await
            .unwrap();
        let account = format!("--serviceaccount={namespace}:prometheus");
        cluster
            .kubectl(&["create", "clusterrole", "metrics", "--verb=get", "--non-resource-url=/metrics"])
            .await
            .unwrap();
        cluster
            .kubectl(&["create", "clusterrolebinding", "metrics", "--clusterrole=metrics", &account])
            .await
            .unwrap();
        let api = cluster.info();
        let prometheus = Prometheus::start(&json!([
            {"job_name": "swansong", "static_configs": [
                target(rig().await.health_address(), "swansong-system", "webhook-a"),
                target(agent.health_address(), "swansong-agent", &scene.site.node),
            ]},
            // Its metrics are large, and a scrape's timeout is at most its interval.
            {"job_name": "apiserver", "scrape_interval": "5s", "scheme": "https", "tls_config": {"ca_file": api.ca_certificate},
             "authorization": {"credentials": cluster.token(&namespace, "prometheus").await.unwrap()},
             "static_configs": [{"targets": [api.api_url.trim_start_matches("https://")]}]},
        ]))
        .await;
        scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
        Self { scene, _agent: agent, prometheus, namespace }
    }

    async fn create_pod(&self, number: usize) {
        let mut pod = asking_pod(&format!("pod-{number}"), &json!([{"name": "ascend", "image": "x"}]));
        if number.is_multiple_of(3) {
            pod["metadata"]["annotations"]["recover-strategy"] = json!("dump, recovr");
        }
        create(&self.scene.site.client, &self.namespace, pod).await.unwrap();
    }

    /// Alerts that are pending or firing, as `name state`.
    fn active_alerts(&self) -> BTreeSet<String> {
        let groups = self.prometheus.api("rules");
        let rules = groups["groups"].as_array().unwrap().iter();
        let rules: Vec<&Value> = rules.flat_map(|group| group["rules"].as_array().unwrap()).collect();
        assert_eq!(rules.len(), 12);
        for rule in &rules {
            assert!(rule["health"] != "err", "{rule}");
        }
        let active = rules.iter().filter(|rule| rule["state"] != "inactive");
        active
            .map(|rule| format!("{} {}", rule["name"].as_str().unwrap(), rule["state"].as_str().unwrap()))
            .collect()
    }
}

/// The expressions of alerts and panels, as Prometheus gets them.
fn expressions() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(monitoring("dashboard.json")).unwrap()).unwrap();
    let rules: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(monitoring("rules.yaml")).unwrap()).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let targets = list(&dashboard["panels"]).into_iter().flat_map(|panel| list(&panel["targets"]));
    let queries = targets.chain(list(&rules["groups"][0]["rules"]));
    queries.map(|query| query["expr"].as_str().unwrap().replace("$__rate_interval", "1m")).collect()
}

#[tokio::test]
async fn the_queries_of_the_dashboard_run() {
    let monitored = Monitored::start().await;
    let expressions = expressions();
    assert!(expressions.len() > 60, "{}", expressions.len());
    let used: BTreeSet<&str> = expressions.iter().flat_map(|expression| metrics_in(expression)).collect();
    let number = std::cell::Cell::new(0);
    eventually("each metric has series", TIMEOUT, || async {
        number.set(number.get() + 1);
        monitored.create_pod(number.get()).await;
        let names = monitored.prometheus.api("label/__name__/values");
        let names: BTreeSet<&str> = names.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let missing: Vec<&str> = used.difference(&names).copied().collect();
        if missing == WITHOUT_SERIES { Ok(()) } else { Err(format!("{missing:?}")) }
    })
    .await
    .unwrap();
    let mut empty = Vec::new();
    for expression in &expressions {
        // An error of the query fails in `query`.
        if monitored.prometheus.query(expression).is_empty()
            && !metrics_in(expression).any(|metric| WITHOUT_SERIES.contains(&metric))
        {
            empty.push(expression.as_str());
        }
    }
    // Comparisons have no result where nothing is wrong.
    assert!(
        empty.iter().all(|expression| expression.contains(['>', '<', '=']) || expression.contains("absent")),
        "{empty:#?}"
    );

    // The API server's own counter fires the alert, and the agent's missing device becomes pending.
    eventually("the alerts are active", TIMEOUT, || async {
        let active = monitored.active_alerts();
        let expected = ["SwansongAdmissionSkipped firing", "SwansongNodeNotReady pending"];
        if expected.iter().all(|alert| active.contains(*alert)) { Ok(()) } else { Err(format!("{active:?}")) }
    })
    .await
    .unwrap();
    let active = monitored.active_alerts();
    for silent in ["SwansongWebhookDown", "SwansongAgentDown", "SwansongConfigurationUnusable"] {
        assert!(!active.iter().any(|alert| alert.starts_with(silent)), "{active:?}");
    }
    draw(&monitored, number.get()).await;
}

/// Draws the picture of the documentation after some minutes of Pods and faults, if it is requested.
async fn draw(monitored: &Monitored, mut number: usize) {
    let Some(seconds) = std::env::var("SWANSONG_PICTURE").ok().and_then(|text| text.parse().ok()) else {
        return;
    };
    let start = Instant::now();
    let mut random = fastrand::Rng::with_seed(5);
    while start.elapsed() < Duration::from_secs(seconds) {
        number += 1;
        monitored.create_pod(number).await;
        let (script, host) = (&monitored.scene.script, &monitored.scene.site.host);
        match random.u8(0..60) {
            0 => {
                script.event(5, 0x8000_AAAA, CRITICAL, OCCUR, "made up");
            }
            1 => {
                script.event(5, 0x8000_AAAA, CRITICAL, RECOVER, "made up");
            }
            2 => host.device("/dev/davinci5"),
            3 => host.remove("/dev/davinci5"),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(random.u64(100..900))).await;
    }
    let picture = Command::new(monitoring("picture"))
        .args([monitored.prometheus.url(), seconds.to_string()])
        .output()
        .unwrap();
    assert!(picture.status.success(), "{}", String::from_utf8_lossy(&picture.stderr));
    std::fs::write(Path::new(REPOSITORY).join("docs/dashboard.svg"), picture.stdout).unwrap();
}

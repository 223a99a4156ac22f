//! The Helm chart: the same objects as the kustomizations, and its life on an API server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::{Value, json};
use swansong_testcluster::{Cluster, Tier, programs};

use crate::support::REPOSITORY;

/// Kustomizations with components, and the chart's values that have to install the same.
struct Choice {
    kustomizations: &'static [(&'static str, &'static [&'static str])],
    values: &'static [&'static str],
}

const NO_WEBHOOK: &str = "webhook.enabled=false";
const AGENT: &str = "agent.enabled=true";
const CHOICES: [Choice; 15] = [
    Choice { kustomizations: &[("base", &[])], values: &[] },
    Choice { kustomizations: &[("base", &["cert-manager"])], values: &["webhook.certificates=cert-manager"] },
    Choice { kustomizations: &[("base", &["strict"])], values: &["webhook.strict=true"] },
    Choice {
        kustomizations: &[("overlays/node-readiness", &[])],
        values: &["webhook.config.nodeReadiness=require"],
    },
    Choice {
        kustomizations: &[("base", &["without-reset-config"])],
        values: &["webhook.resetConfigController=false"],
    },
    Choice { kustomizations: &[("base", &["before-1.30"])], values: &["admissionPolicies=false"] },
    Choice {
        kustomizations: &[("base", &["cert-manager", "strict", "without-reset-config", "before-1.30"])],
        values: &[
            "webhook.certificates=cert-manager,webhook.strict=true",
            "webhook.resetConfigController=false,admissionPolicies=false",
        ],
    },
    Choice { kustomizations: &[("agent", &[])], values: &[NO_WEBHOOK, AGENT] },
    Choice {
        kustomizations: &[("agent", &["agent-preload-check", "agent-mindcluster"])],
        values: &[NO_WEBHOOK, AGENT, "agent.mode=preload-check,agent.nodes=workerselector"],
    },
    Choice {
        kustomizations: &[("agent", &["agent-faults"])],
        values: &[NO_WEBHOOK, AGENT, "agent.mode=faults"],
    },
    Choice {
        kustomizations: &[("agent", &["agent-faults", "agent-mindcluster"])],
        values: &[NO_WEBHOOK, AGENT, "agent.mode=faults,agent.nodes=workerselector"],
    },
    Choice {
        kustomizations: &[("agent", &["agent-faults", "agent-fast-dump"])],
        values: &[NO_WEBHOOK, AGENT, "agent.mode=fast-dump"],
    },
    Choice {
        kustomizations: &[("agent", &["agent-faults", "agent-before-1.30"])],
        values: &[NO_WEBHOOK, AGENT, "agent.mode=faults,admissionPolicies=false"],
    },
    Choice {
        kustomizations: &[("agent", &["agent-faults", "agent-fast-dump", "agent-gateway"]), ("gateway", &[])],
        values: &[NO_WEBHOOK, AGENT, "agent.mode=fast-dump,gateway.enabled=true"],
    },
    Choice {
        kustomizations: &[
            ("base", &[]),
            ("agent", &["agent-faults", "agent-gateway"]),
            ("gateway", &[]),
            ("doctor", &[]),
            ("monitoring", &[]),
        ],
        values: &[
            AGENT,
            "agent.mode=faults,gateway.enabled=true,doctor.enabled=true,monitoring.enabled=true",
        ],
    },
];

fn chart() -> PathBuf {
    Path::new(REPOSITORY).join("manifests/chart")
}

/// Runs helm with separate folders, so that a user's repositories and plugins don't matter.
fn helm(arguments: &[&str], kubeconfig: Option<&Path>) -> Output {
    static HELM: LazyLock<PathBuf> = LazyLock::new(|| programs::ensure_helm().expect("helm"));
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(&*HELM);
    command.args(arguments).env_remove("KUBECONFIG");
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, home.path());
    }
    command.envs(kubeconfig.map(|file| ("KUBECONFIG", file)));
    command.output().unwrap()
}

fn succeed(arguments: &[&str], kubeconfig: Option<&Path>) -> String {
    let output = helm(arguments, kubeconfig);
    assert!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn template(values: &[&str]) -> String {
    let chart = chart();
    let mut arguments = vec!["template", "swansong", chart.to_str().unwrap()];
    for value in values {
        arguments.extend(["--set", value]);
    }
    succeed(&arguments, None)
}

pub(crate) fn kustomize(kustomizations: &[(&str, &[&str])]) -> String {
    // Relative paths only: kustomize refuses others.
    let target = Path::new(REPOSITORY).join("target");
    std::fs::create_dir_all(&target).unwrap();
    let rendered = kustomizations.iter().map(|(base, components)| {
        let folder = tempfile::tempdir_in(&target).unwrap();
        let components = components.iter().map(|component| format!("../../manifests/components/{component}"));
        let kustomization = json!({
            "resources": [format!("../../manifests/{base}")], "components": components.collect::<Vec<_>>(),
        });
        std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
        let kubectl = programs::ensure_kubectl().expect("kubectl");
        let output = Command::new(kubectl).arg("kustomize").arg(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    });
    rendered.collect::<Vec<_>>().join("\n---\n")
}

pub(crate) fn documents(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// The objects by kind and name. Configurations are compared as data, and hashes in names of ConfigMaps are left out.
fn objects(text: &str) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    for mut object in documents(text) {
        for key in ["config.yaml", "agent.yaml"] {
            if let Some(Value::String(text)) = object.get_mut("data").and_then(|data| data.get_mut(key)) {
                let config: Option<Value> = serde_saphyr::from_str(text).unwrap();
                object["data"][key] = config.unwrap_or_else(|| json!({}));
            }
        }
        let text = object.to_string();
        let mut parts = text.split("swansong-agent-config-");
        let first = parts.next().unwrap().to_owned();
        let text = parts.fold(first, |text, part| text + "swansong-agent-config" + &part[10..]);
        let object: Value = serde_json::from_str(&text).unwrap();
        let key =
            format!("{} {}/{}", object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]);
        assert!(objects.insert(key.clone(), object).is_none(), "{key} twice");
    }
    objects
}

#[test]
fn the_chart_renders_the_objects_of_the_kustomizations() {
    for Choice { kustomizations, values } in &CHOICES {
        let (expected, actual) = (objects(&kustomize(kustomizations)), objects(&template(values)));
        let keys = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(keys(&expected), keys(&actual), "{values:?}");
        for (key, object) in &expected {
            assert_eq!(object, &actual[key], "{values:?}: {key}");
        }
    }
}

#[test]
fn lint_and_schema_find_mistakes() {
    let chart = chart();
    let chart = chart.to_str().unwrap();
    succeed(&["lint", "--strict", chart], None);
    for (mistake, message) in [
        ("webhok.replicas=3", "webhok"),
        ("webhook.certificates=acme", "certificates"),
        ("webhook.replicas=0", "replicas"),
        ("image=swansong", "image"),
        ("gateway.enabled=true", "agent"),
    ] {
        let output = helm(&["template", "swansong", chart, "--set", mistake], None);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(message), "{mistake}: {error}");
    }
}

#[test]
fn values_change_what_they_name() {
    let text = template(&[
        AGENT,
        "agent.mode=faults,gateway.enabled=true,gateway.replicas=3,webhook.replicas=4,monitoring.enabled=true",
        "image=registry.example:5000/tools/swansong:0.2.0,imagePullSecrets[0].name=registry",
        "webhook.config.torchrunDefaults=true,agent.config.npus=16,agent.nodeSelector.zone=a,monitoring.docs=https://docs.example",
        "namespaces.create=false,webhook.strict=true,webhook.resources.limits.memory=1Gi",
    ]);
    let objects = objects(&text);
    let workloads = ["Deployment", "DaemonSet"];
    let workloads = objects.values().filter(|object| workloads.contains(&object["kind"].as_str().unwrap()));
    for workload in workloads.clone() {
        let pod = &workload["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "registry.example:5000/tools/swansong:0.2.0");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
        assert_eq!(pod["nodeSelector"]["kubernetes.io/os"], "linux");
    }
    assert_eq!(workloads.count(), 3);
    let find = |kind: &str, name: &str| {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        objects.values().find(is_it).unwrap_or_else(|| panic!("{kind} {name}"))
    };
    let webhook = &find("Deployment", "swansong-webhook")["spec"];
    assert_eq!(webhook["replicas"], 4);
    assert_eq!(webhook["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"], "1Gi");
    let config = &find("ConfigMap", "swansong-config")["data"]["config.yaml"];
    assert_eq!(config, &json!({"strictness": "deny", "torchrunDefaults": true}));
    assert_eq!(find("ConfigMap", "swansong-agent-config")["data"]["agent.yaml"], json!({"npus": 16}));
    assert_eq!(find("DaemonSet", "swansong-agent")["spec"]["template"]["spec"]["nodeSelector"]["zone"], "a");
    let gateway = &find("Deployment", "swansong-gateway")["spec"];
    assert_eq!(gateway["replicas"], 3);
    assert!(gateway["template"]["spec"]["containers"][0]["args"].to_string().contains("--replicas=3"));
    let runbook = "https://docs.example/alerts.md#swansongwebhookdown";
    assert!(find("PrometheusRule", "swansong").to_string().contains(runbook));
    assert!(!objects.values().any(|object| object["kind"] == "Namespace"));
}

/// The cluster-wide objects of the kinds that the manifests contain.
async fn cluster_wide(cluster: &Cluster) -> BTreeSet<String> {
    let kinds = "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingadmissionpolicies,\
                 validatingadmissionpolicybindings,customresourcedefinitions";
    let names = cluster.kubectl(&["get", kinds, "--output", "name"]).await.unwrap();
    names.lines().map(str::to_owned).collect()
}

async fn image(cluster: &Cluster) -> String {
    let arguments = ["--namespace", "swansong-system", "get", "deployment", "swansong-webhook", "--output"];
    let path = "jsonpath={.spec.template.spec.containers[0].image} {.spec.replicas}";
    cluster.kubectl(&[&arguments[..], &[path]].concat()).await.unwrap()
}

#[tokio::test]
async fn install_upgrade_rollback_and_uninstall() {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    let before = cluster_wide(&cluster).await;
    let chart = chart();
    let run = |arguments: &[&str]| {
        let mut all: Vec<&str> = arguments.iter().flat_map(|part| part.split(' ')).collect();
        all.extend(["--namespace", "default"]);
        succeed(&all, Some(cluster.kubeconfig()))
    };
    let path = chart.to_str().unwrap();
    run(&["install swansong", path, "--set image=swansong:0.1.0"]);
    // As the webhook does.
    let bundle = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": crate::support::base64("ca".to_owned())}]);
    let command = ["patch", "mutatingwebhookconfiguration", "swansong", "--type=json", "--patch"];
    cluster.kubectl(&[&command[..], &[bundle.to_string().as_str()]].concat()).await.unwrap();

    run(&[
        "upgrade swansong",
        path,
        "--set image=swansong:0.2.0,webhook.replicas=3,webhook.strict=true,agent.enabled=true,agent.mode=fast-dump,gateway.enabled=true",
    ]);
    assert_eq!(image(&cluster).await, "swansong:0.2.0 3");
    let bundle = async || {
        let path = "jsonpath={.webhooks[0].clientConfig.caBundle} {.webhooks[0].failurePolicy}";
        cluster.kubectl(&["get", "mutatingwebhookconfiguration", "swansong", "--output", path]).await.unwrap()
    };
    assert_eq!(bundle().await, "Y2E= Fail");
    run(&["rollback swansong 1"]);
    assert_eq!(image(&cluster).await, "swansong:0.1.0 2");
    assert_eq!(bundle().await, "Y2E= Ignore");
    let agents =
        cluster.kubectl(&["get", "daemonsets", "--all-namespaces", "--output", "name"]).await.unwrap();
    assert_eq!(agents, "");

    run(&["uninstall swansong"]);
    let left: Vec<_> = cluster_wide(&cluster).await.difference(&before).cloned().collect();
    assert_eq!(left, [""; 0]);
    let secrets = cluster.kubectl(&["get", "secrets", "--all-namespaces", "--output", "name"]).await.unwrap();
    assert_eq!(secrets, "", "Helm's record and Swansong's certificate");
}

#[tokio::test]
async fn the_api_server_accepts_every_object() {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    for namespace in ["swansong-system", "swansong-agent"] {
        cluster.kubectl(&["create", "namespace", namespace]).await.unwrap();
    }
    for mode in ["check", "preload-check", "faults", "fast-dump"] {
        let mode = format!("agent.mode={mode}");
        let mut values =
            vec![AGENT, mode.as_str(), "namespaces.create=false", "webhook.config.nodeReadiness=require"];
        if mode.contains("fa") {
            values.push("gateway.enabled=true");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), template(&values)).unwrap();
        let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename"];
        cluster.kubectl(&[&apply[..], &[file.path().to_str().unwrap()]].concat()).await.unwrap();
    }
}

/// The lines of the shell blocks below a heading of docs/install.md.
fn page_commands(heading: &str) -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(REPOSITORY).join("docs/install.md")).unwrap();
    let section = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    let section = section.split("\n## ").next().unwrap().split("\n### ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

/// Runs the commands below some headings, without waiting, since the API tier runs no Pods.
async fn run_page(headings: &[&str]) {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    let tools = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(programs::ensure_helm().unwrap(), tools.path().join("helm")).unwrap();
    std::os::unix::fs::symlink(&cluster.info().kubectl, tools.path().join("kubectl")).unwrap();
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let lines = headings.iter().flat_map(|heading| page_commands(heading));
    // Without a running webhook nothing is injected, and there is no values.yaml.
    let skipped = |line: &String| line.contains("dry-run") || line.contains("--values");
    let lines: Vec<String> = lines.filter(|line| !skipped(line)).collect();
    assert!(lines.len() > headings.len(), "{lines:?}");
    for line in lines {
        let output = Command::new("bash")
            .args(["-euc", &line.replace(" --wait", "")])
            .current_dir(REPOSITORY)
            .env("PATH", &path)
            .env("HOME", tools.path())
            .env("KUBECONFIG", cluster.kubeconfig())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn commands_of_the_install_page_work() {
    run_page(&["### Helm"]).await;
    run_page(&["## In five minutes", "## Upgrade and rollback", "## Uninstall"]).await;
}

//! The Node's status after changes of the host and after kills of the agent.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use swansong_agent::checks::Family;
use swansong_demo::install;
use swansong_inject::inject;
use swansong_inject::policy::{NodeReadiness, Policy};
use swansong_inject::workload::WorkloadKind;
use swansong_testcluster::{Cluster, eventually};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::rig::{Agents, LABEL, SOON, TIMEOUT, alone, node_status};
use swansong_fixtures::host::{DRIVER, Elf, Host};

/// Without ClusterD; with the taint, which uses its permission.
const CONFIG: &str = "npus: 8\nclusterd: {dial: false}\nreadiness: {taint: true}\n";

#[tokio::test]
async fn status_changes_are_written_within_seconds() {
    let Some((_turn, cluster)) = alone().await else { return };
    let before = cluster.audit_log().unwrap().len();
    let host = host();
    let agents = Agents::start(cluster, "agent", &host.path("/"), CONFIG).await;
    agents.expect_status("True", "", SOON).await;

    let nodes = cluster.kubectl(&["get", "nodes", "-L", LABEL]).await.unwrap();
    assert!(nodes.lines().nth(1).unwrap().ends_with("true"), "{nodes}");

    host.remove("/dev/davinci1");
    agents.expect_status("False", "davinci1", SOON).await;
    described(cluster, "False", "davinci1").await;
    let job = requiring_pod(&agents).await;
    unschedulable(&job).await;
    host.device("/dev/davinci1");
    agents.expect_status("True", "", SOON).await;
    scheduled(&job, cluster.node_name().unwrap()).await;

    let library = format!("{DRIVER}/lib64/driver/libdcmi.so");
    host.folder(&library);
    agents.expect_status("False", "libdcmi.so", SOON).await;
    host.file(&library, Elf::X86.bytes());
    agents.expect_status("True", "", SOON).await;

    // An upgrade of the driver replaces its folder.
    let rename = |from: &str, to: &str| std::fs::rename(host.path(from), host.path(to)).unwrap();
    rename(DRIVER, "/usr/local/Ascend/driver.old");
    host.file(&format!("{DRIVER}/version.info"), "Version=26.0.0\n");
    agents.expect_status("False", "driver", SOON).await;
    rename(DRIVER, "/usr/local/Ascend/driver.half");
    rename("/usr/local/Ascend/driver.old", DRIVER);
    agents.expect_status("True", "", SOON).await;

    // The folder above is replaced.
    rename("/usr/local", "/usr/local.old");
    agents.expect_status("False", "", SOON).await;
    rename("/usr/local.old", "/usr/local");
    agents.expect_status("True", "", SOON).await;

    described(cluster, "True", "").await;
    agents.stop().await;
    only_what_is_granted(cluster, before);
}

#[tokio::test]
async fn a_killed_agent_leaves_no_wrong_status() {
    let Some((_turn, cluster)) = alone().await else { return };
    let host = host();
    let agents = Agents::start(cluster, "agent", &host.path("/"), CONFIG).await;
    agents.expect_status("True", "", TIMEOUT).await;

    // Without a change the status remains.
    let watch = Watch::start(&agents).await;
    agents.kill().await;
    back(&agents, 1).await;
    agents.expect_status("True", "", SOON).await;
    assert_eq!(watch.stop(), ["True/true"].map(str::to_owned).into());

    // A device disappears while no agent runs. The kubelet's restart backoff increases.
    let watch = Watch::start(&agents).await;
    agents.kill().await;
    host.remove("/dev/davinci0");
    agents.expect_status("False", "davinci0", TIMEOUT).await;
    assert_eq!(watch.stop(), ["True/true", "False/false"].map(str::to_owned).into());

    // The node is never shown as ready in between.
    back(&agents, 2).await;
    let watch = Watch::start(&agents).await;
    agents.kill().await;
    back(&agents, 3).await;
    agents.expect_status("False", "davinci0", SOON).await;
    assert_eq!(watch.stop(), ["False/false"].map(str::to_owned).into());

    host.device("/dev/davinci0");
    agents.expect_status("True", "", SOON).await;
    agents.stop().await;
}

fn host() -> Host {
    let host = Host::healthy(Family::A2);
    // The agent isn't root, and only owners can read temporary folders.
    host.mode("/", 0o755);
    host.file("/proc/sys/kernel/random/boot_id", "some-boot\n");
    host
}

/// A Pod with the affinity of `nodeReadiness: require`, which tolerates the agent's taint.
async fn requiring_pod(agents: &Agents) -> (Api<Pod>, String) {
    let namespace = agents.cluster.namespace("require").await.unwrap();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "job", "annotations": {"recover-strategy": "dump"}},
        "spec": {
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "ascend", "image": install::IMAGE, "imagePullPolicy": "Never", "args": ["--version"]}],
        },
    });
    let policy = Policy { node_readiness: NodeReadiness::Require, ..Policy::default() };
    let outcome = inject(WorkloadKind::Pod, &pod.to_string(), &policy).unwrap();
    let operations = serde_json::to_value(&outcome.operations).unwrap();
    json_patch::patch(&mut pod, &serde_json::from_value::<json_patch::Patch>(operations).unwrap()).unwrap();
    let pods: Api<Pod> = Api::namespaced(agents.client.clone(), &namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    (pods, "job".to_owned())
}

async fn unschedulable((pods, name): &(Api<Pod>, String)) {
    eventually("the scheduler finds no node", TIMEOUT, || async {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_unschedulable = conditions
            .iter()
            .filter_map(|condition| condition.message.as_deref())
            .any(|message| message.contains("affinity"));
        is_unschedulable.then_some(()).ok_or_else(|| format!("{conditions:?}"))
    })
    .await
    .unwrap();
}

async fn scheduled((pods, name): &(Api<Pod>, String), node: &str) {
    eventually("the pod is put on the node", TIMEOUT, || async {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let on = pod.spec.and_then(|spec| spec.node_name);
        (on.as_deref() == Some(node)).then_some(()).ok_or_else(|| format!("{on:?}"))
    })
    .await
    .unwrap();
}

/// Waits until the container runs again for the given time.
async fn back(agents: &Agents, restarts: i32) {
    eventually("the agent is back", TIMEOUT, || async {
        let now = agents.restarts().await?;
        (now == (restarts, true)).then_some(()).ok_or_else(|| format!("{now:?}"))
    })
    .await
    .unwrap();
}

/// Checks the output of `kubectl describe node`.
async fn described(cluster: &Cluster, status: &str, needle: &str) {
    eventually("kubectl describe node shows it", Duration::from_secs(30), || async {
        let page = cluster
            .kubectl(&["describe", "node", cluster.node_name().unwrap()])
            .await
            .map_err(|error| error.to_string())?;
        let (head, events) = page.split_once("\nEvents:").ok_or("no Events")?;
        let condition = head.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("DumpReady") && words.next() == Some(status)
        });
        let event = events.lines().any(|line| line.contains("swansong") && line.contains(needle));
        (condition && event).then_some(()).ok_or(page)
    })
    .await
    .unwrap();
}

/// All statuses that a Node shows over time.
struct Watch {
    seen: mpsc::UnboundedReceiver<String>,
    task: JoinHandle<()>,
}

impl Watch {
    async fn start(agents: &Agents) -> Self {
        let nodes: Api<Node> = Api::all(agents.client.clone());
        let name = agents.cluster.node_name().unwrap();
        let now = nodes.get(name).await.unwrap();
        let version = now.metadata.resource_version.clone().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        sender.send(short(&node_status(&now))).unwrap();
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
        let task = tokio::spawn(async move {
            use futures::StreamExt as _;
            let mut stream = Box::pin(nodes.watch(&parameters, &version).await.unwrap());
            while let Some(Ok(WatchEvent::Modified(node))) = stream.next().await {
                if sender.send(short(&node_status(&node))).is_err() {
                    return;
                }
            }
        });
        Self { seen, task }
    }

    fn stop(mut self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        while let Ok(status) = self.seen.try_recv() {
            all.insert(status);
        }
        assert!(!self.task.is_finished(), "the watch ended");
        self.task.abort();
        all
    }
}

fn short(status: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    format!("{}/{}", text(&status["condition"]["status"]), text(&status["label"]))
}

/// Checks that every permission is used and none is missing, by the audit log without the first `before` entries of other
/// tests.
fn only_what_is_granted(cluster: &Cluster, before: usize) {
    let account = "system:serviceaccount:swansong-agent:swansong-agent";
    let mut used = BTreeSet::new();
    let log = cluster.audit_log().unwrap().into_iter().skip(before);
    for event in log.filter(|event| event.user.username == account) {
        let code = event.response_status.as_ref().map_or(0, |status| status.code);
        assert_ne!(code, 403, "{} {}", event.verb, event.request_uri);
        let Some(object) = event.object_ref else { continue };
        let part =
            if object.subresource.is_empty() { String::new() } else { format!("/{}", object.subresource) };
        used.insert(format!("{}{part} {}", object.resource, event.verb));
        if object.resource == "nodes" && !object.name.is_empty() {
            assert_eq!(object.name, cluster.node_name().unwrap());
        }
    }
    let role =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/agent/rbac.yaml")).unwrap();
    let role: Vec<Value> = serde_saphyr::from_multiple(&role).unwrap();
    let granted: BTreeSet<String> = role[0]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|rule| {
            let texts = |key: &str| {
                rule[key]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|text| text.as_str().unwrap().to_owned())
                    .collect::<Vec<_>>()
            };
            let verbs = texts("verbs");
            texts("resources").into_iter().flat_map(move |resource| {
                verbs.clone().into_iter().map(move |verb| format!("{resource} {verb}"))
            })
        })
        .collect();
    let unused: Vec<_> = granted.difference(&used).collect();
    // Reads of the Node after conflicting writes of taints, and updates of Events, depend on timing.
    let rare = ["nodes get", "events patch"];
    assert!(unused.iter().all(|right| rare.contains(&right.as_str())), "granted and never used: {unused:?}");
    assert!(used.is_subset(&granted), "{used:?}");
}

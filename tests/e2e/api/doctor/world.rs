//! An API server with Swansong's own manifests, its real webhook, and one job.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use swansong_demo::definitions;
use swansong_demo::operator::{Addresses, pods, rank_zero_service};
use swansong_testcluster::{Cluster, Tier, eventually};
use tempfile::TempDir;

use super::agents::{Agent, machine_address};
use super::objects::{self, NAMESPACE, NODES, PODS, SeenPod};
use crate::support::{REPOSITORY, Webhook, swansong};

const WEBHOOK: &str = "swansong-system";
const AGENTS: &str = "swansong-agent";

pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) client: Client,
    pub(super) address: IpAddr,
    pub(super) agents: Vec<Agent>,
    /// The job's Pods, as the operator creates them.
    pub(super) pods: Vec<Value>,
    /// The same Pods, of a job that the webhook hasn't processed.
    pub(super) plain_pods: Vec<Value>,
    pub(super) files: TempDir,
    webhook: Webhook,
}

impl World {
    pub(super) async fn start() -> Self {
        let cluster = Cluster::start(Tier::Api).await.unwrap();
        let client = cluster.client().await.unwrap();
        definitions::apply(&cluster, &definitions::file()).await.unwrap();
        let address = machine_address();
        let files = tempfile::tempdir().unwrap();
        let webhook = start_webhook(files.path(), address);
        let mut agents = Vec::new();
        for _ in NODES {
            agents.push(Agent::start(address).await);
        }
        let (pods, plain_pods) = (Vec::new(), Vec::new());
        let mut world = Self { cluster, client, address, agents, pods, plain_pods, files, webhook };
        world.define().await;
        world.install().await;
        world.run_job().await;
        world
    }

    async fn define(&self) {
        for (plural, kind, scope) in [("podgroups", "PodGroup", "Namespaced"), ("queues", "Queue", "Cluster")]
        {
            // Volcano's own definitions may have brought it.
            let name = format!("{plural}.scheduling.volcano.sh");
            if self.get("CustomResourceDefinition", "", &name).await.is_null() {
                self.create(objects::definition(plural, kind, scope)).await;
            }
        }
        for name in ["mindx-dl", "cluster-system", NAMESPACE] {
            self.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
        }
        for kind in ["PodGroup", "Queue"] {
            eventually("the definition", std::time::Duration::from_secs(30), || async {
                let listed = self.api(kind, "").list(&ListParams::default()).await;
                listed.map(drop).map_err(|error| error.to_string())
            })
            .await
            .unwrap();
        }
        for object in objects::mindcluster(self.address) {
            self.create(object).await;
        }
        for name in NODES {
            self.create(objects::node(name)).await;
        }
    }

    /// Applies the manifests. Without controllers their Pods have to be made here.
    async fn install(&self) {
        for folder in ["base", "agent", "doctor"] {
            let folder = Path::new(REPOSITORY).join("manifests").join(folder);
            self.cluster.kubectl(&["apply".as_ref(), "-k".as_ref(), folder.as_os_str()]).await.unwrap();
        }
        let bundle =
            crate::support::base64(std::fs::read_to_string(self.files.path().join("tls.crt")).unwrap());
        let webhooks = self.get("MutatingWebhookConfiguration", "", "swansong").await["webhooks"].clone();
        let webhooks = webhooks.as_array().unwrap().iter().map(|webhook| {
            let mut webhook = webhook.clone();
            webhook["clientConfig"]["caBundle"] = bundle.clone().into();
            webhook
        });
        let change = json!({"webhooks": webhooks.collect::<Vec<_>>()});
        self.merge("MutatingWebhookConfiguration", "", "swansong", &change).await;
        let port: u16 = self.webhook.address.rsplit_once(':').unwrap().1.parse().unwrap();
        let https = json!({"name": "https", "port": port});
        // The API server's proxy takes only addresses of Pods.
        let mut endpoints = objects::endpoints(WEBHOOK, "swansong-webhook", self.address, &https);
        endpoints["endpoints"][0]["targetRef"] =
            json!({"kind": "Pod", "namespace": WEBHOOK, "name": "swansong-webhook-a"});
        self.create(endpoints).await;
        let health: u16 = self.webhook.health_address().rsplit_once(':').unwrap().1.parse().unwrap();
        for name in ["swansong-webhook-a", "swansong-webhook-b"] {
            self.run_pod_of("Deployment", WEBHOOK, "swansong-webhook", name, None, health).await;
        }
        let status = json!({"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}});
        self.merge_status("Deployment", WEBHOOK, "swansong-webhook", &status).await;
        for (node, agent) in NODES.iter().zip(&self.agents) {
            let (name, port) = (format!("swansong-agent-{node}"), agent.address.port());
            self.run_pod_of("DaemonSet", AGENTS, "swansong-agent", &name, Some(node), port).await;
        }
        let ready = json!({"status": {"desiredNumberScheduled": 2, "numberReady": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0}});
        self.merge_status("DaemonSet", AGENTS, "swansong-agent", &ready).await;
    }

    pub(super) async fn run_pod_of(
        &self,
        kind: &str,
        namespace: &str,
        owner: &str,
        name: &str,
        node: Option<&str>,
        health: u16,
    ) {
        let template = self.get(kind, namespace, owner).await["spec"]["template"].clone();
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["namespace"] = namespace.into();
        if let Some(node) = node {
            pod["spec"]["nodeName"] = node.into();
        }
        for port in pod["spec"]["containers"][0]["ports"].as_array_mut().unwrap() {
            if port["name"] == "health" {
                port["containerPort"] = health.into();
            }
        }
        self.create(pod).await;
        self.set_running(namespace, name).await;
    }

    pub(super) async fn set_running(&self, namespace: &str, name: &str) {
        let started = objects::ago(std::time::Duration::from_hours(1));
        let status = json!({"status": {
            "phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}], "startTime": started,
        }});
        self.merge_status("Pod", namespace, name, &status).await;
    }

    async fn run_job(&mut self) {
        let job = self.create(objects::job()).await;
        let service = self.create(rank_zero_service(&job).unwrap().unwrap()).await;
        let addresses = Addresses::of(&service, None).unwrap();
        let mut plain = job.clone();
        plain["spec"] = objects::job()["spec"].clone();
        let pods_of = |job: &Value| {
            let pods = pods(job, &addresses).unwrap().into_iter().enumerate();
            pods.map(|(rank, pod)| objects::scheduled(pod, rank, "bert-1", NODES[rank])).collect()
        };
        (self.pods, self.plain_pods) = (pods_of(&job), pods_of(&plain));
        for object in objects::of_job(self.address) {
            self.create(object).await;
        }
        for pod in self.pods.clone() {
            self.create(pod).await;
        }
        for name in PODS {
            self.set_running(NAMESPACE, name).await;
        }
        self.refresh_agents().await;
    }

    /// Creates a Pod of the job again.
    pub(super) async fn replace_pod(&self, rank: usize, pod: Value) {
        self.delete("Pod", NAMESPACE, PODS[rank]).await;
        self.create(pod).await;
        self.set_running(NAMESPACE, PODS[rank]).await;
        self.refresh_agents().await;
    }

    /// The agents see the job's present Pods, and nothing wrong.
    pub(super) async fn refresh_agents(&self) {
        let mut seen = Vec::new();
        for (rank, name) in PODS.into_iter().enumerate() {
            let uid = text(&self.get("Pod", NAMESPACE, name).await["metadata"]["uid"]);
            seen.push(SeenPod { name: name.to_owned(), uid, address: self.address, is_first: rank == 0 });
        }
        for agent in &self.agents {
            agent.set(objects::agent_status(&seen));
        }
    }

    pub(super) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "MutatingWebhookConfiguration" | "ValidatingAdmissionPolicyBinding" => {
                ("admissionregistration.k8s.io", "v1")
            }
            "Deployment" | "DaemonSet" => ("apps", "v1"),
            "EndpointSlice" => ("discovery.k8s.io", "v1"),
            "PodGroup" | "Queue" => ("scheduling.volcano.sh", "v1beta1"),
            "AscendJob" => ("mindxdl.gitee.com", "v1"),
            "RoleBinding" => ("rbac.authorization.k8s.io", "v1"),
            "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1"),
            _ => ("", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    /// Creates an object with its status, and returns it as it is stored.
    pub(super) async fn create(&self, object: Value) -> Value {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let namespace = text(&object["metadata"]["namespace"]);
        let status = object["status"].clone();
        let dynamic: DynamicObject = serde_json::from_value(object).unwrap();
        let created = self.api(&kind, &namespace).create(&PostParams::default(), &dynamic).await;
        let created = created.unwrap_or_else(|error| panic!("{kind} {namespace}/{name}: {error}"));
        if kind == "Node" {
            self.merge_status(&kind, &namespace, &name, &json!({"status": status})).await;
        }
        serde_json::to_value(created).unwrap()
    }

    pub(super) async fn get(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let found = self.api(kind, namespace).get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap()).unwrap_or_default()
    }

    pub(super) async fn merge(&self, kind: &str, namespace: &str, name: &str, change: &Value) {
        let parameters = PatchParams::default();
        let patched = self.api(kind, namespace).patch(name, &parameters, &Patch::Merge(change)).await;
        patched.unwrap_or_else(|error| panic!("{kind} {namespace}/{name}: {error}"));
    }

    pub(super) async fn merge_status(&self, kind: &str, namespace: &str, name: &str, change: &Value) {
        let parameters = PatchParams::default();
        let patched = self.api(kind, namespace).patch_status(name, &parameters, &Patch::Merge(change)).await;
        patched.unwrap_or_else(|error| panic!("{kind} {namespace}/{name}: {error}"));
    }

    pub(super) async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.api(kind, namespace).delete(name, &now).await.unwrap();
    }

    /// Writes an object as it was before.
    pub(super) async fn restore(&self, before: &Value) {
        let (kind, name) = (text(&before["kind"]), text(&before["metadata"]["name"]));
        let namespace = text(&before["metadata"]["namespace"]);
        let mut object = before.clone();
        let current = self.get(&kind, &namespace, &name).await;
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion");
        if current.is_null() {
            metadata.remove("uid");
            self.create(object).await;
            if kind == "Pod" {
                self.set_running(&namespace, &name).await;
            }
            return;
        }
        metadata.insert("resourceVersion".to_owned(), current["metadata"]["resourceVersion"].clone());
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(&kind, &namespace).replace(&name, &PostParams::default(), &object).await.unwrap();
    }

    /// What `swansong doctor` prints and returns, by the administrator's kubeconfig.
    pub(super) async fn doctor(&self, arguments: &[&str]) -> Output {
        self.doctor_by(self.cluster.kubeconfig(), arguments).await
    }

    pub(super) async fn doctor_by(&self, kubeconfig: &Path, arguments: &[&str]) -> Output {
        let mut command = swansong(["doctor"]);
        command.args(arguments).env("KUBECONFIG", kubeconfig);
        // The agents answer from this process meanwhile.
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// A kubeconfig of a user in these groups, by impersonation.
    pub(super) fn kubeconfig_of(&self, groups: &[&str]) -> PathBuf {
        let admin = std::fs::read_to_string(self.cluster.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&admin).unwrap();
        for user in config["users"].as_array_mut().unwrap() {
            user["user"]["as"] = "tester".into();
            user["user"]["as-groups"] = json!(groups);
        }
        let path = self.files.path().join(format!("kubeconfig-{}", groups.len()));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A webhook with a certificate for its Service.
fn start_webhook(files: &Path, address: IpAddr) -> Webhook {
    let name = format!("swansong-webhook.{WEBHOOK}.svc");
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed([name]).unwrap();
    std::fs::write(files.join("tls.crt"), cert.pem()).unwrap();
    std::fs::write(files.join("tls.key"), signing_key.serialize_pem()).unwrap();
    let listen = format!("{address}:0");
    let mut command =
        swansong(["webhook", "--log-format", "json", "--listen", &listen, "--health-listen", &listen]);
    command.arg("--tls-cert").arg(files.join("tls.crt")).arg("--tls-key").arg(files.join("tls.key"));
    Webhook::start(&command)
}

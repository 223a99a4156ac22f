//! The reset-config controller: two replicas with the account and the policy of `manifests/base`.

mod precedence;
mod rights;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, ResourceQuota};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use swansong_clusterd::reset_config::{State, initial, name_for, state};
use swansong_demo::definitions;
use swansong_testcluster::{AuditEvent, Cluster, Tier, eventually};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use self::rights::granted_rules;
use crate::support::{Certificate, REPOSITORY, Webhook, create, inputs_directory, swansong};

const NAMESPACE: &str = "swansong-system";
const ACCOUNT: &str = "system:serviceaccount:swansong-system:swansong-webhook";
const COMPONENT: &str = "swansong-reset-config";
const TIMEOUT: Duration = Duration::from_mins(1);
/// Shorter than the default, but long enough for one kubectl command on a busy machine.
const GRACE_PERIOD: &str = "4s";
/// The namespace in which a test uses the account as an attacker would.
const STOLEN: &str = "reset-config-stolen";

/// The API server shared by all tests, with two controllers, and a client of the test's own.
struct Rig {
    cluster: &'static Cluster,
    client: Client,
}

struct Controllers {
    replicas: Vec<Webhook>,
    _files: (Certificate, TempDir),
}

impl Controllers {
    /// Starts replicas that have only the rights of the manifests.
    async fn start(cluster: &Cluster, count: usize, arguments: &[&str]) -> Self {
        for file in ["namespace", "service-account", "reset-config"] {
            let file = Path::new(REPOSITORY).join(format!("manifests/base/{file}.yaml"));
            cluster.kubectl(&["apply".as_ref(), "--filename".as_ref(), file.as_os_str()]).await.unwrap();
        }
        let token = cluster.token(NAMESPACE, "swansong-webhook").await.unwrap();
        let info = cluster.info();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": { "server": info.api_url, "certificate-authority": info.ca_certificate } }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
            "users": [{ "name": "it", "user": { "token": token } }],
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let certificate = Certificate::new();
        let mut command = certificate.webhook();
        command.args(["--reset-config-controller", "on"]).args(arguments).env("KUBECONFIG", &file);
        let replicas: Vec<Webhook> = (0..count).map(|_| Webhook::start(&command)).collect();
        Self { replicas, _files: (certificate, folder) }
    }

    /// Waits until each replica reports whether it watches this kind.
    async fn watching(&self, kind: &str, expected: bool) {
        let series = format!("swansong_reset_config_watching{{kind=\"{kind}\"}}");
        eventually("the controllers to watch", TIMEOUT, || async {
            let now: Vec<_> = self.replicas.iter().map(|replica| replica.metric(&series)).collect();
            let as_expected = now.iter().all(|value| *value == Some(f64::from(u8::from(expected))));
            if as_expected { Ok(()) } else { Err(format!("{kind}: {now:?}")) }
        })
        .await
        .unwrap();
    }
}

async fn rig() -> Rig {
    static CONTROLLERS: OnceCell<Controllers> = OnceCell::const_new();
    let cluster = crate::support::rig().await.cluster;
    let start = || async {
        let arguments = ["--reset-config-grace-period", GRACE_PERIOD];
        let controllers = Controllers::start(cluster, 2, &arguments).await;
        for kind in ["AscendJob", "VolcanoJob", "ConfigMap"] {
            controllers.watching(kind, true).await;
        }
        controllers
    };
    CONTROLLERS.get_or_init(start).await;
    Rig { cluster, client: cluster.client().await.unwrap() }
}

impl Rig {
    fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The job's ConfigMap, once it exists.
    async fn reset_config(&self, namespace: &str, job: &str) -> ConfigMap {
        reset_config(&self.client, namespace, job).await
    }

    /// Events about an object.
    async fn events(&self, namespace: &str, job: &Value) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let uid = job["metadata"]["uid"].as_str().unwrap();
        let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        events.list(&about).await.unwrap().items
    }

    /// The first Event with this reason about an object, once it exists.
    async fn event(&self, namespace: &str, job: &Value, reason: &str) -> Event {
        eventually("an Event", TIMEOUT, || async {
            let events = self.events(namespace, job).await;
            let reasons: Vec<_> = events.iter().map(|event| event.reason.clone()).collect();
            let event = events.into_iter().find(|event| event.reason.as_deref() == Some(reason));
            event.ok_or_else(|| format!("no {reason} among {reasons:?}"))
        })
        .await
        .unwrap()
    }

    /// Waits until both replicas have reconciled a job that is created now. They have then reconciled all earlier ones.
    async fn settled(&self, namespace: &str) {
        create(&self.client, namespace, ascend_job("later", "dump")).await.unwrap();
        self.reset_config(namespace, "later").await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/reset-config-later");
        eventually("both controllers to read the ConfigMap", TIMEOUT, || async {
            let reads = requests(self.cluster).into_iter().filter(|event| event.request_uri == path).count();
            // One replica reads it at first, after the grace period, and after its creation; so at least two of five reads
            // are the other's, the second of which follows the grace period or the creation.
            if reads >= 5 { Ok(()) } else { Err(format!("{reads} reads")) }
        })
        .await
        .unwrap();
    }
}

async fn reset_config(client: &Client, namespace: &str, job: &str) -> ConfigMap {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let name = name_for(job);
    eventually("the reset ConfigMap", TIMEOUT * 2, || config_maps.get(&name)).await.unwrap()
}

fn ascend_job(name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": name, "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": strategy}},
        "spec": {"replicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "ascend", "image": "x"}]}}}}},
    })
}

fn volcano_job(name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": name, "annotations": {"recover-strategy": strategy}},
        "spec": {"tasks": [{"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "ascend", "image": "x"}]}}}]},
    })
}

fn user_config_map(job: &str, labels: &Value, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name_for(job), "labels": labels}, "data": data})
}

/// All requests of the controllers' account so far.
fn requests(cluster: &Cluster) -> Vec<AuditEvent> {
    let events = cluster.audit_events().unwrap().map(Result::unwrap);
    events.filter(|event| event.user.username == ACCOUNT).collect()
}

/// The API server's answers to creations of a job's ConfigMap.
fn creations(cluster: &Cluster, namespace: &str, job: &str) -> Vec<u16> {
    let is_creation = |event: &&AuditEvent| {
        let Some(object) = &event.object_ref else { return false };
        let what = (object.resource.as_str(), object.namespace.as_str(), object.name.as_str());
        event.verb == "create" && what == ("configmaps", namespace, name_for(job).as_str())
    };
    let events = requests(cluster);
    let answers = events.iter().filter(is_creation).filter_map(|event| event.response_status.as_ref());
    answers.map(|status| status.code).collect()
}

/// The API tier has no garbage collector, so the test checks the owner reference.
#[tokio::test]
async fn each_job_that_asks_for_a_dump_gets_a_config_map() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("reset-config").await.unwrap();
    let mut opted_out = ascend_job("opted-out", "dump");
    opted_out["metadata"]["annotations"]["swansong.dev/inject"] = json!("false");
    for job in [ascend_job("exit", "recover,exit"), volcano_job("also-exit", "exit"), opted_out] {
        create(&rig.client, &namespace, job).await.unwrap();
    }
    for job in [ascend_job("a", "dump"), volcano_job("v", "retry, dump,exit")] {
        let job = create(&rig.client, &namespace, job).await.unwrap();
        let name = job["metadata"]["name"].as_str().unwrap();
        let made = rig.reset_config(&namespace, name).await;
        assert_eq!(state(made.data.as_ref()), State::Usable);
        assert_eq!(made.data, Some(initial()));
        let labels = made.metadata.labels.unwrap();
        assert_eq!(labels["reset"], "true");
        assert_eq!(
            serde_json::to_value(made.metadata.owner_references).unwrap(),
            json!([{
                "apiVersion": job["apiVersion"], "kind": job["kind"], "name": name, "uid": job["metadata"]["uid"],
                "controller": false, "blockOwnerDeletion": false,
            }])
        );
        let event = rig.event(&namespace, &job, "ResetConfigCreated").await;
        assert_eq!(event.type_.as_deref(), Some("Normal"));
    }
    rig.settled(&namespace).await;
    for job in ["a", "v"] {
        let answers = creations(rig.cluster, &namespace, job);
        assert_eq!(answers.iter().filter(|code| **code == 201).count(), 1, "{job}: {answers:?}");
        assert!(answers.iter().all(|code| [201, 409].contains(code)), "{job}: {answers:?}");
    }
    let all = rig.config_maps(&namespace).list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = all.items.into_iter().filter_map(|found| found.metadata.name).collect();
    assert_eq!(names, ["reset-config-a", "reset-config-later", "reset-config-v"]);
}

#[tokio::test]
async fn existing_config_map_is_not_changed() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("reset-config-existing").await.unwrap();
    let used = json!({"reset.json": "{\"RankList\":[{\"RankId\":3,\"Status\":\"fault\"}],\"RetryTime\":1}", "checkCode": "c", "x": "y"});
    let mut before = Vec::new();
    for (job, labels) in [("labelled", json!({"reset": "true"})), ("unlabelled", json!({"mine": "1"}))] {
        before.push(create(&rig.client, &namespace, user_config_map(job, &labels, &used)).await.unwrap());
    }
    let mut jobs = Vec::new();
    for job in ["labelled", "unlabelled"] {
        jobs.push(create(&rig.client, &namespace, ascend_job(job, "dump")).await.unwrap());
    }
    rig.settled(&namespace).await;
    for job in jobs {
        assert!(rig.events(&namespace, &job).await.is_empty());
    }
    for before in before {
        let name = before["metadata"]["name"].as_str().unwrap();
        let after = rig.config_maps(&namespace).get(name).await.unwrap();
        assert_eq!(serde_json::to_value(&after.metadata).unwrap(), before["metadata"]);
        assert_eq!(serde_json::to_value(&after.data).unwrap(), before["data"]);
    }
}

/// Also compares the rights that the controllers have used with those that the manifests grant.
#[tokio::test]
async fn unusable_config_map_is_reported_and_not_changed() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("reset-config-unusable").await.unwrap();
    let empty = user_config_map("j", &json!({"reset": "true"}), &json!({"reset.json": ""}));
    let before = create(&rig.client, &namespace, empty).await.unwrap();
    let job = create(&rig.client, &namespace, volcano_job("j", "dump")).await.unwrap();
    let event = rig.event(&namespace, &job, "ResetConfigUnusable").await;
    assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)));
    let message = event.message.unwrap();
    assert!(message.starts_with("ConfigMap reset-config-j has an empty reset.json"), "{message}");
    rig.settled(&namespace).await;
    let config_maps = rig.config_maps(&namespace);
    let after = config_maps.get("reset-config-j").await.unwrap();
    assert_eq!(after.metadata.resource_version.as_deref(), before["metadata"]["resourceVersion"].as_str());
    assert_eq!(rig.events(&namespace, &job).await.len(), 1, "one Event of both replicas");

    // A user deletes it.
    config_maps.delete("reset-config-j", &DeleteParams::default()).await.unwrap();
    let made = rig.reset_config(&namespace, "j").await;
    assert_eq!(state(made.data.as_ref()), State::Usable);

    let used: BTreeSet<String> = requests(rig.cluster)
        .iter()
        .filter_map(|event| Some((&event.verb, event.object_ref.as_ref()?)))
        // Another test uses the same account.
        .filter(|(_, object)| !object.namespace.contains(STOLEN))
        .map(|(verb, object)| format!("{verb} {}", object.resource))
        .collect();
    let mut granted = BTreeSet::new();
    for (resources, verbs) in granted_rules() {
        granted
            .extend(verbs.iter().flat_map(|verb| resources.iter().map(move |what| format!("{verb} {what}"))));
    }
    assert_eq!(used, granted, "used and granted rights");
}

#[tokio::test]
async fn deleted_config_map_is_created_again() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("reset-config-deleted").await.unwrap();
    create(&rig.client, &namespace, ascend_job("j", "dump")).await.unwrap();
    let config_maps = rig.config_maps(&namespace);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let made = rig.reset_config(&namespace, "j").await;
        assert!(seen.insert(made.metadata.uid), "another one");
        config_maps.delete("reset-config-j", &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn denied_creation_is_reported_and_retried() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("reset-config-quota").await.unwrap();
    // The API tier has no quota controller.
    let limit = json!({"count/configmaps": "0"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": limit}});
    create(&rig.client, &namespace, quota).await.unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(rig.client.clone(), &namespace);
    let status = json!({"status": {"hard": limit, "used": limit}});
    quotas.patch_status("none", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();

    let job = create(&rig.client, &namespace, ascend_job("j", "dump")).await.unwrap();
    let event = rig.event(&namespace, &job, "ResetConfigNotCreated").await;
    let message = event.message.unwrap();
    assert!(message.contains("exceeded quota: none"), "{message}");
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    rig.reset_config(&namespace, "j").await;
}

#[tokio::test]
async fn terminating_job_and_opted_out_namespace_get_none() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("reset-config-none").await.unwrap();
    let label = json!({"metadata": {"labels": {"swansong.dev/inject": "false"}}});
    let namespaces: Api<Namespace> = Api::all(rig.client.clone());
    namespaces.patch(&namespace, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    create(&rig.client, &namespace, ascend_job("j", "dump")).await.unwrap();

    let elsewhere = rig.cluster.namespace("reset-config-finished").await.unwrap();
    let mut terminating = volcano_job("terminating", "dump");
    terminating["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&rig.client, &elsewhere, terminating).await.unwrap();
    rig.reset_config(&elsewhere, "terminating").await;
    rig.cluster
        .kubectl(&["delete", "-n", &elsewhere, "--wait=false", "jobs.batch.volcano.sh/terminating"])
        .await
        .unwrap();
    rig.config_maps(&elsewhere).delete("reset-config-terminating", &DeleteParams::default()).await.unwrap();
    rig.settled(&elsewhere).await;
    assert!(rig.config_maps(&elsewhere).get_opt("reset-config-terminating").await.unwrap().is_none());
    assert!(rig.config_maps(&namespace).get_opt("reset-config-j").await.unwrap().is_none());
}

/// MindCluster's job files, without their ConfigMaps.
#[tokio::test]
async fn each_sample_job_that_asks_for_a_dump_gets_a_config_map() {
    let rig = rig().await;
    let mut jobs = 0;
    for file in std::fs::read_dir(inputs_directory()).into_iter().flatten().map(|entry| entry.unwrap().path())
    {
        if file.extension().is_none_or(|extension| extension != "yaml") || file.ends_with("crds.yaml") {
            continue;
        }
        let output = swansong(["uninject", "-o", "json", "-f"]).arg(&file).output().unwrap();
        for mut job in
            serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>().map(Result::unwrap)
        {
            let strategy = job["metadata"]["annotations"]["recover-strategy"].as_str().unwrap_or_default();
            if !strategy.split(',').any(|token| token.trim() == "dump") {
                continue;
            }
            let namespace = rig.cluster.namespace("reset-config-inputs").await.unwrap();
            job["metadata"]["namespace"] = json!(namespace);
            let name = job["metadata"]["name"].as_str().unwrap().to_owned();
            create(&rig.client, &namespace, job).await.unwrap();
            rig.reset_config(&namespace, &name).await;
            jobs += 1;
        }
    }
    assert!(jobs >= 3 || !inputs_directory().exists(), "{jobs}");
}

/// MindCluster and Volcano are installed after Swansong. Also shows the default grace period.
#[tokio::test]
async fn kinds_that_are_defined_later_are_watched_after_the_default_grace_period() {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    let controllers = Controllers::start(&cluster, 1, &[]).await;
    controllers.watching("ConfigMap", true).await;
    controllers.watching("AscendJob", false).await;
    definitions::apply(&cluster, &definitions::file()).await.unwrap();
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("later").await.unwrap();
    let mut created: Vec<DynamicObject> = Vec::new();
    for job in [ascend_job("a", "dump"), volcano_job("v", "dump")] {
        let job = create(&client, &namespace, job).await.unwrap();
        created.push(serde_json::from_value(job).unwrap());
    }
    let age = |object: &ObjectMeta| object.creation_timestamp.as_ref().unwrap().0.as_second();
    for job in created {
        let made = reset_config(&client, &namespace, job.metadata.name.as_deref().unwrap()).await;
        // Timestamps have whole seconds.
        let delay = age(&made.metadata) - age(&job.metadata);
        assert!(delay >= 10, "{delay} s");
    }
}

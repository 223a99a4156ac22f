//! The job guard: two replicas of it, with the account and the policy of `manifests/base`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use swansong_clusterd::reset_config::{State, initial, name_for, state};
use swansong_demo::definitions;
use swansong_testcluster::{AuditEvent, Cluster, Tier, eventually};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::support::{Certificate, REPOSITORY, Webhook, create, inputs_directory, rig, swansong};

const NAMESPACE: &str = "swansong-system";
const ACCOUNT: &str = "system:serviceaccount:swansong-system:swansong-webhook";
const PATIENCE: Duration = Duration::from_mins(1);
/// The namespace in which the account is in other hands.
const THIEF: &str = "guard-thief";

/// A cluster with guards in it, and a client of this test's own.
struct Guarded {
    cluster: &'static Cluster,
    client: Client,
}

struct Guards {
    replicas: Vec<Webhook>,
    _files: (Certificate, TempDir),
}

impl Guards {
    /// So many replicas with nothing but the rights of the manifests.
    async fn start(cluster: &Cluster, count: usize) -> Self {
        for file in ["namespace", "service-account", "job-guard"] {
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
        command.args(["--job-guard", "on"]).env("KUBECONFIG", &file);
        let replicas: Vec<Webhook> = (0..count).map(|_| Webhook::start(&command)).collect();
        Self { replicas, _files: (certificate, folder) }
    }

    /// Waits until each of them knows, or knows that there is none of, this kind.
    async fn watching(&self, kind: &str, known: bool) {
        let series = format!("swansong_job_guard_watching{{kind=\"{kind}\"}}");
        eventually("the guards to watch", PATIENCE, || async {
            let now: Vec<_> = self.replicas.iter().map(|replica| replica.metric(&series)).collect();
            let as_expected = now.iter().all(|value| *value == Some(f64::from(u8::from(known))));
            if as_expected { Ok(()) } else { Err(format!("{kind}: {now:?}")) }
        })
        .await
        .unwrap();
    }
}

async fn guarded() -> Guarded {
    static GUARDS: OnceCell<Guards> = OnceCell::const_new();
    let cluster = rig().await.cluster;
    let start = || async {
        let guards = Guards::start(cluster, 2).await;
        for kind in ["AscendJob", "VolcanoJob", "ConfigMap"] {
            guards.watching(kind, true).await;
        }
        guards
    };
    GUARDS.get_or_init(start).await;
    Guarded { cluster, client: cluster.client().await.unwrap() }
}

impl Guarded {
    fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The job's ConfigMap, once it is there.
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

    /// The first Event with this reason about an object, once it is there.
    async fn event(&self, namespace: &str, job: &Value, reason: &str) -> Event {
        eventually("an Event", PATIENCE, || async {
            let events = self.events(namespace, job).await;
            let told: Vec<_> = events.iter().map(|event| event.reason.clone()).collect();
            let event = events.into_iter().find(|event| event.reason.as_deref() == Some(reason));
            event.ok_or_else(|| format!("no {reason} among {told:?}"))
        })
        .await
        .unwrap()
    }

    /// Waits until the guards have come to a job of later: they take jobs one by one, so what came before is settled.
    async fn settled(&self, namespace: &str) {
        create(&self.client, namespace, ascend_job("later", "dump")).await.unwrap();
        self.reset_config(namespace, "later").await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/reset-config-later");
        eventually("both guards to have looked", PATIENCE, || async {
            let looks = asked(self.cluster).into_iter().filter(|event| event.request_uri == path).count();
            // Whoever looks twice does so since the other has created it.
            if looks >= 2 { Ok(()) } else { Err(format!("{looks} looks")) }
        })
        .await
        .unwrap();
    }
}

async fn reset_config(client: &Client, namespace: &str, job: &str) -> ConfigMap {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let name = name_for(job);
    eventually("the reset ConfigMap", PATIENCE * 2, || config_maps.get(&name)).await.unwrap()
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

/// A ConfigMap that somebody made by hand.
fn by_hand(job: &str, labels: &Value, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name_for(job), "labels": labels}, "data": data})
}

/// Everything that the guards' account asked for so far.
fn asked(cluster: &Cluster) -> Vec<AuditEvent> {
    let events = cluster.audit_events().unwrap().map(Result::unwrap);
    events.filter(|event| event.user.username == ACCOUNT).collect()
}

/// Something else than what the guard creates.
type Change<'c> = &'c dyn Fn(&mut Value);

/// How the API server answered the creations of a job's ConfigMap.
fn creations(cluster: &Cluster, namespace: &str, job: &str) -> Vec<u16> {
    let is_creation = |event: &&AuditEvent| {
        let Some(object) = &event.object_ref else { return false };
        let what = (object.resource.as_str(), object.namespace.as_str(), object.name.as_str());
        event.verb == "create" && what == ("configmaps", namespace, name_for(job).as_str())
    };
    let events = asked(cluster);
    let answers = events.iter().filter(is_creation).filter_map(|event| event.response_status.as_ref());
    answers.map(|status| status.code).collect()
}

/// On this tier nothing collects garbage; the owner is what it goes by.
#[tokio::test]
async fn each_job_that_can_dump_gets_one_of_its_own() {
    let guarded = guarded().await;
    let namespace = guarded.cluster.namespace("guard").await.unwrap();
    let mut opted_out = ascend_job("left-out", "dump");
    opted_out["metadata"]["annotations"]["swansong.dev/inject"] = json!("false");
    for job in [ascend_job("exit", "recover,exit"), volcano_job("also-exit", "exit"), opted_out] {
        create(&guarded.client, &namespace, job).await.unwrap();
    }
    for job in [ascend_job("a", "dump"), volcano_job("v", "retry, dump,exit")] {
        let job = create(&guarded.client, &namespace, job).await.unwrap();
        let name = job["metadata"]["name"].as_str().unwrap();
        let made = guarded.reset_config(&namespace, name).await;
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
        let event = guarded.event(&namespace, &job, "ResetConfigCreated").await;
        assert_eq!(event.type_.as_deref(), Some("Normal"));
    }
    guarded.settled(&namespace).await;
    for job in ["a", "v"] {
        let answers = creations(guarded.cluster, &namespace, job);
        assert_eq!(answers.iter().filter(|code| **code == 201).count(), 1, "{job}: {answers:?}");
        assert!(answers.iter().all(|code| [201, 409].contains(code)), "{job}: {answers:?}");
    }
    let all = guarded.config_maps(&namespace).list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = all.items.into_iter().filter_map(|found| found.metadata.name).collect();
    assert_eq!(names, ["reset-config-a", "reset-config-later", "reset-config-v"]);
}

#[tokio::test]
async fn an_existing_one_stays_as_it_is_byte_by_byte() {
    let guarded = guarded().await;
    let namespace = guarded.cluster.namespace("guard-existing").await.unwrap();
    let used = json!({"reset.json": "{\"RankList\":[{\"RankId\":3,\"Status\":\"fault\"}],\"RetryTime\":1}", "checkCode": "c", "x": "y"});
    let mut before = Vec::new();
    for (job, labels) in [("labelled", json!({"reset": "true"})), ("unlabelled", json!({"mine": "1"}))] {
        before.push(create(&guarded.client, &namespace, by_hand(job, &labels, &used)).await.unwrap());
    }
    let mut jobs = Vec::new();
    for job in ["labelled", "unlabelled"] {
        jobs.push(create(&guarded.client, &namespace, ascend_job(job, "dump")).await.unwrap());
    }
    guarded.settled(&namespace).await;
    for job in jobs {
        assert!(guarded.events(&namespace, &job).await.is_empty());
    }
    for before in before {
        let name = before["metadata"]["name"].as_str().unwrap();
        let after = guarded.config_maps(&namespace).get(name).await.unwrap();
        assert_eq!(serde_json::to_value(&after.metadata).unwrap(), before["metadata"]);
        assert_eq!(serde_json::to_value(&after.data).unwrap(), before["data"]);
    }
}

/// B90: and what all that asks of the API server is what the manifests grant, and all of it.
#[tokio::test]
async fn one_that_clusterd_can_not_use_is_told_and_left_alone() {
    let guarded = guarded().await;
    let namespace = guarded.cluster.namespace("guard-unusable").await.unwrap();
    let empty = by_hand("j", &json!({"reset": "true"}), &json!({"reset.json": ""}));
    let before = create(&guarded.client, &namespace, empty).await.unwrap();
    let job = create(&guarded.client, &namespace, volcano_job("j", "dump")).await.unwrap();
    let event = guarded.event(&namespace, &job, "ResetConfigUnusable").await;
    assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)));
    let message = event.message.unwrap();
    assert!(message.starts_with("ConfigMap reset-config-j has an empty reset.json"), "{message}");
    guarded.settled(&namespace).await;
    let config_maps = guarded.config_maps(&namespace);
    let after = config_maps.get("reset-config-j").await.unwrap();
    assert_eq!(after.metadata.resource_version.as_deref(), before["metadata"]["resourceVersion"].as_str());
    assert_eq!(guarded.events(&namespace, &job).await.len(), 1, "once, by both");

    // Whoever was told deletes it.
    config_maps.delete("reset-config-j", &DeleteParams::default()).await.unwrap();
    let made = guarded.reset_config(&namespace, "j").await;
    assert_eq!(state(made.data.as_ref()), State::Usable);

    let used: BTreeSet<String> = asked(guarded.cluster)
        .iter()
        .filter_map(|event| Some((&event.verb, event.object_ref.as_ref()?)))
        // Another test tries the same account.
        .filter(|(_, object)| !object.namespace.contains(THIEF))
        .map(|(verb, object)| format!("{verb} {}", object.resource))
        .collect();
    let mut granted = BTreeSet::new();
    for (resources, verbs) in granted_rules() {
        granted
            .extend(verbs.iter().flat_map(|verb| resources.iter().map(move |what| format!("{verb} {what}"))));
    }
    assert_eq!(used, granted, "used, and granted");
}

/// Resources and verbs of each rule of the guard's role.
fn granted_rules() -> Vec<(Vec<String>, Vec<String>)> {
    let file = Path::new(REPOSITORY).join("manifests/base/job-guard.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap();
    let role = documents.into_iter().find(|document| document["kind"] == "ClusterRole").unwrap();
    let texts = |list: &Value| serde_json::from_value(list.clone()).unwrap();
    role["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (texts(&rule["resources"]), texts(&rule["verbs"])))
        .collect()
}

#[tokio::test]
async fn one_that_is_deleted_while_the_job_lives_comes_back() {
    let guarded = guarded().await;
    let namespace = guarded.cluster.namespace("guard-deleted").await.unwrap();
    create(&guarded.client, &namespace, ascend_job("j", "dump")).await.unwrap();
    let config_maps = guarded.config_maps(&namespace);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let made = guarded.reset_config(&namespace, "j").await;
        assert!(seen.insert(made.metadata.uid), "another one");
        config_maps.delete("reset-config-j", &DeleteParams::default()).await.unwrap();
    }
}

/// And a job that has come to its end is left in peace.
#[tokio::test]
async fn one_that_may_not_be_created_is_told_and_tried_again() {
    let guarded = guarded().await;
    let namespace = guarded.cluster.namespace("guard-quota").await.unwrap();
    // The controller that keeps quotas doesn't run on this tier.
    let limit = json!({"count/configmaps": "0"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": limit}});
    create(&guarded.client, &namespace, quota).await.unwrap();
    let quotas: Api<k8s_openapi::api::core::v1::ResourceQuota> =
        Api::namespaced(guarded.client.clone(), &namespace);
    let status = json!({"status": {"hard": limit, "used": limit}});
    quotas.patch_status("none", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();

    let job = create(&guarded.client, &namespace, ascend_job("j", "dump")).await.unwrap();
    let event = guarded.event(&namespace, &job, "ResetConfigNotCreated").await;
    let message = event.message.unwrap();
    assert!(message.contains("exceeded quota: none"), "{message}");
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    guarded.reset_config(&namespace, "j").await;
}

#[tokio::test]
async fn a_job_that_is_over_or_in_a_namespace_that_is_left_out_gets_none() {
    let guarded = guarded().await;
    let namespace = guarded.cluster.namespace("guard-none").await.unwrap();
    let label = json!({"metadata": {"labels": {"swansong.dev/inject": "false"}}});
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(guarded.client.clone());
    namespaces.patch(&namespace, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    create(&guarded.client, &namespace, ascend_job("j", "dump")).await.unwrap();

    let elsewhere = guarded.cluster.namespace("guard-over").await.unwrap();
    let mut over = volcano_job("over", "dump");
    over["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&guarded.client, &elsewhere, over).await.unwrap();
    guarded.reset_config(&elsewhere, "over").await;
    guarded
        .cluster
        .kubectl(&["delete", "-n", &elsewhere, "--wait=false", "jobs.batch.volcano.sh/over"])
        .await
        .unwrap();
    guarded.config_maps(&elsewhere).delete("reset-config-over", &DeleteParams::default()).await.unwrap();
    guarded.settled(&elsewhere).await;
    assert!(guarded.config_maps(&elsewhere).get_opt("reset-config-over").await.unwrap().is_none());
    assert!(guarded.config_maps(&namespace).get_opt("reset-config-j").await.unwrap().is_none());
}

/// Job files of other people, without the ConfigMap that they bring along.
#[tokio::test]
async fn every_job_file_that_asks_for_a_dump_is_guarded() {
    let guarded = guarded().await;
    let mut guarded_jobs = 0;
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
            let namespace = guarded.cluster.namespace("guard-inputs").await.unwrap();
            job["metadata"]["namespace"] = json!(namespace);
            let name = job["metadata"]["name"].as_str().unwrap().to_owned();
            create(&guarded.client, &namespace, job).await.unwrap();
            guarded.reset_config(&namespace, &name).await;
            guarded_jobs += 1;
        }
    }
    assert!(guarded_jobs >= 3 || !inputs_directory().exists(), "{guarded_jobs}");
}

/// What RBAC can't say: what may be created.
#[tokio::test]
async fn a_stolen_token_creates_nothing_but_what_the_guard_does() {
    let guarded = guarded().await;
    let namespace = guarded.cluster.namespace(THIEF).await.unwrap();
    let thief = guarded.cluster.client_as(NAMESPACE, "swansong-webhook").await.unwrap();
    let sound = json!({
        "metadata": {
            "name": "reset-config-j", "labels": {"reset": "true", "app.kubernetes.io/managed-by": "swansong"},
            "ownerReferences": [{"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "j", "uid": "u", "controller": false, "blockOwnerDeletion": false}],
        },
        "data": initial(),
    });
    let config_maps: Api<ConfigMap> = Api::namespaced(thief.clone(), &namespace);
    let attempt = async |change: Change<'_>| {
        let mut object = sound.clone();
        change(&mut object);
        let object: ConfigMap = serde_json::from_value(object).unwrap();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        config_maps.create(&dry_run, &object).await.map(drop).map_err(|error| error.to_string())
    };
    eventually("the policy to be in force", PATIENCE, || async {
        let refused = attempt(&|object| object["metadata"]["name"] = json!("thief")).await;
        if refused.is_err() { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await
    .unwrap();
    attempt(&|_| ()).await.expect("what the guard creates");
    let changes: [(&str, Change<'_>); 12] = [
        ("another name", &|object| object["metadata"]["name"] = json!("kube-root-ca.crt")),
        ("another job's", &|object| object["metadata"]["name"] = json!("reset-config-k")),
        ("no owner", &|object| object["metadata"]["ownerReferences"] = json!([])),
        ("a second owner", &|object| {
            let mut owner = object["metadata"]["ownerReferences"][0].clone();
            owner["uid"] = json!("v");
            object["metadata"]["ownerReferences"].as_array_mut().unwrap().push(owner);
        }),
        ("another kind's", &|object| object["metadata"]["ownerReferences"][0]["kind"] = json!("Pod")),
        ("a controller", &|object| object["metadata"]["ownerReferences"][0]["controller"] = json!(true)),
        ("no label", &|object| object["metadata"]["labels"] = json!({})),
        ("a label", &|object| object["metadata"]["labels"]["mc-consumer-publicfault"] = json!("true")),
        ("an annotation", &|object| object["metadata"]["annotations"] = json!({"a": "b"})),
        ("a finalizer", &|object| object["metadata"]["finalizers"] = json!(["example.com/f"])),
        ("further data", &|object| object["data"]["config.yaml"] = json!("x")),
        ("other data", &|object| object["data"]["reset.json"] = json!("{}")),
    ];
    for (what, change) in changes {
        let said = attempt(change).await.expect_err(what);
        assert!(said.contains("swansong-job-guard") && said.contains("reset-config-<job>"), "{what}: {said}");
    }

    let event = |component: &str, about: Value| -> Event {
        let event = json!({
            "metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "message": "m", "type": "Normal",
            "source": {"component": component},
        });
        serde_json::from_value(event).unwrap()
    };
    let job = json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "j", "namespace": namespace});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "j", "namespace": namespace});
    let events: Api<Event> = Api::namespaced(thief, &namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    events.create(&dry_run, &event("swansong-job-guard", job.clone())).await.expect("an Event of the guard");
    for (what, event) in
        [("in the kubelet's name", event("kubelet", job)), ("about a Pod", event("swansong-job-guard", pod))]
    {
        let said = events.create(&dry_run, &event).await.expect_err(what).to_string();
        assert!(said.contains("no Events but its own"), "{what}: {said}");
    }
    // By RBAC.
    for (what, refusal) in [
        (
            "changing",
            config_maps.patch("x", &PatchParams::default(), &Patch::Merge(json!({}))).await.map(drop),
        ),
        ("deleting", config_maps.delete("x", &DeleteParams::default()).await.map(drop)),
        ("reading Events", events.list(&ListParams::default()).await.map(drop)),
    ] {
        let said = refusal.expect_err(what).to_string();
        assert!(said.contains("cannot"), "{what}: {said}");
    }
}

/// A cluster without MindCluster gets it later, and then AscendJobs and Volcano Jobs.
#[tokio::test]
async fn kinds_that_are_defined_later_are_guarded_then() {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    let guards = Guards::start(&cluster, 1).await;
    guards.watching("ConfigMap", true).await;
    guards.watching("AscendJob", false).await;
    definitions::apply(&cluster, &definitions::file()).await.unwrap();
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("later").await.unwrap();
    create(&client, &namespace, ascend_job("a", "dump")).await.unwrap();
    create(&client, &namespace, volcano_job("v", "dump")).await.unwrap();
    for job in ["a", "v"] {
        reset_config(&client, &namespace, job).await;
    }
}

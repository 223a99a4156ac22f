//! Injection of jobs.

use serde_json::{Value, json};
use swansong_inject::reason::Reason;

use swansong_testcluster::{Cluster, ObjectReference};

use crate::support::{calls, create, examine, rig};

fn ascend_job(name: &str, strategy: &str) -> Value {
    let template = json!({"spec": {"containers": [{
        "name": "ascend", "image": "train:1",
        "ports": [{"containerPort": 2222, "name": "ascendjob-port"}],
        "resources": {"limits": {"huawei.com/Ascend910": 8}, "requests": {"huawei.com/Ascend910": 8}},
    }]}});
    json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": name, "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": strategy}},
        "spec": {"replicaSpecs": {
            "Master": {"replicas": 1, "restartPolicy": "Never", "template": template},
            "Worker": {"replicas": 1, "restartPolicy": "Never", "template": template},
        }},
    })
}

fn volcano_job(name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": name, "annotations": {"recover-strategy": strategy}},
        "spec": {"minAvailable": 1, "tasks": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [{"name": "train", "image": "x"}]}}}]},
    })
}

/// Jobs without a strategy, whose missing or empty maps a CEL condition has to handle.
pub(crate) fn without_strategy() -> Vec<Value> {
    let mut jobs = Vec::new();
    for (number, metadata) in [
        json!({}),
        json!({"annotations": {}}),
        json!({"annotations": {"a": "b"}}),
        json!({"labels": {"a": "b"}}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ascend = ascend_job(&format!("quiet-{number}"), "");
        let mut volcano = volcano_job(&format!("quiet-{number}"), "");
        for job in [&mut ascend, &mut volcano] {
            job["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        ascend["spec"]["replicaSpecs"]["Master"]["template"]["metadata"] = metadata.clone();
        volcano["spec"]["tasks"][0]["template"]["metadata"] = metadata;
        jobs.extend([ascend, volcano]);
    }
    jobs
}

#[tokio::test]
async fn an_ascend_job_with_only_the_annotation_is_injected() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("ascendjob").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let stored = create(&client, &namespace, ascend_job("j", "dump")).await.unwrap();
    for replica in ["Master", "Worker"] {
        let template = &stored["spec"]["replicaSpecs"][replica]["template"];
        assert_eq!(template["metadata"]["annotations"]["recover-strategy"], "dump", "{replica}");
        let container = &template["spec"]["containers"][0];
        let ports: Vec<_> = container["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| (port["name"].clone(), port["containerPort"].clone()))
            .collect();
        assert_eq!(
            ports,
            [
                (json!("ascendjob-port"), json!(2222)),
                (json!("ttp-port"), json!(8000)),
                (json!("taskd-port"), json!(9601))
            ]
        );
        let names: Vec<_> =
            container["env"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
        assert_eq!(
            names,
            ["POD_IP", "TTP_PORT", "TASKD_PROCESS_ENABLE", "TTP_NORMAL_ACTION_TIME_LIMIT", "LD_PRELOAD"]
        );
        assert_carries_the_hook(template);

        // Its Pods get only what refers to ascend-operator's variables.
        let name = format!("j-{}-0", replica.to_lowercase());
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(name);
        let env = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        env.extend([
            json!({"name": "HIGH_AVAILABILITY", "value": "dump"}),
            json!({"name": "RANK", "value": if replica == "Master" { "0" } else { "1" }}),
            json!({"name": "MASTER_ADDR", "value": "10.0.0.1"}),
        ]);
        let stored = create(&client, &namespace, pod.clone()).await.unwrap();
        assert_carries_the_hook(&stored);
        let expected = if replica == "Master" { "$(POD_IP)" } else { "$(MASTER_ADDR)" };
        let env = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        env.push(json!({"name": "TTP_ADDR", "value": expected}));
        let values = |env: &Value| -> Vec<(Value, Value)> {
            let entries = env.as_array().unwrap().iter();
            entries.map(|entry| (entry["name"].clone(), entry["value"].clone())).collect()
        };
        let stored_env = values(&stored["spec"]["containers"][0]["env"]);
        assert_eq!(stored_env, values(&pod["spec"]["containers"][0]["env"]));
        let calls = calls(rig.cluster, &namespace, &name);
        assert_eq!(calls.iter().filter(|call| call["mutated"] == true).count(), 1, "{calls:?}");
        assert!(examine(&stored).operations.is_empty());
    }
}

/// Whether a stored template or Pod has annotations, volume and mounts of the launcher hook.
fn assert_carries_the_hook(template: &Value) {
    let annotations = &template["metadata"]["annotations"];
    assert_eq!(annotations["swansong.dev/launcher-hook.py"], swansong_inject::launcher_hook::MODULE);
    let volumes = template["spec"]["volumes"].as_array().unwrap();
    let hook = volumes.iter().find(|volume| volume["name"] == "swansong-launcher-hook").unwrap();
    let items = hook["downwardAPI"]["items"].as_array().unwrap();
    let fields: Vec<&Value> = items.iter().map(|item| &item["fieldRef"]["fieldPath"]).collect();
    assert_eq!(
        fields,
        [
            "metadata.annotations['swansong.dev/launcher-hook.py']",
            "metadata.annotations['swansong.dev/launcher-hook.pth']"
        ]
    );
    let mounts = template["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let count =
        mounts.iter().filter(|mount| mount["name"] == "swansong-launcher-hook" && mount["readOnly"] == true);
    assert_eq!(count.count(), 2, "{mounts:?}");
}

/// A job injected by the command line is complete for the webhook, and so are its Pods but for the address.
#[tokio::test]
async fn a_job_injected_by_the_command_line_is_accepted_as_it_is() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("offline").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let mut command = crate::support::swansong(["inject", "-o", "json"]);
    let mut process =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let job = ascend_job("j", "dump").to_string();
    std::io::Write::write_all(&mut process.stdin.take().unwrap(), job.as_bytes()).unwrap();
    let injected: Value = serde_json::from_slice(&process.wait_with_output().unwrap().stdout).unwrap();
    let stored = create(&client, &namespace, injected.clone()).await.unwrap();
    assert_eq!(calls(rig.cluster, &namespace, "j").iter().filter(|call| call["mutated"] == true).count(), 0);
    let master = |job: &Value| job["spec"]["replicaSpecs"]["Master"]["template"].clone();
    assert_eq!(master(&stored)["metadata"]["annotations"], master(&injected)["metadata"]["annotations"]);
    assert_carries_the_hook(&master(&stored));
}

#[tokio::test]
async fn a_padded_strategy_is_stored_normalised() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("padded").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let stored = create(&client, &namespace, ascend_job("j", "recover, dump")).await.unwrap();
    assert_eq!(stored["metadata"]["annotations"]["recover-strategy"], "recover,dump");
    assert!(examine(&stored).operations.is_empty());
}

#[tokio::test]
async fn a_volcano_job_gets_label_strategy_and_env() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("volcano").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let stored = create(&client, &namespace, volcano_job("v", "dump")).await.unwrap();
    assert_eq!(stored["metadata"]["labels"]["process-recover-enable"], "on");
    let template = &stored["spec"]["tasks"][0]["template"];
    assert_eq!(template["metadata"]["annotations"]["recover-strategy"], "dump");
    assert_eq!(template["spec"]["containers"][0]["env"][1], json!({"name": "TTP_PORT", "value": "8000"}));
    let outcome = examine(&stored);
    assert!(outcome.operations.is_empty());
    assert_eq!(
        outcome.warnings.iter().map(|warning| warning.reason).collect::<Vec<_>>(),
        [Reason::VolcanoNoOperatorEnv]
    );
}

#[tokio::test]
async fn a_second_apply_keeps_the_injection_of_a_volcano_job() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("volcano-apply").await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for (name, flags) in
        [("client-side", &[][..]), ("server-side", &["--server-side", "--force-conflicts"][..])]
    {
        let stored = async |command: &[&str]| -> Value {
            let mut arguments = vec!["--namespace", namespace.as_str()];
            arguments.extend(command);
            arguments.extend(["-o", "json"]);
            serde_json::from_str(&rig.cluster.kubectl(&arguments).await.unwrap()).unwrap()
        };
        let apply = async |job: &Value| {
            std::fs::write(file.path(), job.to_string()).unwrap();
            let path = file.path().to_string_lossy();
            stored(&[&["apply", "-f", &*path][..], flags].concat()).await
        };
        let mut job = volcano_job(name, "dump");
        let first = apply(&job).await;
        assert_carries_the_hook(&first["spec"]["tasks"][0]["template"]);
        let second = apply(&job).await;
        assert_eq!(second["spec"], first["spec"], "{name}");
        assert_eq!(second["metadata"]["labels"], first["metadata"]["labels"], "{name}");
        assert!(examine(&second).operations.is_empty(), "{name}");
        assert_eq!(reviews(rig.cluster, &namespace, name), 2, "{name}");

        // Updates that keep the injection aren't sent to the webhook.
        let patch = r#"[{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 3}]"#;
        let scaled = stored(&["patch", "job.batch.volcano.sh", name, "--type=json", "-p", patch]).await;
        assert_carries_the_hook(&scaled["spec"]["tasks"][0]["template"]);
        assert_eq!(reviews(rig.cluster, &namespace, name), 2, "{name}");

        job["metadata"]["annotations"]["swansong.dev/inject"] = json!("false");
        let opted_out = apply(&job).await;
        assert!(
            opted_out["spec"]["tasks"][0]["template"]["spec"]["containers"][0].get("env").is_none(),
            "{name}"
        );
    }
}

/// How often requests for an object were sent to the webhook for jobs.
fn reviews(cluster: &Cluster, namespace: &str, name: &str) -> usize {
    let events = cluster.audit_log().unwrap().into_iter().filter(|event| {
        let is_object = |object: &ObjectReference| object.namespace == namespace && object.name == name;
        event.stage == "ResponseComplete" && event.object_ref.as_ref().is_some_and(is_object)
    });
    let notes = events.flat_map(|event| event.annotations.into_values());
    notes
        .filter(|note| note.contains(r#""webhook":"volcanojobs.swansong.dev""#) && note.contains("mutated"))
        .count()
}

/// Changing templates of controllers that reconcile would loop (kubernetes#61998, #58032).
#[tokio::test]
async fn other_workloads_are_not_changed_in_a_cluster() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("others").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let template = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"recover-strategy": "dump"}},
        "spec": {"containers": [{"name": "ascend", "image": "x"}], "restartPolicy": "Always"},
    });
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({"matchLabels": {"a": "b"}});
    let annotations = json!({"recover-strategy": "dump"});
    for (name, mut object) in [
        (
            "deployment",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"selector": selector, "template": template}}),
        ),
        (
            "statefulset",
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"selector": selector, "serviceName": "s", "template": template}}),
        ),
        ("job", json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": once}})),
    ] {
        object["metadata"] = json!({"name": name, "annotations": annotations});
        let stored = create(&client, &namespace, object).await.unwrap();
        assert!(stored["spec"]["template"]["spec"]["containers"][0].get("env").is_none(), "{name}");
        assert!(calls(rig.cluster, &namespace, name).is_empty(), "{name}");
    }
}

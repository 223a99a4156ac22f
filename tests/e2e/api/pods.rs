//! Pods: who reaches the webhook, and how the API server applies the answer.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{asking_pod, calls, create, creation, examine, rig};

fn plain(name: &str) -> Value {
    let mut pod = asking_pod(name, &json!([{"name": "ascend", "image": "train"}]));
    pod["metadata"].as_object_mut().unwrap().remove("annotations");
    pod
}

/// A Pod as ascend-operator makes it from a job that was never mutated: the marker is all there is.
fn marked(name: &str, variable: &str, value: &str) -> Value {
    let mut pod = plain(name);
    pod["spec"]["containers"][0]["env"] = json!([
        {"name": "ASCEND_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['huawei.com/Ascend910']"}}},
        {"name": variable, "value": value},
    ]);
    pod
}

fn env<'p>(pod: &'p Value, name: &str) -> Option<&'p Value> {
    pod["spec"]["containers"][0]["env"].as_array()?.iter().find(|entry| entry["name"] == name)
}

#[tokio::test]
async fn a_pod_with_the_marker_of_the_operator_is_injected() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("marked").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    for (name, variable, value) in [
        ("pytorch", "HIGH_AVAILABILITY", "dump,recover"),
        ("mindspore", "MS_ENABLE_TFT", "{TTP:1,UCE:1}"),
        ("mindspore-7", "MS_ENABLE_TFT", "'{TTP:1}'"),
    ] {
        let stored = create(&client, &namespace, marked(name, variable, value)).await.unwrap();
        assert_eq!(env(&stored, "TTP_PORT").unwrap()["value"], "8000", "{name}");
        assert_eq!(env(&stored, "POD_IP").unwrap()["valueFrom"]["fieldRef"]["fieldPath"], "status.podIP");
        assert!(env(&stored, "LD_PRELOAD").unwrap()["value"].as_str().unwrap().contains("libtaskd.so"));
        let ports = stored["spec"]["containers"][0]["ports"].as_array().unwrap();
        assert_eq!(ports.iter().map(|port| port["containerPort"].clone()).collect::<Vec<_>>(), [8000, 9601]);
        assert!(examine(&stored).operations.is_empty(), "a second pass has nothing to do");
    }
}

#[tokio::test]
async fn pods_without_a_strategy_are_not_reviewed() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("strangers").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let many: Vec<_> = (0..300).map(|n| json!({"name": format!("V{n}"), "value": "dump"})).collect();
    let containers: Vec<_> =
        (0..20).map(|n| json!({"name": format!("c{n}"), "image": "x", "env": many})).collect();
    let mut crowd = plain("crowd");
    crowd["spec"]["containers"] = json!(containers);
    let mut other = plain("other-strategy");
    other["metadata"]["annotations"] = json!({"recover-strategy": "recover,no-dump"});
    let mut opted_out = asking_pod("opted-out", &json!([{"name": "ascend", "image": "x"}]));
    opted_out["metadata"]["annotations"]["swansong.dev/inject"] = json!("false");
    for pod in [
        plain("plain"),
        crowd,
        other,
        opted_out,
        marked("recover-only", "HIGH_AVAILABILITY", "recover"),
        marked("other-feature", "MS_ENABLE_TFT", "{ARF:1}"),
        marked("other-variable", "PROCESS_RECOVER", "on"),
    ] {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let stored = create(&client, &namespace, pod).await.unwrap();
        assert!(creation(rig.cluster, &namespace, &name).is_some(), "{name} is in the audit log");
        assert!(calls(rig.cluster, &namespace, &name).is_empty(), "{name} was sent to the webhook");
        assert_eq!(env(&stored, "LD_PRELOAD"), None);
    }
    // The same log shows a call when there is one.
    create(&client, &namespace, asking_pod("ours", &json!([{"name": "ascend", "image": "x"}])))
        .await
        .unwrap();
    let calls = calls(rig.cluster, &namespace, "ours");
    assert_eq!(calls[0]["mutated"], true, "{calls:?}");
}

/// ovn-kubernetes PR#6053: a condition that fails on a missing map refuses the Pod under `Fail`.
#[tokio::test]
async fn match_conditions_never_fail_under_fail() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("fail").await.unwrap();
    let only_here = json!({
        "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    });
    // No server listens there, so every request is refused.
    let unreachable = json!({"url": "https://127.0.0.1:1/mutate"});
    let client = rig.cluster.client().await.unwrap();
    let mut configuration =
        crate::support::configuration(rig.cluster, "fail-closed", &unreachable, &only_here).await;
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        webhook["name"] = json!(format!("strict.{}", webhook["name"].as_str().unwrap()));
    }
    create(&client, "", configuration).await.unwrap();
    let asks =
        |number: u32| asking_pod(&format!("ours-{number}"), &json!([{"name": "ascend", "image": "x"}]));
    let number = std::cell::Cell::new(0);
    swansong_testcluster::eventually(
        "the configuration to be in force",
        std::time::Duration::from_secs(30),
        || async {
            number.set(number.get() + 1);
            match create(&client, &namespace, asks(number.get())).await {
                Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(()),
                Err(error) => Err(error.to_string()),
                Ok(_) => Err("not yet".to_owned()),
            }
        },
    )
    .await
    .unwrap();

    let from =
        json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B"}]);
    let mut variants = vec![plain("plain")];
    for (name, field, value) in [
        ("value-from", "env", from),
        ("env-null", "env", json!(null)),
        ("env-empty", "env", json!([])),
        ("env-from", "envFrom", json!([{"configMapRef": {"name": "c"}}])),
    ] {
        let mut pod = plain(name);
        pod["spec"]["containers"][0][field] = value;
        variants.push(pod);
    }
    for (name, annotations) in
        [("annotations-null", json!(null)), ("annotations-empty", json!({})), ("others", json!({"a": "b"}))]
    {
        let mut pod = plain(name);
        pod["metadata"]["annotations"] = annotations;
        variants.push(pod);
    }
    for pod in variants {
        let name = pod["metadata"]["name"].clone();
        create(&client, &namespace, pod).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for job in crate::jobs::without_strategy() {
        let kind = job["kind"].clone();
        create(&client, &namespace, job).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

/// Injected Pods of unusual shape pass the validation of the API server.
#[tokio::test]
async fn the_api_server_accepts_every_answer() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("validation").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let source = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
    let npu = json!({"limits": {"huawei.com/Ascend910": "8"}});
    let variants = [
        ("no-env", json!({})),
        ("env-empty", json!({"env": [], "ports": []})),
        ("env-null", json!({"env": null, "ports": null})),
        (
            "value-from",
            json!({"env": [{"name": "LD_PRELOAD", "valueFrom": source}, {"name": "B", "value": "$(LD_PRELOAD)"}]}),
        ),
        ("merged", json!({"env": [{"name": "LD_PRELOAD", "value": "/a.so /b.so"}]})),
        ("no-value", json!({"env": [{"name": "LD_PRELOAD"}]})),
        ("referred", json!({"env": [{"name": "U", "value": "$(POD_IP):$(TTP_PORT)"}]})),
        ("own-port", json!({"ports": [{"containerPort": 8000, "name": "http"}]})),
        ("own-ttp", json!({"env": [{"name": "TTP_PORT", "value": "9000"}]})),
        ("udp", json!({"ports": [{"containerPort": 8000, "protocol": "UDP", "name": "u"}]})),
        ("resources", json!({"resources": {"requests": {"cpu": "1m", "memory": "1.5Gi"}}})),
    ];
    for (name, fields) in variants {
        let mut container = json!({"name": "ascend", "image": "x"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let stored = create(&client, &namespace, asking_pod(name, &json!([container]))).await;
        let stored = stored.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            env(&stored, "LD_PRELOAD").unwrap()["value"].as_str().unwrap().contains("libmspti.so"),
            "{name}"
        );
        assert!(examine(&stored).operations.is_empty(), "{name}");
    }

    // Two containers under hostNetwork get one hostPort each.
    let mut host = asking_pod(
        "host",
        &json!([{"name": "a", "image": "x", "resources": npu}, {"name": "b", "image": "x", "resources": npu}]),
    );
    host["spec"]["hostNetwork"] = json!(true);
    let stored = create(&client, &namespace, host).await.unwrap();
    let ports = stored["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert_eq!(ports.iter().map(|port| port["hostPort"].clone()).collect::<Vec<_>>(), [8000, 9601]);
    assert!(stored["spec"]["containers"][1].get("ports").is_none());

    // Native sidecars keep their restartPolicy.
    let mut sidecars = asking_pod("sidecars", &json!([{"name": "ascend", "image": "x"}]));
    sidecars["spec"]["initContainers"] = json!([{"name": "a", "image": "x", "restartPolicy": "Always"}, {"name": "b", "image": "x", "restartPolicy": "Always"}]);
    sidecars["metadata"]["annotations"]["swansong.dev/containers"] = json!("ascend,b");
    let stored = create(&client, &namespace, sidecars).await.unwrap();
    let init = &stored["spec"]["initContainers"];
    assert_eq!([&init[0]["restartPolicy"], &init[1]["restartPolicy"]], ["Always", "Always"]);
    assert!(init[0].get("env").is_none() && init[1].get("env").is_some());

    // The request has no name.
    let mut generated = asking_pod("x", &json!([{"name": "ascend", "image": "x"}]));
    generated["metadata"]["generateName"] = json!("generated-");
    generated["metadata"].as_object_mut().unwrap().remove("name");
    let stored = create(&client, &namespace, generated).await.unwrap();
    assert!(env(&stored, "LD_PRELOAD").is_some());

    // A review of more than 1 MB is injected, managedFields included.
    let big: Vec<_> =
        (0..6_000).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x".repeat(100)})).collect();
    let stored = create(
        &client,
        &namespace,
        asking_pod("big", &json!([{"name": "ascend", "image": "x", "env": big}])),
    )
    .await
    .unwrap();
    assert!(env(&stored, "LD_PRELOAD").is_some());
}

/// An injected Pod accepts changes of its metadata and ephemeral containers.
#[tokio::test]
async fn injected_pods_can_be_updated() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("later").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    create(&client, &namespace, asking_pod("p", &json!([{"name": "ascend", "image": "x"}]))).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let parameters = PatchParams::default();
    pods.patch("p", &parameters, &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}))).await.unwrap();
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "x"}]}});
    let pod = pods
        .patch_subresource("ephemeralcontainers", "p", &parameters, &Patch::Strategic(debug))
        .await
        .unwrap();
    let ephemeral = &serde_json::to_value(pod).unwrap()["spec"]["ephemeralContainers"][0];
    assert!(ephemeral.get("env").is_none(), "{ephemeral}");
}

#[tokio::test]
async fn a_namespace_can_opt_out() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("out").await.unwrap();
    rig.cluster.kubectl(&["label", "namespace", &namespace, "swansong.dev/inject=false"]).await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    // The admission plugin watches namespaces and sees the label with a delay.
    let number = std::cell::Cell::new(0);
    swansong_testcluster::eventually("the label to be seen", std::time::Duration::from_secs(30), || async {
        number.set(number.get() + 1);
        let pod = asking_pod(&format!("p{}", number.get()), &json!([{"name": "ascend", "image": "x"}]));
        let stored = create(&client, &namespace, pod).await.map_err(|error| error.to_string())?;
        if env(&stored, "LD_PRELOAD").is_none() { Ok(()) } else { Err("still injected".to_owned()) }
    })
    .await
    .unwrap();
}

/// The client gets the warnings, and the audit log has the annotations.
#[tokio::test]
async fn warnings_and_audit_annotations_are_returned() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("warnings").await.unwrap();
    let pod = asking_pod(
        "p",
        &json!([{"name": "ascend", "image": "x", "ports": [{"containerPort": 8000, "name": "http"}]}]),
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pod.to_string()).unwrap();
    let output = std::process::Command::new(&rig.cluster.info().kubectl)
        .args(["create", "-n", &namespace, "-f"])
        .arg(file.path())
        .env("KUBECONFIG", rig.cluster.kubeconfig())
        .output()
        .unwrap();
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warnings.contains("PortNameDiffers") && warnings.contains("container ascend"), "{warnings}");
    let event = creation(rig.cluster, &namespace, "p").unwrap();
    let own: Vec<_> = event.annotations.keys().filter(|key| key.starts_with("pods.swansong.dev/")).collect();
    assert!(!own.is_empty(), "{:?}", event.annotations);
}

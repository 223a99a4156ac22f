//! Declaration of ports.

use super::*;

/// Reported as istio#41388, SREGym#49, cortex#138, operator PR#296.
#[test]
fn a_port_of_the_user_is_not_declared_twice() {
    let injected =
        pod(&ascend(json!({"ports": [{"containerPort": 8000, "name": "http", "protocol": "TCP"}]})));
    let ports = &injected.object["spec"]["containers"][0]["ports"];
    assert_eq!(names(ports, "containerPort"), [8000, 9601]);
    let [warning] = &injected.outcome.warnings[..] else { panic!("one warning") };
    assert_eq!(warning.reason, Reason::PortNameDiffers);
    assert!(
        warning.message.contains("\"http\"") && warning.message.contains("\"ttp-port\""),
        "{}",
        warning.message
    );
}

#[test]
fn a_port_without_a_name_is_warned_about() {
    let injected = pod(&ascend(json!({"ports": [{"containerPort": 9601}]})));
    assert_eq!(injected.warned(), [Reason::PortNameDiffers]);
    assert!(injected.outcome.warnings[0].message.contains("named ports only"));
}

#[test]
fn a_port_whose_name_is_taken_is_not_added() {
    let injected = pod(&ascend(json!({"ports": [{"containerPort": 7000, "name": "taskd-port"}]})));
    let ports = &injected.object["spec"]["containers"][0]["ports"];
    assert_eq!(names(ports, "containerPort"), [7000, 8000]);
    assert_eq!(injected.warned(), [Reason::PortNameTaken]);
}

/// The remedy of the reason `TtpPortUnknown`.
#[test]
fn a_declared_ttp_port_is_used_when_the_variable_is_unreadable() {
    let from = json!({"configMapKeyRef": {"name": "ports", "key": "ttp"}});
    let injected = pod(&ascend(json!({
        "env": [{"name": "TTP_PORT", "valueFrom": from}],
        "ports": [{"containerPort": 9000, "name": "ttp-port"}],
    })));
    let ports = &injected.object["spec"]["containers"][0]["ports"];
    assert_eq!(names(ports, "containerPort"), [9000, 9601]);
    assert_eq!(injected.warned(), [Reason::TtpPortUnknown]);
    assert!(injected.outcome.warnings[0].message.contains("port 9000 is taken"));
}

#[test]
fn a_udp_port_is_a_different_port() {
    let injected = pod(&ascend(json!({"ports": [{"containerPort": 8000, "protocol": "UDP", "name": "u"}]})));
    assert_eq!(
        names(&injected.object["spec"]["containers"][0]["ports"], "containerPort"),
        [8000, 8000, 9601]
    );
}

/// Reported as kubernetes#66568, #14586, ingress-nginx#6048.
#[test]
fn under_host_network_a_port_is_declared_once() {
    let mut object = pod_with(json!([
        {"name": "a", "resources": {"limits": {"huawei.com/Ascend910": "8"}}},
        {"name": "b", "resources": {"limits": {"huawei.com/Ascend910": "8"}}},
    ]));
    object["spec"]["hostNetwork"] = json!(true);
    let injected = pod(&object);
    let containers = &injected.object["spec"]["containers"];
    assert_eq!(names(&containers[0]["ports"], "containerPort"), [8000, 9601]);
    assert_eq!(containers[1]["ports"], Value::Null);
    assert_eq!(env_of(&containers[1], "LD_PRELOAD").unwrap(), &json!(ours()));
    assert_eq!(injected.warned(), [Reason::HostNetworkPortTaken; 2]);
}

#[test]
fn under_host_network_only_rank_zero_declares_ports() {
    let template = json!({"spec": {"hostNetwork": true, "containers": [{"name": "ascend"}]}});
    let job = json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": "j", "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": "dump"}},
        "spec": {"replicaSpecs": {"Master": {"template": template}, "Worker": {"template": template}}},
    });
    let injected = run(WorkloadKind::AscendJob, &job, &Policy::default());
    let specs = &injected.object["spec"]["replicaSpecs"];
    let ports = |replica: &str| specs[replica]["template"]["spec"]["containers"][0]["ports"].clone();
    assert_eq!(names(&ports("Master"), "containerPort"), [8000, 9601]);
    assert_eq!(ports("Worker"), Value::Null);
    assert_eq!(injected.noted(), [Reason::HostNetworkNotRankZero]);
    assert!(injected.outcome.notes[0].message.starts_with("replica Worker, container ascend: "));

    for (labels, env, expected) in [
        (json!({"training.kubeflow.org/job-role": "master"}), json!([]), true),
        (json!({"training.kubeflow.org/replica-type": "worker"}), json!([]), false),
        (json!({"training.kubeflow.org/replica-type": "scheduler"}), json!([]), true),
        (json!({}), json!([{"name": "RANK", "value": "0"}]), true),
        (json!({}), json!([{"name": "RANK", "value": "3"}]), false),
        (json!({}), json!([{"name": "MS_ROLE", "value": "MS_SCHED"}]), true),
        (json!({}), json!([{"name": "MS_ROLE", "value": "MS_WORKER"}]), false),
        (json!({"volcano.sh/job-name": "j"}), json!([]), false),
        (json!(null), json!(null), true),
    ] {
        let mut object = ascend(json!({"env": env}));
        object["spec"]["hostNetwork"] = json!(true);
        object["metadata"]["labels"] = labels.clone();
        let injected = pod(&object);
        assert_eq!(injected.outcome.templates[0].rank_zero, expected, "{labels} {env}");
        assert_eq!(injected.object["spec"]["containers"][0]["ports"].is_array(), expected, "{labels} {env}");
    }
}

#[test]
fn several_pods_with_host_ports_are_warned_about() {
    let template = json!({"spec": {"hostNetwork": true, "containers": [{"name": "ascend"}]}});
    let mut object = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "v", "labels": {"process-recover-enable": "on"}, "annotations": {"recover-strategy": "dump"}},
        "spec": {"tasks": [{"name": "t", "replicas": 4, "template": template}]},
    });
    let injected = run(WorkloadKind::VolcanoJob, &object, &Policy::default());
    assert_eq!(injected.warned(), [Reason::HostNetworkSeveralPods, Reason::VolcanoNoOperatorEnv]);
    object["spec"]["tasks"][0]["replicas"] = json!(1);
    let injected = run(WorkloadKind::VolcanoJob, &object, &Policy::default());
    assert_eq!(injected.warned(), [Reason::VolcanoNoOperatorEnv]);
}

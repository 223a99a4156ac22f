//! Ways to break a link, and the check that has to say so.

use serde_json::{Value, json};

use super::change::Change;
use super::objects::{self, NAMESPACE, NODES, PODS};

/// A row: what is broken, how, the check that names it, and its status.
pub(super) type Breakage = (&'static str, Change, &'static str, &'static str);

/// Sets a variable as the user's template does: in front of what the operator appends, and instead of the webhook's.
fn set(pod: &mut Value, name: &str, value: &str) {
    let env = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    let variable = json!({"name": name, "value": value});
    match env.iter_mut().find(|known| known["name"] == name) {
        Some(known) => *known = variable,
        None => env.insert(0, variable),
    }
}

/// Replaces a variable of the operator.
fn overwrite(pod: &mut Value, name: &str, value: &str) {
    let env = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    env.retain(|variable| variable["name"] != name);
    env.push(json!({"name": name, "value": value}));
}

pub(super) fn of_installation() -> Vec<Breakage> {
    use Change::{Agent, Delete, Merge, Status};
    const SYSTEM: &str = "swansong-system";
    let replicas = |count: i32| json!({"status": {"availableReplicas": count, "readyReplicas": count}});
    let refused = json!({"status": {"conditions": [
        objects::condition("DumpReady", "True", "ChecksPass"), objects::condition("FaultsRelayed", "False", "FaultRelayRefused"),
    ]}});
    let rehearsed = |status: &str, at: u64| json!({"metadata": {"annotations": {"swansong.dev/rehearsal": objects::rehearsal(status, at)}}});
    let long_ago = objects::millis() - 60 * 24 * 60 * 60 * 1000;
    let unreachable = json!({"ports": [{"name": "https", "port": 1}]});
    let both_pass = "the other node's rehearsal still shows the sender";
    vec![
        (
            "no configuration",
            Delete("MutatingWebhookConfiguration", "", "swansong"),
            "webhook-configuration",
            "fail",
        ),
        (
            "no replica",
            Status("Deployment", SYSTEM, "swansong-webhook", replicas(0)),
            "webhook-replicas",
            "fail",
        ),
        (
            "one of two",
            Status("Deployment", SYSTEM, "swansong-webhook", replicas(1)),
            "webhook-replicas",
            "warn",
        ),
        (
            "no ready endpoint",
            Merge("EndpointSlice", SYSTEM, "swansong-webhook-1", json!({"endpoints": []})),
            "webhook-endpoints",
            "fail",
        ),
        (
            "the network drops the webhook",
            Merge("EndpointSlice", SYSTEM, "swansong-webhook-1", unreachable),
            "webhook-reachable",
            "fail",
        ),
        (
            "no policy",
            Delete("ValidatingAdmissionPolicyBinding", "", "swansong-webhook"),
            "admission-policies",
            "warn",
        ),
        (
            "an agent isn't ready",
            Status("DaemonSet", "swansong-agent", "swansong-agent", json!({"status": {"numberReady": 1}})),
            "agents",
            "warn",
        ),
        ("an older agent", Agent(0, |status| status["version"] = "0.0.9".into()), "versions", "warn"),
        (
            "ClusterD isn't ready",
            Merge("EndpointSlice", "mindx-dl", "clusterd-grpc-svc-1", json!({"endpoints": []})),
            "clusterd",
            "fail",
        ),
        (
            "ClusterD publishes nothing",
            Delete("ConfigMap", "mindx-dl", "cluster-info-device-0"),
            "cluster-info",
            "fail",
        ),
        ("ClusterD answers with 410", Status("Node", "", NODES[0], refused), "sender-registered", "fail"),
        (both_pass, Merge("Node", "", NODES[0], rehearsed("fail", objects::millis())), "rehearsal", "fail"),
        ("a rehearsal long ago", Merge("Node", "", NODES[0], rehearsed("pass", long_ago)), "", ""),
    ]
}

pub(super) fn of_job() -> Vec<Breakage> {
    use Change::{Delete, Merge};
    let job = |change: Value| Merge("AscendJob", NAMESPACE, "bert", change);
    let label = |name: &str, value: Value| json!({"metadata": {"labels": {name: value}}});
    let annotation = |name: &str, value: Value| json!({"metadata": {"annotations": {name: value}}});
    let group = |change: Value| Merge("PodGroup", NAMESPACE, "bert-1", change);
    let map =
        |name: &'static str, change: Value| Merge("ConfigMap", NAMESPACE, name, json!({"data": change}));
    let queue = |state: &str| Merge("Queue", "", "default", json!({"status": {"state": state}}));
    let no_ports = json!({"spec": {"replicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "ascend", "ports": [{"containerPort": 8000, "protocol": "TCP"}]}]}}}}}});
    let service = json!({"spec": {"ports": [{"name": "taskd-port", "port": 9601, "protocol": "TCP"}]}});
    let strategy = |text: &str| annotation("recover-strategy", text.into());
    vec![
        ("blank in the strategy", job(strategy("recover, dump")), "strategy", "fail"),
        ("no dump", job(strategy("recover")), "strategy", "fail"),
        ("misspelt strategy", job(strategy("dump,Recover")), "strategy", "warn"),
        ("no PodGroup", Delete("PodGroup", NAMESPACE, "bert-1"), "pod-group", "fail"),
        (
            "PodGroup without the strategy",
            group(annotation("recover-strategy", Value::Null)),
            "pod-group",
            "fail",
        ),
        ("PodGroup with a blank", group(strategy("recover, dump")), "pod-group", "fail"),
        ("job edited afterwards", job(strategy("recover,dump")), "pod-group", "warn"),
        ("no label", group(label("process-recover-enable", Value::Null)), "recovery-enabled", "fail"),
        ("label off", group(label("process-recover-enable", "off".into())), "recovery-enabled", "fail"),
        ("label pause", group(label("process-recover-enable", "pause".into())), "recovery-enabled", "warn"),
        (
            "platform mode",
            group(annotation("ProcessRecoverStrategy", "dump".into())),
            "platform-mode",
            "warn",
        ),
        ("queue closed", queue("Closed"), "queue", "fail"),
        ("queue unknown", group(json!({"spec": {"queue": "other"}})), "queue", "fail"),
        ("template without 9601", job(no_ports), "template-ports", "fail"),
        (
            "Service without 8000",
            Merge("Service", NAMESPACE, "bert-master-0", service),
            "service-ports",
            "fail",
        ),
        ("no Service", Delete("Service", NAMESPACE, "bert-master-0"), "service-ports", "fail"),
        (
            "Service without endpoints",
            Merge("EndpointSlice", NAMESPACE, "bert-master-0-1", json!({"endpoints": []})),
            "service-endpoints",
            "fail",
        ),
        ("no reset ConfigMap", Delete("ConfigMap", NAMESPACE, "reset-config-bert"), "reset-config", "fail"),
        ("broken reset.json", map("reset-config-bert", json!({"reset.json": "{"})), "reset-config", "fail"),
        ("no reset.json", map("reset-config-bert", json!({"reset.json": null})), "reset-config", "fail"),
        (
            "ClusterD doesn't know the job",
            Delete("ConfigMap", NAMESPACE, "job-summary-bert"),
            "job-summary",
            "fail",
        ),
        (
            "pending at ClusterD",
            map("job-summary-bert", json!({"job_status": "pending"})),
            "job-summary",
            "fail",
        ),
        (
            "cleanPodPolicy",
            job(json!({"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}})),
            "clean-pod-policy",
            "warn",
        ),
        ("force", job(label("fault-scheduling", "force".into())), "fault-scheduling", "warn"),
        ("no retry", job(label("fault-retry-times", "0".into())), "fault-retry-times", "warn"),
    ]
}

pub(super) fn of_pods() -> Vec<Breakage> {
    use Change::{Delete, Plain, Pod, Pods, Status, WithoutWebhook};
    let pending = json!({"status": {"phase": "Pending"}});
    vec![
        ("a Pod waits", Status("Pod", NAMESPACE, PODS[1], pending), "pods-running", "fail"),
        (
            "a Pod has failed",
            Status("Pod", NAMESPACE, PODS[1], json!({"status": {"phase": "Failed"}})),
            "pods-running",
            "fail",
        ),
        ("a Pod is missing", Delete("Pod", NAMESPACE, PODS[1]), "pods-running", "fail"),
        ("the webhook was away", WithoutWebhook { connected: 0 }, "admitted", "fail"),
        ("it was, and the image needs nothing", WithoutWebhook { connected: 2 }, "admitted", "warn"),
        (
            "operator without dump",
            Pod(1, |pod| overwrite(pod, "HIGH_AVAILABILITY", "recover")),
            "operator-environment",
            "fail",
        ),
        (
            "PROCESS_RECOVER",
            Pod(1, |pod| overwrite(pod, "PROCESS_RECOVER", "off")),
            "operator-environment",
            "fail",
        ),
        ("POD_IP of another Pod", Pod(1, |pod| set(pod, "POD_IP", "10.9.9.9")), "pod-ip", "fail"),
        ("POD_IP before its source", Pod(1, |pod| set(pod, "POD_IP", "$(LATER)")), "pod-ip", "fail"),
        ("port 9000", Pod(1, |pod| set(pod, "TTP_PORT", "9000")), "ttp-port", "fail"),
        ("no number", Pod(1, |pod| set(pod, "TTP_PORT", "eight")), "ttp-port", "fail"),
        ("privileged port", Pod(1, |pod| set(pod, "TTP_PORT", "80")), "ttp-port", "fail"),
        ("an unused address", Pod(1, |pod| set(pod, "TTP_ADDR", "10.9.9.9")), "controller-address", "fail"),
        ("loopback", Pod(1, |pod| set(pod, "TTP_ADDR", "127.0.0.1")), "controller-address", "fail"),
        (
            "literal reference",
            Pod(1, |pod| set(pod, "TTP_ADDR", "$(MASTER_ADDR)")),
            "controller-address",
            "fail",
        ),
        (
            "PROCESSOR_ADDR wins",
            Pod(1, |pod| set(pod, "PROCESSOR_ADDR", "10.9.9.9")),
            "controller-address",
            "fail",
        ),
        (
            "MASTER_ADDR is a name",
            Pod(1, |pod| overwrite(pod, "MASTER_ADDR", "bert-master-0.ml.svc")),
            "master-address",
            "fail",
        ),
        ("TaskD off", Pod(1, |pod| set(pod, "TASKD_PROCESS_ENABLE", "off")), "taskd-enabled", "fail"),
        ("short save", Pod(1, |pod| set(pod, "TTP_NORMAL_ACTION_TIME_LIMIT", "20")), "save-limit", "fail"),
        ("long save", Pod(1, |pod| set(pod, "TTP_NORMAL_ACTION_TIME_LIMIT", "3600")), "save-limit", "fail"),
        ("short wait", Pod(1, |pod| set(pod, "MINDIO_WAIT_MINDX_TIME", "10")), "order-limit", "warn"),
        ("no wait", Pod(1, |pod| set(pod, "MINDIO_WAIT_MINDX_TIME", "0")), "order-limit", "fail"),
        (
            "restarts in place",
            Pod(1, |pod| pod["spec"]["restartPolicy"] = "Always".into()),
            "restart-policy",
            "fail",
        ),
        (
            "two on one host",
            Pods(|pod| {
                pod["spec"]["hostNetwork"] = true.into();
                pod["spec"]["nodeName"] = NODES[0].into();
            }),
            "host-network",
            "fail",
        ),
        (
            "no devices",
            Pod(1, |pod| {
                let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
                annotations.remove("ascend.kubectl.kubernetes.io/ascend-910-configuration");
            }),
            "pod-devices",
            "fail",
        ),
        (
            "no hook",
            Plain(1, |pod| pod["metadata"]["annotations"]["swansong.dev/protect-dump"] = "false".into()),
            "launcher-hook",
            "warn",
        ),
    ]
}

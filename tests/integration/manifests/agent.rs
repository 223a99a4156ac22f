//! The agent's manifests: privileges of its pods and changes of the overlays.

use std::fs;

use serde_json::{Value, json};
use swansong_agent::config::Config;

use crate::kustomize::{AGENT_OVERLAYS, Rendered, identity, items, root, texts};

const NAMESPACE: &str = "swansong-agent";

fn all() -> impl Iterator<Item = Rendered> {
    AGENT_OVERLAYS.into_iter().map(Rendered::of)
}

fn pod(rendered: &Rendered) -> &Value {
    &rendered.one("DaemonSet")["spec"]["template"]["spec"]
}

fn container(rendered: &Rendered) -> &Value {
    let containers = &pod(rendered)["containers"];
    assert_eq!(items(containers).count(), 1);
    &containers[0]
}

/// Paths at which an overlay differs from the base.
fn difference(overlay: &'static str) -> Vec<String> {
    let (base, rendered) = (Rendered::of("agent"), Rendered::of(overlay));
    let mut paths = Vec::new();
    for object in &rendered.objects {
        let Some(same) = base.objects.iter().find(|other| identity(other) == identity(object)) else {
            paths.push(format!("new {}", identity(object)));
            continue;
        };
        let kind = object["kind"].as_str().expect("a kind");
        paths.extend(
            json_patch::diff(same, object).0.iter().map(|operation| format!("{kind} {}", operation.path())),
        );
    }
    let is_there = |object: &Value| rendered.objects.iter().any(|other| identity(other) == identity(object));
    assert!(base.objects.iter().all(is_there), "{overlay} takes something away");
    paths
}

#[test]
fn the_base_is_neither_privileged_nor_root() {
    let rendered = Rendered::of("agent");
    let spec = pod(&rendered);
    for forbidden in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(spec.get(forbidden).is_none(), "{forbidden}");
    }
    let expected = json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "supplementalGroups": [1000],
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    assert_eq!(spec["securityContext"], expected);
    let expected = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(container(&rendered)["securityContext"], expected);
    for rendered in all() {
        for mount in items(&container(&rendered)["volumeMounts"]) {
            // The agent writes to its own folder only.
            let own = json!({"name": "state", "mountPath": "/var/lib/swansong"});
            assert!(mount["readOnly"] == true || *mount == own, "{mount}");
            assert!(mount.get("subPath").is_none(), "{mount}");
        }
    }
}

/// A mount of the driver's folder alone would keep the old one after the folder is replaced.
#[test]
fn the_host_is_mounted_with_later_mounts() {
    for rendered in all() {
        let args = texts(&container(&rendered)["args"]);
        let root = args.iter().find_map(|arg| arg.strip_prefix("--host-root=")).expect("a host root");
        let mut mounts = items(&container(&rendered)["volumeMounts"]);
        let mount = mounts.find(|mount| mount["mountPath"] == root).expect("the mount");
        assert_eq!(mount["mountPropagation"], "HostToContainer");
        let volume = items(&pod(&rendered)["volumes"])
            .find(|volume| volume["name"] == mount["name"])
            .expect("the volume");
        assert_eq!(volume["hostPath"], json!({"path": "/", "type": "Directory"}));
    }
}

#[test]
fn the_agent_tolerates_every_taint() {
    for rendered in all() {
        assert_eq!(pod(&rendered)["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(pod(&rendered)["priorityClassName"], "system-node-critical");
        for (probe, path) in
            [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
        {
            assert_eq!(
                container(&rendered)[probe]["httpGet"],
                json!({"path": path, "port": "health"}),
                "{probe}"
            );
        }
    }
}

#[test]
fn overlays_change_only_the_documented_fields() {
    let nodes = [
        "DaemonSet /spec/template/spec/affinity",
        "DaemonSet /spec/template/spec/nodeSelector/workerselector",
    ];
    let preload = [
        "DaemonSet /spec/template/spec/containers/0/securityContext/capabilities/add",
        "DaemonSet /spec/template/spec/containers/0/volumeMounts/2",
        "DaemonSet /spec/template/spec/securityContext/runAsGroup",
        "DaemonSet /spec/template/spec/securityContext/runAsNonRoot",
        "DaemonSet /spec/template/spec/securityContext/runAsUser",
        "DaemonSet /spec/template/spec/volumes/2",
    ];
    let faults = [
        "DaemonSet /spec/template/spec/containers/0/args/5",
        "DaemonSet /spec/template/spec/containers/0/securityContext/allowPrivilegeEscalation",
        "DaemonSet /spec/template/spec/containers/0/securityContext/capabilities",
        "DaemonSet /spec/template/spec/containers/0/securityContext/privileged",
        "DaemonSet /spec/template/spec/containers/0/volumeMounts/2",
        "DaemonSet /spec/template/spec/securityContext/runAsGroup",
        "DaemonSet /spec/template/spec/securityContext/runAsNonRoot",
        "DaemonSet /spec/template/spec/securityContext/runAsUser",
        "DaemonSet /spec/template/spec/volumes/2",
        "new ClusterRole swansong-agent-faults",
        "new ClusterRoleBinding swansong-agent-faults",
        "new Role kube-system/swansong-agent-faults",
        "new Role swansong-agent/swansong-agent-faults",
        "new RoleBinding kube-system/swansong-agent-faults",
        "new RoleBinding swansong-agent/swansong-agent-faults",
        "new ValidatingAdmissionPolicy swansong-agent-faults",
        "new ValidatingAdmissionPolicyBinding swansong-agent-faults",
    ];
    let fast = faults.iter().map(|path| {
        // Capabilities are replaced instead of removed.
        let is_removed = path.ends_with("/capabilities");
        if is_removed {
            ["/add", "/drop"].map(|end| format!("{path}{end}")).to_vec()
        } else {
            vec![(*path).to_owned()]
        }
    });
    let fast: Vec<String> =
        fast.flatten().chain(["DaemonSet /spec/template/spec/hostPID".to_owned()]).collect();
    for (overlay, expected) in [
        ("overlays/agent-fast-dump", fast.iter().map(String::as_str).collect()),
        ("overlays/agent-faults", faults.to_vec()),
        ("overlays/agent-mindcluster", nodes.to_vec()),
        ("overlays/agent-preload-check", preload.to_vec()),
        ("overlays/agent-mindcluster-preload-check", [&nodes[..], &preload].concat()),
    ] {
        let (mut difference, mut expected) = (difference(overlay), expected);
        difference.sort_unstable();
        expected.sort_unstable();
        assert_eq!(difference, expected, "{overlay}");
    }
    let rendered = Rendered::of("overlays/agent-preload-check");
    assert_eq!(
        container(&rendered)["securityContext"]["capabilities"],
        json!({"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_READ_SEARCH"]})
    );
    assert!(pod(&rendered).get("hostPID").is_none());
    let rendered = Rendered::of("overlays/agent-fast-dump");
    let capabilities = json!({"add": ["KILL", "SYS_PTRACE", "DAC_READ_SEARCH"]});
    assert_eq!(container(&rendered)["securityContext"]["capabilities"], capabilities);
    assert!(
        Rendered::of("overlays/agent-faults")
            .objects
            .iter()
            .all(|object| object.pointer("/spec/template/spec/hostPID").is_none())
    );
    let rendered = Rendered::of("overlays/agent-mindcluster");
    assert_eq!(pod(&rendered)["nodeSelector"]["workerselector"], "dls-worker-node");
}

#[test]
fn references_between_objects_resolve() {
    for rendered in all() {
        let labels = &rendered.one("DaemonSet")["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&rendered.one("DaemonSet")["spec"]["selector"]["matchLabels"], labels);
        assert_eq!(&rendered.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"], labels);
        let account = &rendered.one("ServiceAccount")["metadata"]["name"];
        assert_eq!(&pod(&rendered)["serviceAccountName"], account);
        let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE});
        for kind in ["ClusterRole", "Role"] {
            for binding in rendered.of_kind(&format!("{kind}Binding")) {
                assert_eq!(binding["subjects"], json!([subject]));
                assert_eq!(binding["roleRef"]["kind"], kind);
                let (name, namespace) = (&binding["roleRef"]["name"], &binding["metadata"]["namespace"]);
                let is_it = |role: &&Value| {
                    role["metadata"]["name"] == *name && role["metadata"]["namespace"] == *namespace
                };
                assert_eq!(rendered.of_kind(kind).filter(is_it).count(), 1, "{}", identity(binding));
            }
        }
        let user = format!("'system:serviceaccount:{NAMESPACE}:{}'", account.as_str().expect("a name"));
        for policy in rendered.of_kind("ValidatingAdmissionPolicy") {
            let by = policy["spec"]["matchConditions"][0]["expression"].as_str().expect("a condition");
            assert!(by.ends_with(&user), "{by}");
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
            let mut bindings = rendered.of_kind("ValidatingAdmissionPolicyBinding");
            let binding =
                bindings.find(|binding| binding["spec"]["policyName"] == policy["metadata"]["name"]);
            assert_eq!(binding.expect("a binding")["spec"]["validationActions"], json!(["Deny"]));
        }
        let health = &container(&rendered)["ports"][0]["containerPort"];
        assert_eq!(&rendered.one("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"], health);
        assert!(
            texts(&container(&rendered)["args"])
                .contains(&format!("--health-listen=$(POD_IP):{health}").as_str())
        );
        rendered.assert_ours(NAMESPACE);
    }
}

/// The policy uses the constants of the agent.
#[test]
fn the_policy_names_what_the_agent_writes() {
    let policies =
        fs::read_to_string(root().join("manifests/agent/admission-policy.yaml")).expect("the policy");
    for name in [
        "swansong.dev/dump-ready",
        "swansong.dev/boot-id",
        "swansong.dev/not-ready",
        "DumpReady",
        "FaultsRelayed",
    ] {
        assert!(policies.contains(&format!("'{name}'")), "{name}");
    }
}

#[test]
fn the_shipped_configuration_is_the_default_and_its_comments_are_sound() {
    let rendered = Rendered::of("agent");
    let text = rendered.one("ConfigMap")["data"]["agent.yaml"].as_str().expect("agent.yaml");
    assert_eq!(Config::parse(text).expect("sound"), Config::default());
    let shown: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.contains(": ") || line.ends_with(':'))
        .filter(|line| !line.contains(". ") && !line.ends_with("keys:"))
        .collect();
    let config = Config::parse(&shown.join("\n")).expect("sound");
    assert_ne!(config, Config::default(), "{shown:?}");
}

/// For API servers without ValidatingAdmissionPolicy.
#[test]
fn the_policy_can_be_left_out() {
    let folder = tempfile::tempdir_in(crate::kustomize::target()).expect("a folder");
    let kustomization =
        "resources: [../../manifests/agent]\ncomponents: [../../manifests/components/agent-before-1.30]\n";
    fs::write(folder.path().join("kustomization.yaml"), kustomization).expect("written");
    let kinds = crate::kustomize::parse(&crate::kustomize::kustomize(folder.path()));
    assert!(kinds.iter().all(|object| object["apiVersion"] != "admissionregistration.k8s.io/v1"));
    assert_eq!(kinds.len() + 4, Rendered::of("agent").objects.len());
}

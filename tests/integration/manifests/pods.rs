//! The Pods that are run: how little they may, and how they are kept alive.

use serde_json::json;

use crate::kustomize::{Rendered, items};

#[test]
fn pods_meet_the_restricted_standard() {
    for rendered in Rendered::all() {
        let labels = &rendered.one("Namespace")["metadata"]["labels"];
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
        let pod = &rendered.pod()["spec"];
        for forbidden in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod.get(forbidden).is_none(), "{forbidden}");
        }
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["runAsUser"], 65532);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let container = &rendered.container()["securityContext"];
        assert_eq!(container["allowPrivilegeEscalation"], false);
        assert_eq!(container["readOnlyRootFilesystem"], true);
        assert_eq!(container["capabilities"], json!({ "drop": ["ALL"] }));
        for volume in items(&pod["volumes"]) {
            assert!(volume.get("configMap").or(volume.get("secret")).is_some(), "{volume}");
        }
        for mount in items(&rendered.container()["volumeMounts"]) {
            assert_eq!(mount["readOnly"], true);
            // A file mounted by subPath is never renewed.
            assert!(mount.get("subPath").is_none(), "{mount}");
        }
    }
}

#[test]
fn replicas_have_probes_limits_and_a_disruption_budget() {
    for rendered in Rendered::all() {
        let deployment = &rendered.one("Deployment")["spec"];
        assert!(deployment["replicas"].as_u64().is_some_and(|replicas| replicas >= 2));
        assert_eq!(deployment["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
        assert_eq!(rendered.one("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
        let pod = &rendered.pod()["spec"];
        assert!(pod["terminationGracePeriodSeconds"].as_u64().is_some_and(|seconds| seconds >= 30));
        assert_eq!(pod["nodeSelector"], json!({ "kubernetes.io/os": "linux" }));
        let container = rendered.container();
        for (probe, path) in
            [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
        {
            assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "health" }), "{probe}");
        }
        for path in ["requests/cpu", "requests/memory", "limits/memory"] {
            assert!(container.pointer(&format!("/resources/{path}")).is_some(), "{path}");
        }
    }
}

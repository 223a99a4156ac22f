//! References between objects.

use serde_json::Value;

use crate::kustomize::{NAMESPACE, Rendered, items};

#[test]
fn references_between_objects_resolve() {
    for rendered in Rendered::all() {
        let labels = &rendered.pod()["metadata"]["labels"];
        let service = rendered.one("Service");
        assert_eq!(&service["spec"]["selector"], labels);
        for selector in [
            &rendered.one("Deployment")["spec"]["selector"],
            &rendered.one("PodDisruptionBudget")["spec"]["selector"],
            &rendered.one("NetworkPolicy")["spec"]["podSelector"],
        ] {
            assert_eq!(&selector["matchLabels"], labels, "{}", rendered.overlay);
        }

        let ports: Vec<&Value> = items(&rendered.container()["ports"]).map(|port| &port["name"]).collect();
        for port in items(&service["spec"]["ports"]) {
            assert!(ports.contains(&&port["targetPort"]), "{port}");
        }
        for webhook in rendered.webhooks() {
            let client = &webhook["clientConfig"]["service"];
            assert_eq!(client["name"], service["metadata"]["name"]);
            assert_eq!(client["namespace"], service["metadata"]["namespace"]);
            assert_eq!(client["port"], service["spec"]["ports"][0]["port"]);
            assert_eq!(client["path"], "/mutate");
        }

        let account = &rendered.one("ServiceAccount")["metadata"]["name"];
        assert_eq!(&rendered.pod()["spec"]["serviceAccountName"], account);
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            for binding in rendered.of_kind(kind) {
                assert_eq!(&binding["subjects"][0]["name"], account);
            }
        }
        rendered.assert_ours(NAMESPACE);
    }
}

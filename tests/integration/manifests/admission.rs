//! Rules and failure policy of the webhook configuration.

use serde_json::json;
use swansong_inject::policy::Policy;

use crate::kustomize::{NAMESPACE, Rendered, items, texts};
#[test]
fn only_the_strict_overlay_denies_without_the_webhook() {
    for rendered in Rendered::all() {
        let expected = if rendered.overlay == "overlays/strict" { "Fail" } else { "Ignore" };
        for webhook in rendered.webhooks() {
            assert_eq!(webhook["failurePolicy"], expected, "{}: {}", rendered.overlay, webhook["name"]);
            assert!(webhook["timeoutSeconds"].as_u64().is_some_and(|seconds| seconds <= 5));
        }
    }
}

#[test]
fn creation_of_supported_kinds_and_updates_of_volcano_jobs_are_reviewed() {
    for rendered in Rendered::all() {
        let mut watched = Vec::new();
        for webhook in rendered.webhooks() {
            for rule in items(&webhook["rules"]) {
                // A second `kubectl apply` of a Volcano Job would take the injection away.
                let is_volcano = webhook["name"] == "volcanojobs.swansong.dev";
                let operations = if is_volcano { json!(["CREATE", "UPDATE"]) } else { json!(["CREATE"]) };
                assert_eq!(rule["operations"], operations, "{}", webhook["name"]);
                assert_eq!(rule["scope"], "Namespaced");
                let parts: Vec<_> = ["apiGroups", "apiVersions", "resources"]
                    .iter()
                    .map(|key| texts(&rule[*key]).join("+"))
                    .collect();
                watched.push(parts.join("/"));
            }
            assert_eq!(webhook["sideEffects"], "None");
            assert_eq!(webhook["matchPolicy"], "Equivalent");
            assert_eq!(webhook["reinvocationPolicy"], "IfNeeded");
            assert_eq!(webhook["admissionReviewVersions"], json!(["v1"]));
            assert!(
                items(&webhook["matchConditions"]).count() > 0,
                "{} asks about everything",
                webhook["name"]
            );
        }
        watched.sort_unstable();
        let expected = ["/v1/pods", "batch.volcano.sh/v1alpha1/jobs", "mindxdl.gitee.com/v1/ascendjobs"];
        assert_eq!(watched, expected, "{}", rendered.overlay);
    }
}
#[test]
fn the_webhook_and_the_cluster_start_without_the_webhook() {
    for rendered in Rendered::all() {
        for webhook in rendered.webhooks() {
            let expressions = &webhook["namespaceSelector"]["matchExpressions"];
            let excluded = |key: &str| -> Vec<&str> {
                let expression = items(expressions).find(|expression| expression["key"] == key);
                let expression =
                    expression.unwrap_or_else(|| panic!("{} doesn't match {key}", webhook["name"]));
                assert_eq!(expression["operator"], "NotIn");
                texts(&expression["values"])
            };
            let names = excluded("kubernetes.io/metadata.name");
            for name in [NAMESPACE, "kube-system", "kube-node-lease", "kube-public"] {
                assert!(names.contains(&name), "{} doesn't exclude {name}", webhook["name"]);
            }
            assert_eq!(excluded("swansong.dev/inject"), ["false"]);
        }
        assert_eq!(rendered.one("Namespace")["metadata"]["labels"]["swansong.dev/inject"], "false");
    }
}

#[test]
fn match_conditions_have_every_default_trigger() {
    let rendered = Rendered::of("base");
    let pods = rendered.webhooks().find(|webhook| webhook["name"] == "pods.swansong.dev").expect("pods");
    let conditions = pods["matchConditions"].to_string();
    for trigger in &Policy::default().triggers {
        assert!(conditions.contains(&format!("'{trigger}'")), "{trigger}");
    }
    for webhook in rendered.webhooks() {
        let conditions = webhook["matchConditions"].to_string();
        assert!(conditions.contains(swansong_api::annotations::RECOVER_STRATEGY), "{}", webhook["name"]);
    }
}

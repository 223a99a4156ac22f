//! The rules of the webhook's NetworkPolicy in every overlay; `tests/e2e/node/policies.rs` can have them enforced.

use serde_json::{Value, json};

use crate::kustomize::{Rendered, items};

/// Numbers of the ports in a rule, each of which is TCP.
fn ports(rule: &Value) -> Vec<u64> {
    let ports = items(&rule["ports"]);
    ports
        .map(|port| {
            assert_eq!(port["protocol"], "TCP");
            port["port"].as_u64().expect("by number")
        })
        .collect()
}

#[test]
fn only_listening_ports_are_open() {
    for rendered in Rendered::all() {
        let policy = &rendered.one("NetworkPolicy")["spec"];
        // A missing type would leave its direction open.
        assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["podSelector"]["matchLabels"], rendered.pod()["metadata"]["labels"]);

        let number = |name: &str| {
            let mut ports = items(&rendered.container()["ports"]);
            ports.find(|port| port["name"] == name).and_then(|port| port["containerPort"].as_u64())
        };
        let (https, health) = (number("https").expect("https"), number("health").expect("health"));
        let target = &rendered.one("Service")["spec"]["ports"][0]["targetPort"];
        assert_eq!(target, "https", "what the Service leads to");
        let rules: Vec<&Value> = items(&policy["ingress"]).collect();
        assert_eq!(rules.iter().map(|rule| ports(rule)).collect::<Vec<_>>(), [[https], [health]]);
        // API servers are on no network that could be selected; metrics are for Pods.
        assert!(rules[0].get("from").is_none());
        assert_eq!(rules[1]["from"], json!([{ "namespaceSelector": {} }]));
    }
}

#[test]
fn egress_is_limited_to_api_servers() {
    for rendered in Rendered::all() {
        let egress = items(&rendered.one("NetworkPolicy")["spec"]["egress"]);
        assert_eq!(egress.map(ports).collect::<Vec<_>>(), [[443, 5443, 6443]], "{}", rendered.overlay);
    }
}

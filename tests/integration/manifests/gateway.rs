//! The gateway, and what an agent needs to reach it.

use serde_json::{Value, json};

use crate::kustomize::{Rendered, items, texts};

#[test]
fn gateway_may_only_review_tokens() {
    let gateway = Rendered::of("gateway");
    gateway.assert_ours("swansong-agent");
    let reviews =
        json!([{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]);
    assert_eq!(gateway.one("ClusterRole")["rules"], reviews);
    let binding = gateway.one("ClusterRoleBinding");
    let account = &gateway.one("ServiceAccount")["metadata"];
    assert_eq!(binding["roleRef"]["name"], gateway.one("ClusterRole")["metadata"]["name"]);
    assert_eq!(binding["subjects"][0]["name"], account["name"]);
    assert_eq!(binding["subjects"][0]["namespace"], account["namespace"]);
    assert_eq!(gateway.pod()["spec"]["serviceAccountName"], account["name"]);
}

#[test]
fn replica_count_matches_its_flag() {
    let gateway = Rendered::of("gateway");
    let spec = &gateway.one("Deployment")["spec"];
    let flag = format!("--replicas={}", spec["replicas"]);
    assert!(texts(&gateway.container()["args"]).contains(&flag.as_str()), "{flag}");
    let rolling = &spec["strategy"]["rollingUpdate"];
    assert_eq!(rolling["maxSurge"], 0, "a surplus replica would exceed the rate limit");
    let labels = &gateway.pod()["metadata"]["labels"];
    for selector in [
        &spec["selector"]["matchLabels"],
        &gateway.one("Service")["spec"]["selector"],
        &gateway.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &gateway.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
}

#[test]
fn gateway_pods_are_restricted() {
    let gateway = Rendered::of("gateway");
    assert_eq!(gateway.pod()["spec"]["securityContext"]["runAsNonRoot"], true);
    let context = &gateway.container()["securityContext"];
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
}

#[test]
fn only_agents_and_scrapers_may_connect() {
    let gateway = Rendered::of("gateway");
    let port = |name: &str| -> Value {
        let port = items(&gateway.container()["ports"]).find(|port| port["name"] == name);
        port.expect("a port")["containerPort"].clone()
    };
    let agent = Rendered::of("overlays/agent-gateway");
    let agents = &agent.one("DaemonSet")["spec"]["template"]["metadata"]["labels"];
    let rules: Vec<_> = items(&gateway.one("NetworkPolicy")["spec"]["ingress"]).collect();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0]["from"], json!([{"podSelector": {"matchLabels": agents}}]));
    assert_eq!(rules[0]["ports"][0]["port"], port("https"));
    assert_eq!(rules[1]["ports"][0]["port"], port("health"));
    let egress: Vec<_> = items(&agent.one("NetworkPolicy")["spec"]["egress"][0]["ports"]).collect();
    assert!(
        egress.iter().any(|out| out["port"] == port("https")),
        "a policy sees the pod's port, not the Service's"
    );
}

#[test]
fn agent_has_a_gateway_token_and_not_the_key() {
    let agent = Rendered::of("overlays/agent-gateway");
    let pod = &agent.one("DaemonSet")["spec"]["template"]["spec"];
    let volume = items(&pod["volumes"]).find(|volume| volume["name"] == "gateway").expect("a volume");
    let sources: Vec<_> = items(&volume["projected"]["sources"]).collect();
    assert_eq!(sources[0]["serviceAccountToken"]["audience"], swansong_gateway::AUDIENCE);
    let gateway = Rendered::of("gateway");
    let secret = &gateway.pod()["spec"]["volumes"][0]["secret"]["secretName"];
    assert_eq!(&sources[1]["secret"]["name"], secret);
    assert_eq!(sources[1]["secret"]["items"], json!([{"key": "ca.crt", "path": "ca.crt"}]));
    assert_eq!(sources[1]["secret"]["optional"], true);
}

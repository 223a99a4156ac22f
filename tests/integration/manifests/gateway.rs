//! The relay of faults, and what an agent needs to reach it.

use serde_json::{Value, json};

use crate::kustomize::{Rendered, items, texts};

#[test]
fn it_may_ask_whose_a_token_is_and_nothing_else() {
    let relay = Rendered::of("relay");
    relay.assert_ours("swansong-agent");
    let reviews =
        json!([{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]);
    assert_eq!(relay.one("ClusterRole")["rules"], reviews);
    let binding = relay.one("ClusterRoleBinding");
    let account = &relay.one("ServiceAccount")["metadata"];
    assert_eq!(binding["roleRef"]["name"], relay.one("ClusterRole")["metadata"]["name"]);
    assert_eq!(binding["subjects"][0]["name"], account["name"]);
    assert_eq!(binding["subjects"][0]["namespace"], account["namespace"]);
    assert_eq!(relay.pod()["spec"]["serviceAccountName"], account["name"]);
}

#[test]
fn its_replicas_are_as_many_as_they_believe() {
    let relay = Rendered::of("relay");
    let spec = &relay.one("Deployment")["spec"];
    let told = format!("--replicas={}", spec["replicas"]);
    assert!(texts(&relay.container()["args"]).contains(&told.as_str()), "{told}");
    let rolling = &spec["strategy"]["rollingUpdate"];
    assert_eq!(rolling["maxSurge"], 0, "one more would send more than its part");
    let labels = &relay.pod()["metadata"]["labels"];
    for selector in [
        &spec["selector"]["matchLabels"],
        &relay.one("Service")["spec"]["selector"],
        &relay.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &relay.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
}

#[test]
fn its_pods_are_confined() {
    let relay = Rendered::of("relay");
    assert_eq!(relay.pod()["spec"]["securityContext"]["runAsNonRoot"], true);
    let confined = &relay.container()["securityContext"];
    assert_eq!(confined["readOnlyRootFilesystem"], true);
    assert_eq!(confined["allowPrivilegeEscalation"], false);
    assert_eq!(confined["capabilities"]["drop"], json!(["ALL"]));
}

#[test]
fn agents_and_scrapers_are_let_in_and_nobody_else() {
    let relay = Rendered::of("relay");
    let port = |name: &str| -> Value {
        let port = items(&relay.container()["ports"]).find(|port| port["name"] == name);
        port.expect("a port")["containerPort"].clone()
    };
    let agent = Rendered::of("overlays/agent-relay");
    let agents = &agent.one("DaemonSet")["spec"]["template"]["metadata"]["labels"];
    let rules: Vec<_> = items(&relay.one("NetworkPolicy")["spec"]["ingress"]).collect();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0]["from"], json!([{"podSelector": {"matchLabels": agents}}]));
    assert_eq!(rules[0]["ports"][0]["port"], port("https"));
    assert_eq!(rules[1]["ports"][0]["port"], port("health"));
    let way: Vec<_> = items(&agent.one("NetworkPolicy")["spec"]["egress"][0]["ports"]).collect();
    assert!(
        way.iter().any(|out| out["port"] == port("https")),
        "a policy sees the pod's port, not the Service's"
    );
}

#[test]
fn an_agent_has_a_token_for_the_relay_and_never_its_key() {
    let agent = Rendered::of("overlays/agent-relay");
    let pod = &agent.one("DaemonSet")["spec"]["template"]["spec"];
    let volume = items(&pod["volumes"]).find(|volume| volume["name"] == "relay").expect("a volume");
    let sources: Vec<_> = items(&volume["projected"]["sources"]).collect();
    assert_eq!(sources[0]["serviceAccountToken"]["audience"], swansong_gateway::AUDIENCE);
    let relay = Rendered::of("relay");
    let secret = &relay.pod()["spec"]["volumes"][0]["secret"]["secretName"];
    assert_eq!(&sources[1]["secret"]["name"], secret);
    assert_eq!(sources[1]["secret"]["items"], json!([{"key": "ca.crt", "path": "ca.crt"}]));
    assert_eq!(sources[1]["secret"]["optional"], true);
}

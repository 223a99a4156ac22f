//! What the service account may, and what it no longer needs with cert-manager.

use serde_json::json;

use crate::kustomize::{NAMESPACE, Rendered, identity, items, texts};

#[test]
fn rights_name_their_objects() {
    let rendered = Rendered::of("base");
    let configuration = &rendered.one("MutatingWebhookConfiguration")["metadata"]["name"];
    let mut rules = 0;
    for kind in ["Role", "ClusterRole"] {
        for rule in rendered.of_kind(kind).flat_map(|role| items(&role["rules"])) {
            rules += 1;
            let verbs = texts(&rule["verbs"]);
            for word in ["apiGroups", "resources", "verbs"].iter().flat_map(|key| texts(&rule[*key])) {
                assert!(!word.contains('*'), "{rule}");
            }
            for verb in &verbs {
                assert!(["get", "create", "update", "patch"].contains(verb), "{verb}");
            }
            // The authorizer isn't told the name of what is yet to be created.
            let named = items(&rule["resourceNames"]).count() == 1;
            assert!(named || verbs == ["create"], "{rule}");
            match rule["resources"][0].as_str() {
                Some("secrets") => assert_eq!(kind, "Role", "Secrets of the own namespace only"),
                Some("mutatingwebhookconfigurations") => assert_eq!(&rule["resourceNames"][0], configuration),
                other => panic!("{other:?} is new here: say in this test why it is needed"),
            }
        }
    }
    assert_eq!(rules, 3);
}

/// One list more than the base, in its own role, and a way to ask it also where cert-manager took the others away.
#[test]
fn only_who_requires_ready_nodes_may_list_nodes() {
    let rendered = Rendered::of("overlays/node-readiness");
    let base = Rendered::of("base");
    let names =
        |rendered: &Rendered| -> Vec<String> { rendered.of_kind("ClusterRole").map(identity).collect() };
    let more: Vec<_> = names(&rendered).into_iter().filter(|name| !names(&base).contains(name)).collect();
    let [more] = &more[..] else { panic!("{more:?}") };
    let role = rendered.of_kind("ClusterRole").find(|role| identity(role) == *more).expect("the role");
    assert_eq!(role["rules"], json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] }]));
    assert_eq!(rendered.one("NetworkPolicy"), base.one("NetworkPolicy"));
    assert_eq!(rendered.pod()["spec"]["automountServiceAccountToken"], true);
}

#[test]
fn with_cert_manager_no_rights_are_left() {
    let rendered = Rendered::of("overlays/cert-manager");
    for object in &rendered.objects {
        assert_ne!(object["apiVersion"], "rbac.authorization.k8s.io/v1", "{}", identity(object));
    }
    assert_eq!(rendered.pod()["spec"]["automountServiceAccountToken"], false);
    assert_eq!(rendered.one("NetworkPolicy")["spec"]["egress"], json!([]));

    let leaf = rendered.of_kind("Certificate").find(|certificate| certificate["spec"]["isCA"] != true);
    let leaf = leaf.expect("a certificate for the webhook");
    let service = rendered.one("Service")["metadata"]["name"].as_str().expect("a name");
    assert!(texts(&leaf["spec"]["dnsNames"]).contains(&format!("{service}.{NAMESPACE}.svc").as_str()));
    let certificate = format!("{NAMESPACE}/{}", leaf["metadata"]["name"].as_str().expect("a name"));
    let annotations = &rendered.one("MutatingWebhookConfiguration")["metadata"]["annotations"];
    assert_eq!(annotations["cert-manager.io/inject-ca-from"], certificate);

    let volume = items(&rendered.pod()["spec"]["volumes"])
        .find(|volume| volume["secret"]["secretName"] == leaf["spec"]["secretName"])
        .expect("the Secret is mounted");
    let mount = items(&rendered.container()["volumeMounts"]).find(|mount| mount["name"] == volume["name"]);
    let folder = mount.expect("a mount")["mountPath"].as_str().expect("a path");
    let args = texts(&rendered.container()["args"]);
    for (flag, file) in [("--tls-cert", "tls.crt"), ("--tls-key", "tls.key")] {
        assert!(args.contains(&format!("{flag}={folder}/{file}").as_str()), "{args:?}");
    }
}

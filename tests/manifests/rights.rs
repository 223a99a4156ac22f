//! What the service account may, and what it no longer needs with cert-manager.

use std::fs;

use serde_json::{Value, json};

use crate::kustomize::{NAMESPACE, Rendered, identity, items, kustomize, parse, texts};

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

/// What it does is seen by the tests in `tests/availability`; here, that it is about what RBAC grants.
#[test]
fn rights_are_narrowed_to_what_is_needed() {
    let rendered = Rendered::of("base");
    let policy = rendered.one("ValidatingAdmissionPolicy");
    let binding = rendered.one("ValidatingAdmissionPolicyBinding");
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
    let policy = &policy["spec"];
    assert_eq!(policy["failurePolicy"], "Fail");
    // Of other accounts it has nothing to say.
    let account = rendered.one("ServiceAccount")["metadata"]["name"].as_str().expect("a name");
    let user = format!("request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{account}'");
    assert_eq!(items(&policy["matchConditions"]).count(), 1);
    assert_eq!(policy["matchConditions"][0]["expression"], user);

    let of_policy = |resource: &str| {
        items(&policy["matchConstraints"]["resourceRules"]).any(|rule| {
            texts(&rule["resources"]) == [resource] && texts(&rule["operations"]) == ["CREATE", "UPDATE"]
        })
    };
    for rule in ["Role", "ClusterRole"]
        .iter()
        .flat_map(|kind| rendered.of_kind(kind))
        .flat_map(|role| items(&role["rules"]))
    {
        let resource = rule["resources"][0].as_str().expect("a resource");
        assert!(of_policy(resource), "{resource} isn't narrowed");
        for name in texts(&rule["resourceNames"]).iter().filter(|_| resource == "secrets") {
            assert!(policy["validations"].to_string().contains(&format!("'{name}'")), "{name}");
        }
    }
}

#[test]
fn old_clusters_are_spared_what_they_do_not_know() {
    let target = crate::kustomize::target();
    let folder = tempfile::tempdir_in(target).expect("a folder");
    let kustomization =
        "resources: [../../manifests/base]\ncomponents: [../../manifests/components/before-1.30]\n";
    fs::write(folder.path().join("kustomization.yaml"), kustomization).expect("a file");
    let mut expected = Rendered::of("base").objects;
    expected.retain(|object| !is_policy(object));
    let objects = parse(&kustomize(folder.path()));
    assert_eq!(
        objects.iter().map(identity).collect::<Vec<_>>(),
        expected.iter().map(identity).collect::<Vec<_>>()
    );
}

fn is_policy(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
}

#[test]
fn with_cert_manager_no_rights_are_left() {
    let rendered = Rendered::of("overlays/cert-manager");
    for object in &rendered.objects {
        assert!(!is_policy(object), "{}", identity(object));
        assert_ne!(object["apiVersion"], "rbac.authorization.k8s.io/v1", "{}", identity(object));
    }
    assert_eq!(rendered.pod()["spec"]["automountServiceAccountToken"], false);

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

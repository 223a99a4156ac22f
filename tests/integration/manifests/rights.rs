//! RBAC rules and admission policies of the webhook.

use std::fs;

use serde_json::{Value, json};
use swansong_clusterd::reset_config::initial;

use crate::kustomize::{NAMESPACE, Rendered, identity, items, kustomize, parse, texts};

/// Name of the reset-config controller's role, binding and policy.
const RESET_CONFIG: &str = "swansong-reset-config";

#[test]
fn rights_name_their_objects() {
    let rendered = Rendered::of("base");
    let configuration = &rendered.one("MutatingWebhookConfiguration")["metadata"]["name"];
    let mut count = 0;
    let roles = ["Role", "ClusterRole"].iter().flat_map(|kind| rendered.of_kind(kind));
    for role in roles.filter(|role| role["metadata"]["name"] == "swansong-webhook") {
        for rule in items(&role["rules"]) {
            count += 1;
            let verbs = texts(&rule["verbs"]);
            assert_no_wildcards(rule);
            for verb in &verbs {
                assert!(["get", "create", "update", "patch"].contains(verb), "{verb}");
            }
            // The authorizer doesn't know the name of an object to create.
            let named = items(&rule["resourceNames"]).count() == 1;
            assert!(named || verbs == ["create"], "{rule}");
            match rule["resources"][0].as_str() {
                Some("secrets") => assert_eq!(role["kind"], "Role", "Secrets of the own namespace only"),
                Some("mutatingwebhookconfigurations") => assert_eq!(&rule["resourceNames"][0], configuration),
                other => panic!("{other:?} is new here: say in this test why it is needed"),
            }
        }
    }
    assert_eq!(count, 3);
}

/// The role grants no change, and the policy restricts what may be created.
#[test]
fn reset_config_controller_reads_and_creates() {
    let rendered = Rendered::of("base");
    let named = |object: &&Value| object["metadata"]["name"] == RESET_CONFIG;
    let role = rendered.of_kind("ClusterRole").find(named).expect("the role");
    let mut rights = Vec::new();
    for rule in items(&role["rules"]) {
        assert_no_wildcards(rule);
        for resource in texts(&rule["resources"]) {
            rights.push(format!("{resource}: {}", texts(&rule["verbs"]).join(" ")));
        }
    }
    let expected = [
        "ascendjobs: get list watch",
        "jobs: get list watch",
        "configmaps: get list watch create",
        "namespaces: get",
        "events: create",
    ];
    assert_eq!(rights, expected);
    let policy = &rendered.of_kind("ValidatingAdmissionPolicy").find(named).expect("the policy")["spec"];
    let narrowed = &policy["matchConstraints"]["resourceRules"][0];
    assert_eq!(
        texts(&narrowed["resources"]),
        ["configmaps", "events"],
        "everything that the role may create"
    );
    assert_eq!(texts(&narrowed["operations"]), ["CREATE", "UPDATE", "DELETE"]);
    // The policy names the created content literally.
    let validations = policy["validations"].to_string();
    for (key, value) in initial() {
        assert!(validations.contains(&json!(format!("'{key}'")).to_string().replace('"', "")), "{key}");
        let cel = serde_json::to_string(&value).expect("a string");
        let quoted = if value.is_empty() { "''".to_owned() } else { cel };
        assert!(
            validations.contains(serde_json::to_string(&quoted).expect("a string").trim_matches('"')),
            "{quoted}"
        );
    }
}

fn assert_no_wildcards(rule: &Value) {
    for word in ["apiGroups", "resources", "verbs"].iter().flat_map(|key| texts(&rule[*key])) {
        assert!(!word.contains('*'), "{rule}");
    }
}

/// One more list in a separate role, and access to the API server also with cert-manager.
#[test]
fn only_node_readiness_may_list_nodes() {
    let rendered = Rendered::of("overlays/node-readiness");
    let base = Rendered::of("base");
    let names =
        |rendered: &Rendered| -> Vec<String> { rendered.of_kind("ClusterRole").map(identity).collect() };
    let more: Vec<_> = names(&rendered).into_iter().filter(|name| !names(&base).contains(name)).collect();
    let [more] = &more[..] else { panic!("{more:?}") };
    let role = rendered.of_kind("ClusterRole").find(|role| identity(role) == *more).expect("the role");
    assert_eq!(role["rules"], json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] }]));
    assert_eq!(rendered.one("NetworkPolicy"), base.one("NetworkPolicy"));
}

/// The policies cover what RBAC grants; `tests/e2e/availability` and `tests/e2e/api` test their effect.
#[test]
fn rights_are_narrowed_to_what_is_needed() {
    let rendered = Rendered::of("base");
    let account = rendered.one("ServiceAccount")["metadata"]["name"].as_str().expect("a name");
    let user = format!("request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{account}'");
    let mut policies = 0;
    for (policy, binding) in rendered
        .of_kind("ValidatingAdmissionPolicy")
        .zip(rendered.of_kind("ValidatingAdmissionPolicyBinding"))
    {
        policies += 1;
        assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        // They don't apply to other accounts.
        assert_eq!(items(&policy["spec"]["matchConditions"]).count(), 1);
        assert_eq!(policy["spec"]["matchConditions"][0]["expression"], user);
    }
    assert_eq!(policies, 2);

    let rules = rendered
        .of_kind("ValidatingAdmissionPolicy")
        .flat_map(|policy| items(&policy["spec"]["matchConstraints"]["resourceRules"]));
    let narrowed: Vec<(Vec<&str>, Vec<&str>)> =
        rules.map(|rule| (texts(&rule["resources"]), texts(&rule["operations"]))).collect();
    for rule in ["Role", "ClusterRole"]
        .iter()
        .flat_map(|kind| rendered.of_kind(kind))
        .flat_map(|role| items(&role["rules"]))
    {
        let resource = rule["resources"][0].as_str().expect("a resource");
        let writes = texts(&rule["verbs"]).iter().any(|verb| !["get", "list", "watch"].contains(verb));
        let of_policy = |(resources, operations): &(Vec<&str>, Vec<&str>)| {
            resources.contains(&resource) && ["CREATE", "UPDATE"].iter().all(|one| operations.contains(one))
        };
        assert!(!writes || narrowed.iter().any(of_policy), "{resource} isn't narrowed");
        let policy = rendered
            .of_kind("ValidatingAdmissionPolicy")
            .find(|policy| policy["metadata"]["name"] == account);
        let validations = policy.expect("the webhook's")["spec"]["validations"].to_string();
        for name in texts(&rule["resourceNames"]).iter().filter(|_| resource == "secrets") {
            assert!(validations.contains(&format!("'{name}'")), "{name}");
        }
    }
}

#[test]
fn old_clusters_get_no_unknown_kinds() {
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
fn component_without_reset_config_removes_rights_policy_and_controller() {
    let folder = tempfile::tempdir_in(crate::kustomize::target()).expect("a folder");
    for (overlay, left) in [("base", true), ("overlays/cert-manager", false)] {
        let kustomization = format!(
            "resources: [../../manifests/{overlay}]\ncomponents: [../../manifests/components/without-reset-config]\n"
        );
        fs::write(folder.path().join("kustomization.yaml"), kustomization).expect("a file");
        let objects = parse(&kustomize(folder.path()));
        assert!(objects.iter().all(|object| object["metadata"]["name"] != RESET_CONFIG));
        let of_rbac = |object: &&Value| object["apiVersion"] == "rbac.authorization.k8s.io/v1";
        assert_eq!(objects.iter().any(|object| of_rbac(&object)), left, "{overlay}");
        let deployment =
            objects.iter().find(|object| object["kind"] == "Deployment").expect("the Deployment");
        let args = texts(&deployment["spec"]["template"]["spec"]["containers"][0]["args"]);
        assert!(args.contains(&"--reset-config-controller=off"), "{args:?}");
    }
}

#[test]
fn with_cert_manager_only_the_reset_config_rights_remain() {
    let rendered = Rendered::of("overlays/cert-manager");
    for object in &rendered.objects {
        let of_rights = is_policy(object) || object["apiVersion"] == "rbac.authorization.k8s.io/v1";
        assert!(!of_rights || object["metadata"]["name"] == RESET_CONFIG, "{}", identity(object));
    }

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

//! The manifests, rendered by the kustomize in kubectl: against golden files, and against rules that must hold
//! whatever is written into them.
//!
//! `UPDATE_GOLDEN=1 cargo test --test manifests` renews the golden files; read the difference before you commit it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{env, fs};

use serde_json::{Value, json};
use swansong_testcluster::{Tier, programs};
use swansong_webhook::config::{Config, Strictness};
use swansong_webhook::policy::Policy;

const OVERLAYS: [&str; 3] = ["base", "overlays/cert-manager", "overlays/strict"];
const NAMESPACE: &str = "swansong-system";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The one named in `KUBECTL`, the one on the `PATH`, or that of the test cluster.
fn kubectl() -> &'static Path {
    static KUBECTL: LazyLock<PathBuf> = LazyLock::new(|| {
        let on_path = || {
            let mut folders = env::split_paths(&env::var_os("PATH")?).collect::<Vec<_>>().into_iter();
            folders.find_map(|folder| Some(folder.join("kubectl")).filter(|file| file.is_file()))
        };
        env::var_os("KUBECTL").map(PathBuf::from).or_else(on_path).unwrap_or_else(|| {
            programs::ensure_loudly(Tier::Api).expect("the test cluster's programs").path("kubectl")
        })
    });
    &KUBECTL
}

fn kustomize(folder: &Path) -> String {
    let output = Command::new(kubectl()).arg("kustomize").arg(folder).output().expect("kubectl runs");
    assert!(output.status.success(), "{}: {}", folder.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("YAML is UTF-8")
}

fn parse(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).expect("kustomize writes YAML")
}

/// The objects of one overlay.
struct Rendered {
    overlay: &'static str,
    objects: Vec<Value>,
}

impl Rendered {
    fn of(overlay: &'static str) -> Self {
        Self { overlay, objects: parse(&kustomize(&root().join("manifests").join(overlay))) }
    }

    fn all() -> impl Iterator<Item = Self> {
        OVERLAYS.into_iter().map(Self::of)
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    fn one(&self, kind: &str) -> &Value {
        let mut found = self.of_kind(kind);
        match (found.next(), found.next()) {
            (Some(object), None) => object,
            _ => panic!("{}: not exactly one {kind}", self.overlay),
        }
    }

    fn webhooks(&self) -> impl Iterator<Item = &Value> {
        items(&self.one("MutatingWebhookConfiguration")["webhooks"])
    }

    fn pod(&self) -> &Value {
        &self.one("Deployment")["spec"]["template"]
    }

    fn container(&self) -> &Value {
        let containers = &self.pod()["spec"]["containers"];
        assert_eq!(items(containers).count(), 1, "{}", self.overlay);
        &containers[0]
    }

    fn config(&self) -> Config {
        let text = self.one("ConfigMap")["data"]["config.yaml"].as_str().expect("config.yaml");
        Config::parse(text).unwrap_or_else(|faults| panic!("{}: {faults}", self.overlay))
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn texts(list: &Value) -> Vec<&str> {
    items(list).filter_map(Value::as_str).collect()
}

fn identity(object: &Value) -> String {
    format!("{} {}", object["kind"], object["metadata"]["name"])
}

#[test]
fn the_golden_files_are_up_to_date() {
    for overlay in OVERLAYS {
        let rendered = kustomize(&root().join("manifests").join(overlay));
        let name = overlay.rsplit('/').next().expect("a name");
        let path = root().join(format!("tests/golden/manifests/{name}.yaml"));
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(path.parent().expect("a folder")).expect("golden folder");
            fs::write(&path, &rendered).expect("golden file");
            continue;
        }
        let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // As data: another kustomize may order and wrap it differently.
        let (mut golden, mut rendered) = (parse(&golden), parse(&rendered));
        golden.sort_by_key(identity);
        rendered.sort_by_key(identity);
        let difference = json_patch::diff(&json!(golden), &json!(rendered));
        assert!(
            difference.0.is_empty(),
            "{} differs from what manifests/{overlay} renders to: {difference}\n\
             If that is meant: UPDATE_GOLDEN=1 cargo test --test manifests",
            path.display()
        );
    }
}

#[test]
fn an_absent_webhook_stops_nothing_but_in_the_strict_overlay() {
    for rendered in Rendered::all() {
        let expected = if rendered.overlay == "overlays/strict" { "Fail" } else { "Ignore" };
        for webhook in rendered.webhooks() {
            assert_eq!(webhook["failurePolicy"], expected, "{}: {}", rendered.overlay, webhook["name"]);
            assert!(webhook["timeoutSeconds"].as_u64().is_some_and(|seconds| seconds <= 5));
        }
    }
}

#[test]
fn only_creation_is_watched_and_only_of_what_can_be_injected() {
    for rendered in Rendered::all() {
        let mut watched = Vec::new();
        for webhook in rendered.webhooks() {
            for rule in items(&webhook["rules"]) {
                assert_eq!(rule["operations"], json!(["CREATE"]));
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
                    expression.unwrap_or_else(|| panic!("{} doesn't look at {key}", webhook["name"]));
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
fn match_conditions_know_every_trigger_of_the_default_configuration() {
    let rendered = Rendered::of("base");
    let pods = rendered.webhooks().find(|webhook| webhook["name"] == "pods.swansong.dev").expect("pods");
    let conditions = pods["matchConditions"].to_string();
    for trigger in &Policy::default().triggers {
        assert!(conditions.contains(&format!("'{trigger}'")), "{trigger}");
    }
    for webhook in rendered.webhooks() {
        let conditions = webhook["matchConditions"].to_string();
        assert!(conditions.contains(swansong_webhook::strategy::ANNOTATION), "{}", webhook["name"]);
    }
}

#[test]
fn every_name_that_refers_to_another_object_meets_it() {
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

        let open =
            items(&rendered.one("NetworkPolicy")["spec"]["ingress"]).flat_map(|rule| items(&rule["ports"]));
        let open: Vec<&Value> = open.map(|port| &port["port"]).collect();
        let listening: Vec<&Value> =
            items(&rendered.container()["ports"]).map(|port| &port["containerPort"]).collect();
        assert_eq!(open, listening, "{}", rendered.overlay);

        let account = &rendered.one("ServiceAccount")["metadata"]["name"];
        assert_eq!(&rendered.pod()["spec"]["serviceAccountName"], account);
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            for binding in rendered.of_kind(kind) {
                assert_eq!(&binding["subjects"][0]["name"], account);
            }
        }
        for object in &rendered.objects {
            let namespace = object["metadata"]["namespace"].as_str();
            assert!(namespace.is_none_or(|namespace| namespace == NAMESPACE), "{}", identity(object));
            assert_eq!(
                object["metadata"]["labels"]["app.kubernetes.io/name"],
                "swansong",
                "{}",
                identity(object)
            );
        }
    }
}

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
fn replicas_are_probed_bounded_and_never_all_away() {
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

#[test]
fn the_shipped_configuration_is_the_default() {
    assert_eq!(Rendered::of("base").config(), Config::default());
    assert_eq!(Rendered::of("overlays/cert-manager").config(), Config::default());
    let strict = Rendered::of("overlays/strict").config();
    assert_eq!(strict.strictness(), Strictness::Deny);
    assert_eq!(strict.policy(), Config::default().policy());
}

/// Whoever removes the `# ` in front of a key gets what was in force before, the example of an image apart.
#[test]
fn the_commented_out_configuration_shows_the_defaults() {
    let text = fs::read_to_string(root().join("manifests/base/config.yaml")).expect("config.yaml");
    let is_key = |line: &str| {
        let line = line.trim_start().trim_start_matches("- ");
        line.split_once(':').is_some_and(|(key, rest)| {
            key.chars().all(|c| c.is_ascii_alphanumeric()) && (rest.is_empty() || rest.starts_with(' '))
        })
    };
    let shown: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# ")).filter(|line| is_key(line)).collect();
    let shown = shown.join("\n");
    for key in ["libraries:", "preload:", "ports:", "env:", "torchrunDefaults:", "strategies:", "strictness:"]
    {
        assert!(shown.lines().any(|line| line.starts_with(key)), "{key} isn't shown");
    }
    let config = Config::parse(&shown).unwrap_or_else(|faults| panic!("{faults}\n{shown}"));
    let mut policy = config.policy().clone();
    assert_eq!(policy.image_rules.len(), 1);
    policy.image_rules.clear();
    assert_eq!((policy, config.strictness()), (Policy::default(), Strictness::default()));
}

#[test]
fn the_image_is_pinned_and_can_be_exchanged() {
    for rendered in Rendered::all() {
        let container = rendered.container();
        assert_eq!(container["image"], format!("swansong:{}", env!("CARGO_PKG_VERSION")));
        assert_eq!(container["imagePullPolicy"], "IfNotPresent", "images are carried by hand");
    }
    for (image, expected) in [
        ("localhost/swansong:dev", Some("localhost/swansong:dev")),
        ("registry.example:5000/tools/swansong:0.1.0", Some("registry.example:5000/tools/swansong:0.1.0")),
        ("registry.example:5000/tools/swansong", None),
        ("swansong", None),
    ] {
        // `with-image` writes for a folder two levels below the root.
        let target = root().join("target");
        fs::create_dir_all(&target).expect("target");
        let folder = tempfile::tempdir_in(target).expect("a folder");
        let status = Command::new("manifests/with-image")
            .args(["overlays/strict", image])
            .arg(folder.path())
            .current_dir(root())
            .output()
            .expect("with-image runs");
        assert_eq!(status.status.success(), expected.is_some(), "{image}");
        if let Some(expected) = expected {
            let rendered = Rendered { overlay: "overlays/strict", objects: parse(&kustomize(folder.path())) };
            assert_eq!(rendered.container()["image"], expected);
            assert_eq!(rendered.config().strictness(), Strictness::Deny);
        }
    }
}

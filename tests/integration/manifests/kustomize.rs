//! Overlays as the kustomize in kubectl renders them, and ways to find things in what comes out.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use swansong_testcluster::programs;
use swansong_webhook::config::Config;

pub(crate) const OVERLAYS: [&str; 4] =
    ["base", "overlays/cert-manager", "overlays/node-readiness", "overlays/strict"];
pub(crate) const AGENT_OVERLAYS: [&str; 6] = [
    "agent",
    "overlays/agent-fast-dump",
    "overlays/agent-faults",
    "overlays/agent-mindcluster",
    "overlays/agent-mindcluster-preload-check",
    "overlays/agent-preload-check",
];
pub(crate) const GATEWAY_OVERLAYS: [&str; 2] = ["gateway", "overlays/agent-gateway"];
pub(crate) const NAMESPACE: &str = "swansong-system";

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The one named in `KUBECTL`, the one on the `PATH`, or that of the test cluster.
pub(crate) fn kubectl() -> &'static Path {
    static KUBECTL: LazyLock<PathBuf> = LazyLock::new(|| {
        let on_path = || {
            let mut folders = env::split_paths(&env::var_os("PATH")?).collect::<Vec<_>>().into_iter();
            folders.find_map(|folder| Some(folder.join("kubectl")).filter(|file| file.is_file()))
        };
        let given = env::var_os("KUBECTL").map(PathBuf::from).or_else(on_path);
        given.unwrap_or_else(|| programs::ensure_kubectl().expect("kubectl"))
    });
    &KUBECTL
}

pub(crate) fn kustomize(folder: &Path) -> String {
    let output = Command::new(kubectl()).arg("kustomize").arg(folder).output().expect("kubectl runs");
    assert!(output.status.success(), "{}: {}", folder.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("YAML is UTF-8")
}

pub(crate) fn parse(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).expect("kustomize writes YAML")
}

/// The objects of one overlay.
pub(crate) struct Rendered {
    pub(crate) overlay: &'static str,
    pub(crate) objects: Vec<Value>,
}

impl Rendered {
    pub(crate) fn of(overlay: &'static str) -> Self {
        Self { overlay, objects: parse(&kustomize(&root().join("manifests").join(overlay))) }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        OVERLAYS.into_iter().map(Self::of)
    }

    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Every object is in this namespace, if in any, and has our label.
    pub(crate) fn assert_ours(&self, ours: &str) {
        for object in &self.objects {
            let namespace = object["metadata"]["namespace"].as_str();
            // Rights to read what others keep there.
            let of_others =
                object["apiVersion"] == "rbac.authorization.k8s.io/v1" && namespace == Some("kube-system");
            assert!(namespace.is_none_or(|namespace| namespace == ours) || of_others, "{}", identity(object));
            assert_eq!(
                object["metadata"]["labels"]["app.kubernetes.io/name"],
                "swansong",
                "{}",
                identity(object)
            );
        }
    }

    pub(crate) fn one(&self, kind: &str) -> &Value {
        let mut found = self.of_kind(kind);
        match (found.next(), found.next()) {
            (Some(object), None) => object,
            _ => panic!("{}: not exactly one {kind}", self.overlay),
        }
    }

    pub(crate) fn webhooks(&self) -> impl Iterator<Item = &Value> {
        items(&self.one("MutatingWebhookConfiguration")["webhooks"])
    }

    pub(crate) fn pod(&self) -> &Value {
        &self.one("Deployment")["spec"]["template"]
    }

    pub(crate) fn container(&self) -> &Value {
        let containers = &self.pod()["spec"]["containers"];
        assert_eq!(items(containers).count(), 1, "{}", self.overlay);
        &containers[0]
    }

    pub(crate) fn config(&self) -> Config {
        let text = self.one("ConfigMap")["data"]["config.yaml"].as_str().expect("config.yaml");
        Config::parse(text).unwrap_or_else(|faults| panic!("{}: {faults}", self.overlay))
    }
}

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(crate) fn texts(list: &Value) -> Vec<&str> {
    items(list).filter_map(Value::as_str).collect()
}

pub(crate) fn identity(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// The folder for what is built, from which manifests/ is `../manifests`; a clean checkout has none yet.
pub(crate) fn target() -> PathBuf {
    let target = root().join("target");
    std::fs::create_dir_all(&target).expect("target");
    target
}

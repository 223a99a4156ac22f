//! Removes what may be secret: what isn't known to be harmless goes.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};
use swansong_api::annotations::{LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH};
use swansong_api::env;

/// What is written instead.
const REMOVED: &str = "(removed)";
/// Variables whose values are addresses, ports, switches and limits, or paths of libraries.
const KEPT_VARIABLES: [&str; 29] = [
    env::POD_IP,
    env::TTP_PORT,
    env::TTP_ADDR,
    env::MS_TFT_IP,
    env::MS_TFT_PORT,
    env::SAVE_LIMIT,
    env::ORDER_LIMIT,
    env::TASKD_PROCESS_ENABLE,
    env::LD_PRELOAD,
    env::ORIGINAL_LD_PRELOAD,
    env::LOCAL_PROXY_ENABLE,
    env::PROCESS_RECOVER,
    env::HIGH_AVAILABILITY,
    env::MS_ENABLE_TFT,
    env::MASTER_ADDR,
    env::MS_SCHED_HOST,
    env::MS_ROLE,
    env::RANK,
    "MASTER_PORT",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MS_SCHED_PORT",
    "MS_WORKER_NUM",
    "MS_NODE_RANK",
    "MS_LOCAL_WORKER",
    "MINDX_SERVER_IP",
    "MINDX_TASK_ID",
    "FRAMEWORK",
    "PROCESSOR_ADDR",
];
/// Beginnings of the names of annotations whose values are MindCluster's, Volcano's or Swansong's.
const KEPT_ANNOTATIONS: [&str; 14] = [
    "swansong.dev/",
    "ascend.kubectl.kubernetes.io/",
    "huawei.com/",
    "hccl/",
    "scheduling.k8s.io/",
    "scheduling.volcano.sh/",
    "volcano.sh/",
    "recover-strategy",
    "process-recover",
    "ProcessRecover",
    "fault-",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "training.kubeflow.org/",
];
/// A shorter value of a variable occurs in texts by chance.
const SHORTEST: usize = 8;
/// A longer one is a document, which no text repeats.
const LONGEST: usize = 4096;

fn pattern(text: &str) -> Regex {
    // The patterns are constants, which the tests compile.
    #[allow(clippy::expect_used, reason = "a constant")]
    Regex::new(text).expect("a valid pattern")
}

/// Names of what is secret.
const NAMES: &str =
    "(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)";
static NAME: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("(?i){NAMES}")));
static FLAG: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!("(?i)^--?[a-z0-9_.-]*{NAMES}[a-z0-9_.-]*$")));
/// `name=value`, `"name": "value"`, `--name value`.
static ASSIGNMENT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r#"(?i)([a-z0-9_.-]*{NAMES}[a-z0-9_.-]*)(["']?\s*[=:]\s*["']?|["']?\s+["']?)([^\s"',;&}}]+)"#
    ))
});
/// Keys and tokens that are known by their form.
static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
        r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)?",
        r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bglpat-[A-Za-z0-9_-]{16,}|\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}",
        r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}|\bxox[abp]-[A-Za-z0-9-]{10,}",
    ))
});
static AUTHORIZATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"));
/// The user and the password of a URL.
static USER: LazyLock<Regex> = LazyLock::new(|| pattern(r"://[^\s/:@]+:[^\s/@]+@"));

/// Removes secrets. Values that were removed from objects are removed from texts too.
#[derive(Debug, Default)]
pub struct Redactor {
    removed: BTreeSet<String>,
}

impl Redactor {
    /// Removes what may be secret from an object of the API server.
    pub fn object(&mut self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        self.walk(object);
    }

    fn walk(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => self.members(map),
            Value::Array(items) => {
                for item in items.iter_mut() {
                    self.walk(item);
                }
                for index in 1..items.len() {
                    let follows_flag = items[index - 1].as_str().is_some_and(is_secret_flag);
                    if follows_flag && let Some(text) = items[index].as_str().map(str::to_owned) {
                        self.remove(&text);
                        items[index] = REMOVED.into();
                    }
                }
            }
            Value::String(text) => *text = mask(text),
            _ => {}
        }
    }

    fn members(&mut self, map: &mut Map<String, Value>) {
        for (key, value) in map.iter_mut() {
            match (key.as_str(), &mut *value) {
                ("env", Value::Array(variables)) => {
                    for variable in variables {
                        self.variable(variable);
                    }
                }
                ("httpHeaders", Value::Array(headers)) => {
                    for header in headers.iter_mut().filter_map(|header| header.get_mut("value")) {
                        self.remove_value(header);
                    }
                }
                ("annotations", Value::Object(annotations)) => self.annotations(annotations),
                (name, Value::String(_)) if is_secret_name(name) && !is_reference(name) => {
                    self.remove_value(value);
                }
                _ => self.walk(value),
            }
        }
    }

    fn variable(&mut self, variable: &mut Value) {
        let name = variable["name"].as_str().unwrap_or_default().to_owned();
        let Some(value) = variable.get_mut("value") else { return };
        if KEPT_VARIABLES.contains(&name.as_str()) {
            return;
        }
        let text = value.as_str().unwrap_or_default();
        let is_path = text.starts_with('/') && !is_secret_name(&name);
        if !is_path {
            let text = text.to_owned();
            self.remove(&text);
        }
        *value = REMOVED.into();
    }

    fn annotations(&mut self, annotations: &mut Map<String, Value>) {
        for (name, value) in annotations.iter_mut() {
            let text = value.as_str().unwrap_or_default();
            if [LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH].contains(&name.as_str()) {
                *value = format!("({} bytes)", text.len()).into();
            } else if KEPT_ANNOTATIONS.iter().any(|kept| name.starts_with(kept)) {
                *value = mask(text).into();
            } else {
                self.remove_value(value);
            }
        }
    }

    fn remove_value(&mut self, value: &mut Value) {
        if let Some(text) = value.as_str().map(str::to_owned) {
            self.remove(&text);
        }
        *value = REMOVED.into();
    }

    /// Has a value removed from texts too.
    fn remove(&mut self, text: &str) {
        let text = text.trim();
        if (SHORTEST..=LONGEST).contains(&text.len()) && text.parse::<f64>().is_err() {
            self.removed.insert(text.to_owned());
        }
    }

    /// Removes from a text what has the form of a secret, and values that were removed from objects.
    pub fn text(&self, text: &str) -> String {
        self.known(&mask(text))
    }

    /// Removes values that were removed from objects.
    fn known(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.removed {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), REMOVED);
            }
        }
        text
    }

    /// Does the same as [`Redactor::text`] with every string of a value that isn't an object of the API server.
    pub fn strings(&self, value: &mut Value) {
        each_string(value, &|text| self.text(text));
    }

    /// Removes from an object the values that were removed from others.
    pub fn known_strings(&self, value: &mut Value) {
        each_string(value, &|text| self.known(text));
    }
}

fn each_string(value: &mut Value, change: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_string(item, change)),
        Value::Object(map) => map.values_mut().for_each(|value| each_string(value, change)),
        _ => {}
    }
}

/// Whether a name is that of a secret, and not that of a model's tokens.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_of_text = name.contains("tokeni") || name.contains("tokens");
    NAME.is_match(&name) && (!is_of_text || NAME.is_match(&name.replace("token", "")))
}

fn is_secret_flag(text: &str) -> bool {
    FLAG.is_match(text) && is_secret_name(text)
}

/// Members of Kubernetes' objects that name a Secret or a file.
fn is_reference(member: &str) -> bool {
    matches!(member, "secretName" | "tokenExpirationSeconds") || member.ends_with("Ref")
}

fn mask(text: &str) -> String {
    let text = FORMS.replace_all(text, REMOVED);
    let text = AUTHORIZATION.replace_all(&text, |found: &Captures<'_>| format!("{} {REMOVED}", &found[1]));
    let text = USER.replace_all(&text, format!("://{REMOVED}@"));
    let text = ASSIGNMENT.replace_all(&text, |found: &Captures<'_>| {
        let (name, between, value) = (&found[1], &found[2], &found[3]);
        let is_flag = name.starts_with('-') || between.contains(['=', ':']);
        let is_prose = !is_flag || value.starts_with('-') || value == REMOVED;
        if is_prose || !is_secret_name(name) {
            found[0].to_owned()
        } else {
            format!("{name}{between}{REMOVED}")
        }
    });
    text.into_owned()
}

//! Settings of the injection core.
//!
//! [`Policy`] has no file format; `swansong_webhook::config` reads and validates it. The defaults are those of MindCluster's
//! documentation (`03_configuring_training_recovery.md`).

use std::fmt;

use serde::Deserialize;
use swansong_api::ports;
pub use swansong_api::preload::{LIBMSPTI, LIBTASKD};

/// Settings of the injection core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Tokens of `recover-strategy` that trigger the injection. Default: `dump`.
    pub triggers: Vec<String>,
    /// The libraries to preload unless a rule or an annotation names others.
    pub libraries: Libraries,
    /// Whether an init container finds the libraries, unless a rule or an annotation says otherwise.
    pub discover_libraries: bool,
    /// Library paths by image; the first rule whose pattern matches the container's image wins.
    pub image_rules: Vec<ImageRule>,
    /// Order of our libraries and the user's own in `LD_PRELOAD`.
    pub preload_order: PreloadOrder,
    /// Patterns of file names of libraries that have to be first in `LD_PRELOAD`, so ours follow them in any order.
    pub preload_keep_first: Vec<String>,
    /// What to do with an `LD_PRELOAD` that comes from a `valueFrom`.
    pub preload_value_from: PreloadValueFrom,
    /// The port of MindIO's controller; its number is also the default of `TTP_PORT`.
    pub ttp_port: NamedPort,
    /// The port of the TaskD Manager, fixed at 9601 in TaskD itself.
    pub taskd_port: NamedPort,
    /// Further environment variables, name and value, added in this order where the user has none.
    pub extra_env: Vec<(String, String)>,
    /// Whether pods ask for nodes that can save a dying job.
    pub node_readiness: NodeReadiness,
    /// What protects a dump while it is saved.
    pub dump: DumpPolicy,
    /// The TaskD Manager of rank 0's Pods.
    pub manager: ManagerPolicy,
    /// How reset.json gets into training containers, if at all.
    pub reset_config: Option<ResetConfigMount>,
    /// What applies instead in some namespaces.
    pub zero_touch: Option<ZeroTouch>,
}

/// The settings for namespaces in which image and start script need no changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeroTouch {
    /// Patterns of names.
    pub namespaces: Vec<String>,
    pub policy: Box<Policy>,
}

/// The TaskD Manager of rank 0's Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerPolicy {
    /// Whether it runs as a sidecar, unless an annotation says otherwise.
    pub sidecar: bool,
    /// Limit of the sidecar's processor time, as a quantity. An idle Manager uses 1.3 to 1.7 cores if it gets them.
    pub cpu: String,
    /// Limit of the sidecar's memory, as a quantity.
    pub memory: String,
    /// Whether the cluster has native sidecars.
    pub native_sidecars: NativeSidecars,
}

/// Whether the cluster has native sidecars, which Kubernetes 1.29 enables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NativeSidecars {
    #[default]
    Supported,
    /// An older API server would make the sidecar an ordinary init container, which never ends.
    Unsupported,
    Unknown,
}

/// Where the reset.json of a training container comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetConfigMount {
    /// The ConfigMap of the job, which the kubelet updates within about a minute.
    ConfigMap,
    /// The device plugin's copy on the node, updated at once; a hostPath volume.
    HostPath,
}

impl Default for ManagerPolicy {
    fn default() -> Self {
        Self {
            sidecar: false,
            cpu: "1".to_owned(),
            memory: "4Gi".to_owned(),
            native_sidecars: NativeSidecars::default(),
        }
    }
}

/// What protects a dump while it is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpPolicy {
    /// Whether the launcher hook is mounted where `dump` is the only strategy that acts.
    pub launcher_hook: bool,
    /// Whether the hook imports TaskD's patch of torch's launcher.
    pub launcher_patch: bool,
    /// Seconds that a save may take where `dump` is the only strategy that acts; `None` leaves MindIO's default.
    pub save_limit: Option<u16>,
    /// The same where other strategies act too, for whose actions the limit counts as well.
    pub save_limit_with_other_strategies: Option<u16>,
}

/// Whether a job saves a dump, and whether other strategies act too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DumpStrategy {
    /// The list doesn't have `dump`.
    Absent,
    /// The list has `dump` and strategies that are tried before it.
    WithOthers,
    /// `dump` is all that acts.
    Only,
}

/// What torchrun reads as defaults of its flags `--max-restarts` and `--monitor-interval`; the values are those of
/// MindCluster's start scripts.
pub const TORCHRUN_DEFAULTS: [(&str, &str); 2] =
    [("PET_MAX_RESTARTS", "32767"), ("PET_MONITOR_INTERVAL", "10")];

/// The values of `TTP_NORMAL_ACTION_TIME_LIMIT` that MindIO accepts.
pub const SAVE_LIMITS: std::ops::RangeInclusive<u16> = 30..=1800;
/// The values of `MINDIO_WAIT_MINDX_TIME` that MindIO accepts.
pub(crate) const ORDER_LIMITS: std::ops::RangeInclusive<u16> = 1..=3600;
/// MindIO's own `TTP_NORMAL_ACTION_TIME_LIMIT`.
pub const DEFAULT_SAVE_LIMIT: u16 = 180;
/// MindIO's own `MINDIO_WAIT_MINDX_TIME`.
pub const DEFAULT_ORDER_LIMIT: u16 = 30;

impl Default for DumpPolicy {
    fn default() -> Self {
        Self {
            launcher_hook: true,
            launcher_patch: false,
            save_limit: Some(*SAVE_LIMITS.end()),
            save_limit_with_other_strategies: None,
        }
    }
}

impl DumpPolicy {
    /// The limit of a job's saves.
    pub(crate) const fn save_limit(&self, dump: DumpStrategy) -> Option<u16> {
        match dump {
            DumpStrategy::Absent => None,
            DumpStrategy::WithOthers => self.save_limit_with_other_strategies,
            DumpStrategy::Only => self.save_limit,
        }
    }
}

/// Absolute paths inside the training image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libraries {
    /// libmspti.so of CANN.
    pub libmspti: String,
    /// libtaskd.so of the TaskD wheel.
    pub libtaskd: String,
}

/// Library paths for the images that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRule {
    /// The whole image reference, with `*` for any run of characters and `?` for one.
    pub pattern: String,
    /// Replaces [`Libraries::libmspti`] when set.
    pub libmspti: Option<String>,
    /// Replaces [`Libraries::libtaskd`] when set.
    pub libtaskd: Option<String>,
    /// Replaces [`Policy::discover_libraries`] when set.
    pub discover: Option<bool>,
}

/// A container port and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPort {
    /// An IANA_SVC_NAME of at most 15 characters.
    pub name: String,
    /// From 1 to 65535.
    pub port: u16,
}

/// As `8000/TCP ttp-port`.
impl fmt::Display for NamedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/TCP {}", self.port, self.name)
    }
}

/// Order of `LD_PRELOAD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreloadOrder {
    /// libmspti.so, libtaskd.so, then the user's own, as documented.
    #[default]
    First,
    /// The user's own, then ours.
    Last,
}

/// What to do with an `LD_PRELOAD` entry whose value comes from a ConfigMap, Secret or field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreloadValueFrom {
    /// Rename the entry and refer to it from a new `LD_PRELOAD`.
    #[default]
    Reference,
    /// Don't change it, and warn.
    Skip,
}

/// Which nodes injected pods ask for, by the label that the node agent sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeReadiness {
    /// Pods ask for no particular nodes.
    #[default]
    Off,
    /// Ready nodes are preferred.
    Prefer,
    /// Pods run on ready nodes only.
    Require,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            triggers: vec!["dump".to_owned()],
            libraries: Libraries { libmspti: LIBMSPTI.to_owned(), libtaskd: LIBTASKD.to_owned() },
            discover_libraries: false,
            image_rules: Vec::new(),
            preload_order: PreloadOrder::default(),
            // Sanitizers refuse to start unless they are first, and libgomp on arm64 needs static TLS.
            preload_keep_first: [
                "libasan.so*",
                "libtsan.so*",
                "liblsan.so*",
                "libhwasan.so*",
                "libclang_rt.*san*.so*",
                "libgomp.so*",
                "libgomp-*.so*",
            ]
            .map(str::to_owned)
            .to_vec(),
            preload_value_from: PreloadValueFrom::default(),
            ttp_port: NamedPort { name: ports::TTP_NAME.to_owned(), port: ports::TTP },
            taskd_port: NamedPort { name: ports::TASKD_NAME.to_owned(), port: ports::TASKD },
            extra_env: Vec::new(),
            node_readiness: NodeReadiness::default(),
            dump: DumpPolicy::default(),
            manager: ManagerPolicy::default(),
            reset_config: None,
            zero_touch: None,
        }
    }
}

impl Policy {
    /// The settings for objects of a namespace.
    pub fn for_namespace(&self, namespace: &str) -> &Self {
        let zero_touch = self.zero_touch.as_ref().filter(|zero_touch| {
            let mut patterns = zero_touch.namespaces.iter();
            patterns.any(|pattern| wildcard(pattern.as_bytes(), namespace.as_bytes()))
        });
        zero_touch.map_or(self, |zero_touch| &zero_touch.policy)
    }

    /// The same settings for a cluster with or without native sidecars.
    #[must_use]
    pub fn with_native_sidecars(mut self, native_sidecars: NativeSidecars) -> Self {
        self.manager.native_sidecars = native_sidecars;
        if let Some(zero_touch) = &mut self.zero_touch {
            zero_touch.policy.manager.native_sidecars = native_sidecars;
        }
        self
    }
}

impl ImageRule {
    /// Whether `image` matches the pattern.
    pub fn matches(&self, image: &str) -> bool {
        wildcard(self.pattern.as_bytes(), image.as_bytes())
    }
}

/// Matches `*` and `?` without allocation, backtracking to the last `*` only.
pub(crate) fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after, seen)) => {
                    retry = Some((after, seen + 1));
                    p = after;
                    t = seen + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Why `path` can't be an entry of `LD_PRELOAD`, or `None` when it can.
///
/// ld.so splits the variable at colons and white space and has no escape (ld.so(8)).
pub fn preload_path_fault(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("it isn't an absolute path");
    }
    if path.len() >= 4096 {
        return Some("it is longer than the 4,095 bytes of a path");
    }
    if path.contains(|c: char| c == ':' || c.is_ascii_whitespace()) {
        return Some("ld.so splits LD_PRELOAD at colons and white space, so the path may hold neither");
    }
    if path.contains('$') {
        return Some("ld.so and the kubelet expand `$`, so the path may not hold it");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_patterns() {
        for (pattern, image, expected) in [
            ("*mindspore*", "registry.example/ai/mindspore:2.7", true),
            ("*mindspore*", "registry.example/ai/pytorch:2.7", false),
            ("registry.example/*:v?", "registry.example/train:v1", true),
            ("registry.example/*:v?", "registry.example/train:v12", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
        ] {
            let rule =
                ImageRule { pattern: pattern.to_owned(), libmspti: None, libtaskd: None, discover: None };
            assert_eq!(rule.matches(image), expected, "{pattern} on {image}");
        }
    }

    #[test]
    fn preload_paths() {
        assert_eq!(preload_path_fault("/usr/lib/a.so"), None);
        for bad in ["a.so", "", "/a b.so", "/a:b.so", "/a\tb.so", "/$LIB/a.so"] {
            assert!(preload_path_fault(bad).is_some(), "{bad:?}");
        }
    }
}

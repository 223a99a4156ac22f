//! The shape of the configuration file. Every key is optional, and unknown keys are refused.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_saphyr::Spanned;

use super::Strictness;
use swansong_inject::policy::{NodeReadiness, PreloadOrder, PreloadValueFrom, ResetConfigMount};

/// A value with its position; `null` counts as absent, as when a section has only comments.
pub(super) type At<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct File {
    pub(super) libraries: Option<Libraries>,
    pub(super) preload: Option<Preload>,
    pub(super) ports: Option<Ports>,
    pub(super) env: Option<Env>,
    pub(super) torchrun_defaults: Option<bool>,
    pub(super) strategies: At<Vec<Spanned<String>>>,
    pub(super) node_readiness: Option<NodeReadiness>,
    pub(super) dump: Option<Dump>,
    pub(super) manager: Option<Manager>,
    pub(super) reset_config: Option<ResetConfig>,
    pub(super) zero_touch: Option<bool>,
    pub(super) zero_touch_namespaces: At<Vec<Spanned<String>>>,
    pub(super) strictness: Option<Strictness>,
    pub(super) trainer_strictness: At<BTreeMap<String, Strictness>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Libraries {
    pub(super) discover: Option<bool>,
    pub(super) libmspti: At<String>,
    pub(super) libtaskd: At<String>,
    pub(super) images: Option<Vec<Spanned<Image>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Image {
    #[serde(rename = "match")]
    pub(super) pattern: At<String>,
    pub(super) discover: Option<bool>,
    pub(super) libmspti: At<String>,
    pub(super) libtaskd: At<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Preload {
    pub(super) order: Option<PreloadOrder>,
    pub(super) keep_first: Option<Vec<String>>,
    pub(super) value_from: Option<PreloadValueFrom>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Ports {
    pub(super) ttp: Option<Port>,
    pub(super) taskd: Option<Port>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Port {
    pub(super) name: At<String>,
    /// Wider than a port, so that 70000 gets an answer that helps.
    pub(super) port: At<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Dump {
    pub(super) launcher_hook: Option<bool>,
    pub(super) launcher_patch: Option<bool>,
    pub(super) save_limit_seconds: At<i64>,
    pub(super) save_limit_seconds_with_other_strategies: At<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Manager {
    pub(super) sidecar: Option<bool>,
    pub(super) cpu: At<String>,
    pub(super) memory: At<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ResetConfig {
    pub(super) mount: Option<Mount>,
}

/// How reset.json gets into training containers.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Mount {
    None,
    ConfigMap,
    HostPath,
}

impl Mount {
    pub(super) const fn policy(self) -> Option<ResetConfigMount> {
        match self {
            Self::None => None,
            Self::ConfigMap => Some(ResetConfigMount::ConfigMap),
            Self::HostPath => Some(ResetConfigMount::HostPath),
        }
    }
}

/// Names and values in the order of the file, which is the order in which they are added.
#[derive(Debug, Default)]
pub(super) struct Env(pub(super) Vec<(String, Spanned<String>)>);

impl<'de> Deserialize<'de> for Env {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EnvVisitor;
        impl<'de> Visitor<'de> for EnvVisitor {
            type Value = Env;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping from names to values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut env = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    env.push(entry);
                }
                Ok(Env(env))
            }
        }
        deserializer.deserialize_map(EnvVisitor)
    }
}

//! The value of the annotation `swansong.dev/injected`: what was added, for an exact undo.
//!
//! Each injected pod template (or Pod) has a record, and so has a job whose own metadata was changed. The record holds
//! the written values, so an undo can distinguish them from later changes by the user. Compact JSON, for example
//! `{"version":1,"containers":{"ascend":{"env":{"TTP_PORT":"8000"},"ports":["8000/TCP ttp-port"],"absent":["ports"]}}}`.

mod node_readiness;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::node_readiness::NodeReadinessRecord;

/// The format that this version writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// What was changed in one metadata and, for a template, its containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Format of this record.
    pub version: u32,
    /// Annotations that were added beside this one, with the [`summary`] of their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels that were added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations that were rewritten, with their original values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<String, String>,
    /// Volumes that were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Init containers that were added.
    #[serde(rename = "initContainers", skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<String>,
    /// The termination grace period that was raised.
    #[serde(rename = "gracePeriod", skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<GracePeriodRecord>,
    /// Which of `metadata`, `annotations`, `labels`, `volumes`, `initContainers` were absent before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Which of them were `null` before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub null: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, ContainerRecord>,
    /// The node affinity.
    #[serde(rename = "nodeReadiness", skip_serializing_if = "NodeReadinessRecord::is_empty")]
    pub node_readiness: NodeReadinessRecord,
}

/// A termination grace period, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GracePeriodRecord {
    /// Before; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    pub to: i64,
}

/// What was changed in one container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerRecord {
    /// Environment variables that were added, except `LD_PRELOAD`, with the [`summary`] of their literal values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Environment variables that were added with a fieldRef, with its fieldPath.
    #[serde(rename = "fieldRefs", skip_serializing_if = "BTreeMap::is_empty")]
    pub field_refs: BTreeMap<String, String>,
    /// Ports that were added, as `8000/TCP ttp-port`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// The directory that the launcher hook was mounted into.
    #[serde(rename = "launcherHook", skip_serializing_if = "Option::is_none")]
    pub launcher_hook: Option<String>,
    /// Other volumes that were mounted, with their paths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mounts: BTreeMap<String, String>,
    /// What was done to `LD_PRELOAD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preload: Option<PreloadRecord>,
    /// Which of `env`, `ports` and `volumeMounts` were absent before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Which of them were `null` before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub null: Vec<String>,
}

/// What was done to `LD_PRELOAD`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreloadRecord {
    /// The paths that were added to it.
    pub libraries: Vec<String>,
    /// The user's entry that they were joined to; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalPreload>,
}

/// The state of an `LD_PRELOAD` entry before the injection. The user's paths remain in the joined value, so the record
/// doesn't repeat them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OriginalPreload {
    /// It had a literal value.
    Value,
    /// It had no value.
    Absent,
    /// Its value was `null`.
    Null,
    /// It had a valueFrom and was renamed.
    ValueFrom,
}

/// The recorded form of a value: the value itself, or length and digest of a long one.
pub fn summary(value: &str) -> String {
    const LONGEST: usize = 64;
    if value.len() <= LONGEST && !value.starts_with('#') {
        return value.to_owned();
    }
    // FNV-1a of words, which is enough to detect a change by the user.
    let digest = value.as_bytes().chunks(8).fold(0xcbf2_9ce4_8422_2325_u64, |digest, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (digest ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("#{}:{digest:016x}", value.len())
}

/// The annotation can't be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The value isn't JSON, or has other fields.
    #[error("it isn't a record of Swansong: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A newer version of Swansong wrote it.
    #[error("its format is version {0}, and this Swansong knows version {VERSION} only")]
    Version(u32),
}

impl Record {
    /// Reads an annotation.
    pub fn parse(annotation: &str) -> Result<Self, RecordError> {
        let record: Self = serde_json::from_str(annotation)?;
        if record.version == VERSION { Ok(record) } else { Err(RecordError::Version(record.version)) }
    }

    /// The annotation's value.
    pub fn into_annotation(mut self) -> String {
        self.version = VERSION;
        // Strings and maps with string keys always serialise.
        serde_json::to_string(&self).unwrap_or_default()
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        *self == Self { version: self.version, ..Self::default() }
    }

    /// This older record extended by a newer one, for a Pod that got part of its injection from its template.
    ///
    /// Written values are taken from the newer record, original ones from the older.
    #[must_use]
    pub fn extended_by(mut self, newer: Self) -> Self {
        self.annotations.extend(newer.annotations);
        self.labels.extend(newer.labels);
        for (key, original) in newer.replaced {
            self.replaced.entry(key).or_insert(original);
        }
        extend(&mut self.volumes, newer.volumes);
        extend(&mut self.init_containers, newer.init_containers);
        self.grace_period = match (self.grace_period, newer.grace_period) {
            (Some(older), Some(newer)) => Some(GracePeriodRecord { from: older.from, ..newer }),
            (older, newer) => older.or(newer),
        };
        extend(&mut self.absent, newer.absent);
        extend(&mut self.null, newer.null);
        self.node_readiness = self.node_readiness.extended_by(newer.node_readiness);
        for (name, container) in newer.containers {
            self.containers.entry(name).or_default().extend_by(container);
        }
        self
    }
}

impl ContainerRecord {
    fn extend_by(&mut self, newer: Self) {
        self.env.extend(newer.env);
        self.field_refs.extend(newer.field_refs);
        extend(&mut self.ports, newer.ports);
        self.launcher_hook = self.launcher_hook.take().or(newer.launcher_hook);
        self.mounts.extend(newer.mounts);
        match (&mut self.preload, newer.preload) {
            (Some(older), Some(newer)) => extend(&mut older.libraries, newer.libraries),
            (preload, newer) => *preload = preload.take().or(newer),
        }
        extend(&mut self.absent, newer.absent);
        extend(&mut self.null, newer.null);
    }
}

/// Appends the items that the list doesn't have.
fn extend(older: &mut Vec<String>, newer: Vec<String>) {
    for item in newer {
        if !older.contains(&item) {
            older.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let ascend = ContainerRecord {
            field_refs: BTreeMap::from([("POD_IP".to_owned(), "status.podIP".to_owned())]),
            preload: Some(PreloadRecord {
                libraries: vec!["/o.so".to_owned()],
                original: Some(OriginalPreload::Value),
            }),
            ..ContainerRecord::default()
        };
        Record { containers: BTreeMap::from([("ascend".to_owned(), ascend)]), ..Record::default() }
    }

    #[test]
    fn round_trips() {
        let text = record().into_annotation();
        assert_eq!(
            text,
            r#"{"version":1,"containers":{"ascend":{"fieldRefs":{"POD_IP":"status.podIP"},"preload":{"libraries":["/o.so"],"original":"value"}}}}"#
        );
        assert_eq!(Record::parse(&text).expect("own output"), Record { version: 1, ..record() });
    }

    #[test]
    fn summary_of_a_long_value_is_short_and_differs() {
        assert_eq!(summary("8000"), "8000");
        let long = "x".repeat(300_000);
        assert!(summary(&long).len() < 32);
        assert_ne!(summary(&long), summary(&format!("{}y", "x".repeat(299_999))));
        assert_ne!(summary("#4:8000"), "#4:8000");
    }

    #[test]
    fn rejects_other_formats() {
        assert!(matches!(Record::parse("yes"), Err(RecordError::Malformed(_))));
        assert!(matches!(Record::parse(r#"{"version":1,"x":2}"#), Err(RecordError::Malformed(_))));
        assert!(matches!(Record::parse(r#"{"version":2}"#), Err(RecordError::Version(2))));
    }

    #[test]
    fn extension_keeps_the_original_values_of_the_older_record() {
        let (mut newer, mut both) = (record(), record());
        let library = || vec!["/p.so".to_owned()];
        let ascend = newer.containers.get_mut("ascend").expect("there");
        ascend.preload =
            Some(PreloadRecord { libraries: library(), original: Some(OriginalPreload::Absent) });
        ascend.env.insert("TTP_PORT".to_owned(), "8000".to_owned());
        let ascend = both.containers.get_mut("ascend").expect("there");
        ascend.preload.as_mut().expect("there").libraries.extend(library());
        ascend.env.insert("TTP_PORT".to_owned(), "8000".to_owned());
        assert_eq!(record().extended_by(newer), both);
    }
}

//! The annotation `swansong.dev/injected`: what was added, so that `uninject` is exact.
//!
//! It stands on what was changed: on each pod template (or Pod), and on a job whose own metadata was
//! changed. Compact JSON, for example
//! `{"version":1,"containers":{"ascend":{"env":["POD_IP"],"ports":["8000/TCP"],"absent":["ports"]}}}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The annotation's key.
pub const ANNOTATION: &str = "swansong.dev/injected";

/// The format this build writes and the only one it reads.
pub const VERSION: u32 = 1;

/// What was changed in one metadata and, for a template, its containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Format of this record.
    pub version: u32,
    /// Annotations that were added beside this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<String>,
    /// Labels that were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Annotations that were rewritten, with their former values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<String, String>,
    /// Which of `metadata`, `annotations`, `labels` weren't there before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Which of them were `null` before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub null: Vec<String>,
    /// The containers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, ContainerRecord>,
}

/// What was changed in one container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerRecord {
    /// Environment variables that were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Ports that were added, as `8000/TCP`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// What the `LD_PRELOAD` entry was before ours were joined to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preload: Option<FormerPreload>,
    /// Which of `env` and `ports` weren't there before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Which of them were `null` before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub null: Vec<String>,
}

/// An `LD_PRELOAD` entry as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FormerPreload {
    /// It had this literal value.
    Value(String),
    /// It had no value.
    Absent,
    /// Its value was `null`.
    Null,
    /// It had a valueFrom and was renamed.
    ValueFrom,
}

/// Why an annotation isn't a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not JSON of this shape.
    #[error("it isn't a record of Swansong: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Written by a newer Swansong.
    #[error("its format is version {0}, and this Swansong knows version {VERSION} only")]
    Version(u32),
}

impl Record {
    /// Reads an annotation.
    pub fn parse(annotation: &str) -> Result<Self, RecordError> {
        let record: Self = serde_json::from_str(annotation)?;
        if record.version == VERSION { Ok(record) } else { Err(RecordError::Version(record.version)) }
    }

    /// The annotation's value, in the format of this build.
    pub fn into_annotation(mut self) -> String {
        self.version = VERSION;
        // Strings and string-keyed maps always serialise; should that ever change, an empty record makes
        // `uninject` leave things as they are.
        serde_json::to_string(&self).unwrap_or_default()
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        let Self { version: _, annotations, labels, replaced, absent, null, containers } = self;
        annotations.is_empty()
            && labels.is_empty()
            && replaced.is_empty()
            && absent.is_empty()
            && null.is_empty()
            && containers.is_empty()
    }

    /// This older record extended by a newer one: a Pod that got part of its injection from its template.
    #[must_use]
    pub fn extended_by(mut self, newer: Self) -> Self {
        extend(&mut self.annotations, newer.annotations);
        extend(&mut self.labels, newer.labels);
        for (key, former) in newer.replaced {
            self.replaced.entry(key).or_insert(former);
        }
        extend(&mut self.absent, newer.absent);
        extend(&mut self.null, newer.null);
        for (name, container) in newer.containers {
            let older = self.containers.entry(name).or_default();
            extend(&mut older.env, container.env);
            extend(&mut older.ports, container.ports);
            older.preload = older.preload.take().or(container.preload);
            extend(&mut older.absent, container.absent);
            extend(&mut older.null, container.null);
        }
        self
    }
}

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
            env: vec!["POD_IP".to_owned()],
            preload: Some(FormerPreload::Value("/a.so".to_owned())),
            ..ContainerRecord::default()
        };
        Record { containers: BTreeMap::from([("ascend".to_owned(), ascend)]), ..Record::default() }
    }

    #[test]
    fn a_record_reads_back() {
        let text = record().into_annotation();
        assert_eq!(
            text,
            r#"{"version":1,"containers":{"ascend":{"env":["POD_IP"],"preload":{"value":"/a.so"}}}}"#
        );
        assert_eq!(Record::parse(&text).expect("own output"), Record { version: 1, ..record() });
    }

    #[test]
    fn strangers_are_refused() {
        assert!(matches!(Record::parse("yes"), Err(RecordError::Malformed(_))));
        assert!(matches!(Record::parse(r#"{"version":1,"x":2}"#), Err(RecordError::Malformed(_))));
        assert!(matches!(Record::parse(r#"{"version":2}"#), Err(RecordError::Version(2))));
    }

    #[test]
    fn the_older_record_knows_what_the_user_wrote() {
        let mut newer = record();
        newer.containers.get_mut("ascend").expect("there").preload = Some(FormerPreload::Absent);
        let merged = record().extended_by(newer);
        assert_eq!(merged, record());
    }
}

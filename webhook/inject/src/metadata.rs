//! Changes the annotations and labels of one object or template, and writes the record.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use swansong_api::annotations::INJECTED;
use swansong_api::record::{Record, summary};

use super::operation::{Operation, Verb, escape, raw};
use super::report::Warning;
use super::view::{Metadata, Slot};
use crate::reason::Reason;

/// The API server's limit for the annotations of an object, in bytes of keys and values.
pub(super) const MAX_ANNOTATIONS: usize = 256 << 10;

/// A value of an annotation that is the same for all objects.
#[derive(Debug)]
pub(super) struct PreparedText {
    json: Box<RawValue>,
    summary: String,
    length: usize,
}

impl PreparedText {
    pub(super) fn new(text: &str) -> Self {
        Self { json: raw(&text), summary: summary(text), length: text.len() }
    }
}

#[derive(Debug, Default)]
pub(super) struct MetadataChanges {
    pub(super) annotations: Vec<(&'static str, String)>,
    pub(super) prepared: Vec<(&'static str, &'static PreparedText)>,
    /// Annotations to rewrite: key, original value, new value.
    pub(super) rewritten: Vec<(&'static str, String, String)>,
    pub(super) labels: Vec<(&'static str, &'static str)>,
}

impl MetadataChanges {
    /// Emits the operations for the metadata at `path` (without `/metadata`), including the record; none if neither this
    /// nor `record` has a change. Returns whether the annotations fit the API server's limit.
    pub(super) fn emit(
        self,
        path: &str,
        metadata: &Slot<Metadata<'_>>,
        mut record: Record,
        operations: &mut Vec<Operation>,
        warnings: &mut Vec<Warning>,
    ) -> bool {
        record
            .annotations
            .extend(self.annotations.iter().map(|(key, value)| ((*key).to_owned(), summary(value))));
        let prepared = self.prepared.iter();
        record.annotations.extend(prepared.map(|(key, text)| ((*key).to_owned(), text.summary.clone())));
        record.labels.extend(self.labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        record
            .replaced
            .extend(self.rewritten.iter().map(|(key, original, _)| ((*key).to_owned(), original.clone())));
        if record.is_empty() {
            return true;
        }
        let present = metadata.present();
        let annotations = present.map(|metadata| &metadata.annotations);
        record_parents(metadata, !self.labels.is_empty(), &mut record);
        let older = present.and_then(|metadata| metadata.annotation(INJECTED));
        let record = extend(older, record, warnings).into_annotation();

        let present_length = present.map_or(0, Metadata::total_annotations_length);
        let replaced_length = older.map_or(0, |older| INJECTED.len() + older.len());
        let lengths = self.annotations.iter().map(|(key, value)| key.len() + value.len());
        let prepared = self.prepared.iter().map(|(key, text)| key.len() + text.length);
        let added = lengths.chain(prepared).sum::<usize>();
        // Job controllers add annotations to the Pods of a template.
        let limit = if path.is_empty() { MAX_ANNOTATIONS } else { MAX_ANNOTATIONS - 4096 };
        let length = present_length - replaced_length + added + INJECTED.len() + record.len();

        let parent = format!("{path}/metadata");
        let prepared = self.prepared.iter().map(|(key, text)| (*key, Cow::Borrowed(&*text.json)));
        let members =
            self.annotations.iter().map(|(key, value)| (*key, Cow::Owned(raw(value)))).chain(prepared);
        let members: BTreeMap<&str, Cow<'static, RawValue>> =
            members.chain([(INJECTED, Cow::Owned(raw(&record)))]).collect();
        match annotations {
            None => {
                let metadata = BTreeMap::from([("annotations", members)]);
                operations.push(Operation::add(parent.clone(), &metadata));
            }
            Some(Slot::Absent | Slot::Null) => {
                operations.push(Operation::add(format!("{parent}/annotations"), &members));
            }
            // `add` replaces an existing member (RFC 6902), such as an older record.
            Some(Slot::Present(_)) => {
                operations.extend(members.into_iter().map(|(key, value)| Operation {
                    verb: Verb::Add,
                    path: format!("{parent}/annotations/{}", escape(key)),
                    value: Some(value),
                }));
            }
        }
        for (key, _, value) in &self.rewritten {
            operations.push(Operation::replace(format!("{parent}/annotations/{}", escape(key)), value));
        }
        let has_labels = present.is_some_and(|metadata| metadata.labels.present().is_some());
        if has_labels {
            for (key, value) in &self.labels {
                operations.push(Operation::add(format!("{parent}/labels/{}", escape(key)), value));
            }
        } else if !self.labels.is_empty() {
            let labels: BTreeMap<_, _> = self.labels.iter().copied().collect();
            operations.push(Operation::add(format!("{parent}/labels"), &labels));
        }
        length <= limit
    }
}

/// Records which parents the operations create.
fn record_parents(metadata: &Slot<Metadata<'_>>, labels: bool, record: &mut Record) {
    let mut note = |name: &str, is_null: bool| {
        let list = if is_null { &mut record.null } else { &mut record.absent };
        list.push(name.to_owned());
    };
    match metadata {
        Slot::Absent => note("metadata", false),
        Slot::Null => note("metadata", true),
        Slot::Present(metadata) => {
            match metadata.annotations {
                Slot::Absent => note("annotations", false),
                Slot::Null => note("annotations", true),
                Slot::Present(_) => {}
            }
            match metadata.labels {
                Slot::Absent if labels => note("labels", false),
                Slot::Null if labels => note("labels", true),
                _ => {}
            }
        }
    }
}

/// The record to write, given the present one.
fn extend(older: Option<&str>, record: Record, warnings: &mut Vec<Warning>) -> Record {
    match older.map(Record::parse) {
        None => record,
        Some(Ok(older)) => older.extended_by(record),
        Some(Err(error)) => {
            warnings.push(Warning {
                reason: Reason::RecordUnreadable,
                message: format!("annotation {INJECTED} was replaced: {error}"),
            });
            record
        }
    }
}

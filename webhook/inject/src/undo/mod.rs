//! The exact undo of an injection, by the records it left.

mod container;
mod node_readiness;
mod volumes;

use std::collections::BTreeMap;

use swansong_api::annotations::INJECTED;
use swansong_api::record::{ContainerRecord, Record, RecordError, summary};
use swansong_api::strategy::Strategies;

use self::container::ContainerUndo;
use super::operation::{Operation, escape};
use super::original::Original;
use super::view::{Kept, Metadata, Object, PodSpec, ShapeError, Slot, Text};
use crate::workload::{self, WorkloadKind};

/// Why an injection can't be undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The object doesn't have the fields of its kind.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The record is unreadable.
    #[error(
        "annotation {INJECTED} on `{place}`: {source}; remove the annotation and what Swansong added by hand"
    )]
    Record {
        /// JSON pointer of the object or template with the record; `/` is the object.
        place: String,
        /// The error of the parser.
        source: RecordError,
    },
}

/// The undo of an injection.
#[derive(Debug, Default)]
pub struct Undo {
    /// The operations; none if the object has no record.
    pub operations: Vec<Operation>,
    /// A sentence for each injected field that remains because it was changed since.
    pub remaining: Vec<String>,
}

/// Removes an injection by its records, except what the user changed or removed since.
pub fn uninject(kind: WorkloadKind, json: &str) -> Result<Undo, UndoError> {
    let object = Object::parse(kind, json)?;
    let mut undo = Undo::default();
    for located in workload::templates(&object) {
        let metadata = &located.template.metadata;
        if let Some(record) = read(metadata, &located.path)? {
            if let Some(spec) = located.template.spec.present() {
                undo_containers(&located.path, spec, &record.containers, &mut undo);
                volumes::undo(&located.path, spec, &record, &mut undo);
                node_readiness::undo(&located.path, spec, &record.node_readiness, &mut undo);
            }
            undo_metadata(&located.path, metadata, &record, &mut undo);
        }
    }
    if kind != WorkloadKind::Pod
        && let Some(record) = read(object.metadata(), "")?
    {
        undo_metadata("", object.metadata(), &record, &mut undo);
    }
    Ok(undo)
}

fn read(metadata: &Slot<Metadata<'_>>, path: &str) -> Result<Option<Record>, UndoError> {
    let annotation = metadata.present().and_then(|metadata| metadata.annotation(INJECTED));
    annotation.map(Record::parse).transpose().map_err(|source| UndoError::Record {
        place: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
        source,
    })
}

fn undo_containers(
    path: &str,
    spec: &PodSpec<'_>,
    records: &BTreeMap<String, ContainerRecord>,
    undo: &mut Undo,
) {
    let lists = [("containers", &spec.containers), ("initContainers", &spec.init_containers)];
    for (name, record) in records {
        let mut found = false;
        for (list, containers) in lists {
            for (index, container) in containers.items().iter().enumerate() {
                if container.name() == name {
                    found = true;
                    let path = format!("{path}/spec/{list}/{index}");
                    ContainerUndo { path: &path, container, record, undo }.run();
                }
            }
        }
        if !found {
            undo.remaining.push(format!(
                "container {name} no longer exists; if it was renamed, the additions to it remain"
            ));
        }
    }
}

/// Whether a rewritten list hasn't been changed since.
fn still_ours(metadata: &Metadata<'_>, key: &str, former: &str) -> bool {
    metadata.annotation(key).is_some_and(|now| now == Strategies::parse(former).normalised())
}

fn undo_metadata(path: &str, metadata: &Slot<Metadata<'_>>, record: &Record, undo: &mut Undo) {
    let Some(metadata) = metadata.present() else { return };
    let Undo { operations, remaining } = undo;
    let (annotations, labels) = (metadata.annotations.present(), metadata.labels.present());
    let mut added = still_written("annotation", &record.annotations, annotations, remaining);
    added.push(INJECTED);
    let added_labels = still_written("label", &record.labels, labels, remaining);

    let parent = format!("{path}/metadata");
    let former = |name: &str| Original::of(name, &record.absent, &record.null);
    let made = former("metadata");
    let length = annotations.map_or(0, |annotations| annotations.len);
    if let Some(made) = made
        && added.len() == length
        && metadata.has_only_annotations()
    {
        operations.push(made.restore(parent));
        return;
    }
    // The user added fields to a metadata that the injection created.
    let annotations_were = made.map(|_| Original::Absent).or(former("annotations"));
    let path = format!("{parent}/annotations");
    remove_keys(&path, &added, length, annotations_were, operations);
    for (key, former) in record.replaced.iter().filter(|(key, former)| still_ours(metadata, key, former)) {
        operations.push(Operation::replace(format!("{path}/{}", escape(key)), former));
    }
    let length = labels.map_or(0, |labels| labels.len);
    remove_keys(&format!("{parent}/labels"), &added_labels, length, former("labels"), operations);
}

/// The keys that still have the written values.
fn still_written<'r, K>(
    what: &str,
    written: &'r BTreeMap<String, String>,
    now: Option<&Kept<'_, K, Slot<Text<'_>>>>,
    remaining: &mut Vec<String>,
) -> Vec<&'r str> {
    let mut ours = Vec::new();
    for (key, value) in written {
        match now.and_then(|map| map.get(key)).and_then(Slot::present) {
            Some(now) if summary(now) == *value => ours.push(key.as_str()),
            Some(_) => remaining.push(format!("{what} {key} was changed since and stays")),
            None => {}
        }
    }
    ours
}

/// Removes keys from the map at `path`, or the map itself if the injection created it and it has no other keys.
fn remove_keys(
    path: &str,
    keys: &[&str],
    length: usize,
    former: Option<Original>,
    operations: &mut Vec<Operation>,
) {
    let emptied = !keys.is_empty() && keys.len() == length;
    if let Some(former) = former.filter(|_| emptied) {
        operations.push(former.restore(path.to_owned()));
    } else {
        operations.extend(keys.iter().map(|key| Operation::remove(format!("{path}/{}", escape(key)))));
    }
}

//! The exact undo of an injection, by the records it left.

mod container;

use std::collections::BTreeMap;

use swansong_api::annotations::INJECTED;
use swansong_api::record::{ContainerRecord, Record, RecordError};
use swansong_api::strategy::Strategies;

use self::container::ContainerUndo;
use super::former::Former;
use super::node_readiness;
use super::operation::{Operation, escape};
use super::view::{Kept, Metadata, Object, PodSpec, ShapeError, Slot, Text};
use crate::workload::{self, WorkloadKind};

/// Why an injection can't be undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The object isn't of its kind's shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The record is somebody else's or damaged.
    #[error(
        "annotation {INJECTED} on `{place}`: {source}; remove the annotation and what Swansong added by hand"
    )]
    Record {
        /// JSON pointer of the object or template that carries it; `/` is the object.
        place: String,
        /// What is wrong.
        source: RecordError,
    },
}

/// How an injection is taken back.
#[derive(Debug, Default)]
pub struct Undo {
    /// The operations; none when the object carries no record.
    pub operations: Vec<Operation>,
    /// What stays though Swansong added it, since it was changed meanwhile: a sentence each.
    pub stays: Vec<String>,
}

/// Takes an injection back by the records it left.
///
/// What the user removed meanwhile is passed over, and what the user changed is the user's.
pub fn uninject(kind: WorkloadKind, json: &str) -> Result<Undo, UndoError> {
    let object = Object::parse(kind, json)?;
    let mut undo = Undo::default();
    for located in workload::templates(&object) {
        let metadata = &located.template.metadata;
        if let Some(record) = read(metadata, &located.path)? {
            if let Some(spec) = located.template.spec.present() {
                undo_containers(&located.path, spec, &record.containers, &mut undo);
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
            undo.stays.push(format!(
                "there is no container {name} any more; if it has another name now, what was added to it is still there"
            ));
        }
    }
}

/// Whether a rewritten list is still the one we wrote, and not one that the user wrote since.
fn still_ours(metadata: &Metadata<'_>, key: &str, former: &str) -> bool {
    metadata.annotation(key).is_some_and(|now| now == Strategies::parse(former).normalised())
}

fn undo_metadata(path: &str, metadata: &Slot<Metadata<'_>>, record: &Record, undo: &mut Undo) {
    let Some(metadata) = metadata.present() else { return };
    let Undo { operations, stays } = undo;
    let (annotations, labels) = (metadata.annotations.present(), metadata.labels.present());
    let mut added = still_written("annotation", &record.annotations, annotations, stays);
    added.push(INJECTED);
    let added_labels = still_written("label", &record.labels, labels, stays);

    let parent = format!("{path}/metadata");
    let former = |name: &str| Former::of(name, &record.absent, &record.null);
    let made = former("metadata");
    let length = annotations.map_or(0, |annotations| annotations.len);
    if let Some(made) = made
        && added.len() == length
        && metadata.holds_annotations_at_most()
    {
        operations.push(made.restore(parent));
        return;
    }
    // What the user put into a metadata of ours since keeps it, and has no annotations of its own.
    let annotations_were = made.map(|_| Former::Absent).or(former("annotations"));
    let path = format!("{parent}/annotations");
    take_out(&path, &added, length, annotations_were, operations);
    for (key, former) in record.replaced.iter().filter(|(key, former)| still_ours(metadata, key, former)) {
        operations.push(Operation::replace(format!("{path}/{}", escape(key)), former));
    }
    let length = labels.map_or(0, |labels| labels.len);
    take_out(&format!("{parent}/labels"), &added_labels, length, former("labels"), operations);
}

/// The keys that still have the values that were written.
fn still_written<'r, K>(
    what: &str,
    written: &'r BTreeMap<String, String>,
    now: Option<&Kept<'_, K, Slot<Text<'_>>>>,
    stays: &mut Vec<String>,
) -> Vec<&'r str> {
    let mut ours = Vec::new();
    for (key, value) in written {
        match now.and_then(|map| map.get(key)).and_then(Slot::present) {
            Some(now) if **now == **value => ours.push(key.as_str()),
            Some(_) => stays.push(format!("{what} {key} was changed since and stays")),
            None => {}
        }
    }
    ours
}

/// Takes keys out of the map at `path`, or the map itself when we made it and nothing else is in it.
fn take_out(
    path: &str,
    keys: &[&str],
    length: usize,
    former: Option<Former>,
    operations: &mut Vec<Operation>,
) {
    let emptied = !keys.is_empty() && keys.len() == length;
    if let Some(former) = former.filter(|_| emptied) {
        operations.push(former.restore(path.to_owned()));
    } else {
        operations.extend(keys.iter().map(|key| Operation::remove(format!("{path}/{}", escape(key)))));
    }
}

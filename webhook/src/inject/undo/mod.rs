//! The exact undo of an injection, by the records it left.

mod container;

use std::collections::BTreeMap;

use self::container::ContainerUndo;
use super::node_readiness;
use super::operation::{Operation, escape};
use super::record::{ANNOTATION, ContainerRecord, Record, RecordError};
use super::view::{Metadata, Object, PodSpec, ShapeError, Slot};
use crate::strategy::Strategies;
use crate::workload::{self, WorkloadKind};

/// Why an injection can't be undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The object isn't of its kind's shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The record is somebody else's or damaged.
    #[error(
        "annotation {ANNOTATION} on `{place}`: {source}; remove the annotation and what Swansong added by hand"
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
    let annotation = metadata.present().and_then(|metadata| metadata.annotation(ANNOTATION));
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
    let parent = format!("{path}/metadata");
    let absent = |name: &str| record.absent.iter().any(|parent| parent == name);
    let null = |name: &str| record.null.iter().any(|parent| parent == name);

    let annotations = metadata.annotations.present();
    let mut ours = |what: &str, written: &BTreeMap<String, String>, now: &dyn Fn(&str) -> Option<String>| {
        let kept = |(key, value): (&String, &String)| match now(key) {
            Some(now) if now == *value => Some(key.clone()),
            Some(_) => {
                stays.push(format!("{what} {key} was changed since and stays"));
                None
            }
            None => None,
        };
        written.iter().filter_map(kept).collect::<Vec<String>>()
    };
    let mut added =
        ours("annotation", &record.annotations, &|key| metadata.annotation(key).map(str::to_owned));
    let added_labels = ours("label", &record.labels, &|key| metadata.label(key).map(str::to_owned));
    added.push(ANNOTATION.to_owned());
    let emptied = annotations.is_some_and(|map| map.len == added.len());
    let labels = metadata.labels.present();
    let made_metadata = absent("metadata") || null("metadata");
    if made_metadata && emptied && metadata.holds_annotations_at_most() {
        operations.push(if absent("metadata") {
            Operation::remove(parent)
        } else {
            Operation::replace(parent, &())
        });
        return;
    }
    if emptied && (made_metadata || absent("annotations")) {
        operations.push(Operation::remove(format!("{parent}/annotations")));
    } else if emptied && null("annotations") {
        operations.push(Operation::replace(format!("{parent}/annotations"), &()));
    } else {
        for key in &added {
            operations.push(Operation::remove(format!("{parent}/annotations/{}", escape(key))));
        }
        for (key, former) in record.replaced.iter().filter(|(key, former)| still_ours(metadata, key, former))
        {
            operations.push(Operation::replace(format!("{parent}/annotations/{}", escape(key)), former));
        }
    }
    let emptied = !added_labels.is_empty() && labels.is_some_and(|map| map.len == added_labels.len());
    if emptied && absent("labels") {
        operations.push(Operation::remove(format!("{parent}/labels")));
    } else if emptied && null("labels") {
        operations.push(Operation::replace(format!("{parent}/labels"), &()));
    } else {
        for key in &added_labels {
            operations.push(Operation::remove(format!("{parent}/labels/{}", escape(key))));
        }
    }
}

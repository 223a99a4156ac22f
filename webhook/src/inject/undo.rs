//! The exact undo of an injection, by the records it left.

use std::collections::BTreeMap;

use super::env::ORIGINAL_PRELOAD;
use super::operation::{Operation, escape};
use super::preload;
use super::record::{ANNOTATION, ContainerRecord, FormerPreload, Record, RecordError};
use super::view::{Container, Metadata, Object, PodSpec, ShapeError, Slot};
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

/// The operations that take an injection back; none when the object carries no record.
///
/// Entries the user removed meanwhile are passed over.
pub fn uninject(kind: WorkloadKind, json: &str) -> Result<Vec<Operation>, UndoError> {
    let object = Object::parse(kind, json)?;
    let mut operations = Vec::new();
    for located in workload::templates(&object) {
        let metadata = &located.template.metadata;
        if let Some(record) = read(metadata, &located.path)? {
            if let Some(spec) = located.template.spec.present() {
                undo_containers(&located.path, spec, &record.containers, &mut operations);
            }
            undo_metadata(&located.path, metadata, &record, &mut operations);
        }
    }
    if kind != WorkloadKind::Pod
        && let Some(record) = read(object.metadata(), "")?
    {
        undo_metadata("", object.metadata(), &record, &mut operations);
    }
    Ok(operations)
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
    operations: &mut Vec<Operation>,
) {
    for (list, containers) in [("containers", &spec.containers), ("initContainers", &spec.init_containers)] {
        for (index, container) in containers.items().iter().enumerate() {
            if let Some(record) = records.get(container.name()) {
                let path = format!("{path}/spec/{list}/{index}");
                undo_env(&path, container, record, operations);
                undo_ports(&path, container, record, operations);
            }
        }
    }
}

fn undo_env(
    path: &str,
    container: &Container<'_>,
    record: &ContainerRecord,
    operations: &mut Vec<Operation>,
) {
    let list = format!("{path}/env");
    let added: Vec<usize> =
        record.env.iter().filter_map(|name| container.last_env(name)).map(|(index, _)| index).collect();
    // Values first, while indices are those of the view.
    match &record.preload {
        Some(FormerPreload::ValueFrom) => {
            if let Some((index, _)) = container.last_env(ORIGINAL_PRELOAD) {
                operations.push(Operation::replace(format!("{list}/{index}/name"), &preload::VARIABLE));
            }
        }
        Some(former) => {
            let entry = container.last_env(preload::VARIABLE).filter(|(index, _)| !added.contains(index));
            if let Some((index, entry)) = entry {
                let value = format!("{list}/{index}/value");
                match former {
                    FormerPreload::Value(text) => operations.push(Operation::add(value, text)),
                    FormerPreload::Null => operations.push(Operation::add(value, &())),
                    FormerPreload::Absent if entry.value != Slot::Absent => {
                        operations.push(Operation::remove(value));
                    }
                    FormerPreload::Absent | FormerPreload::ValueFrom => {}
                }
            }
        }
        None => {}
    }
    remove_items(&list, added, container.env.items().len(), "env", record, operations);
}

fn undo_ports(
    path: &str,
    container: &Container<'_>,
    record: &ContainerRecord,
    operations: &mut Vec<Operation>,
) {
    let numbers = record.ports.iter().filter_map(|port| port.strip_suffix("/TCP")?.parse().ok());
    let ports = container.ports.items();
    let added = numbers.filter_map(|number: u16| ports.iter().position(|port| port.is_tcp(number))).collect();
    remove_items(&format!("{path}/ports"), added, ports.len(), "ports", record, operations);
}

/// Removes list items from the highest index down, and the list itself when we made it and it is empty.
fn remove_items(
    list: &str,
    mut indices: Vec<usize>,
    len: usize,
    field: &str,
    record: &ContainerRecord,
    operations: &mut Vec<Operation>,
) {
    indices.sort_unstable();
    indices.dedup();
    let emptied = !indices.is_empty() && indices.len() == len;
    let list = list.to_owned();
    if emptied && record.absent.iter().any(|name| name == field) {
        operations.push(Operation::remove(list));
    } else if emptied && record.null.iter().any(|name| name == field) {
        operations.push(Operation::replace(list, &()));
    } else {
        operations
            .extend(indices.into_iter().rev().map(|index| Operation::remove(format!("{list}/{index}"))));
    }
}

/// Whether a rewritten list is still the one we wrote, and not one that the user wrote since.
fn still_ours(metadata: &Metadata<'_>, key: &str, former: &str) -> bool {
    metadata.annotation(key).is_some_and(|now| now == Strategies::parse(former).normalised())
}

fn undo_metadata(
    path: &str,
    metadata: &Slot<Metadata<'_>>,
    record: &Record,
    operations: &mut Vec<Operation>,
) {
    let Some(metadata) = metadata.present() else { return };
    let parent = format!("{path}/metadata");
    let absent = |name: &str| record.absent.iter().any(|parent| parent == name);
    let null = |name: &str| record.null.iter().any(|parent| parent == name);

    let annotations = metadata.annotations.present();
    let added: Vec<&str> = record.annotations.iter().map(String::as_str).chain([ANNOTATION]).collect();
    let added: Vec<&str> =
        added.into_iter().filter(|key| annotations.is_some_and(|map| map.get(key).is_some())).collect();
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
        for key in added {
            operations.push(Operation::remove(format!("{parent}/annotations/{}", escape(key))));
        }
        for (key, former) in record.replaced.iter().filter(|(key, former)| still_ours(metadata, key, former))
        {
            operations.push(Operation::replace(format!("{parent}/annotations/{}", escape(key)), former));
        }
    }
    let added: Vec<&String> =
        record.labels.iter().filter(|key| labels.is_some_and(|map| map.get(key).is_some())).collect();
    let emptied = !added.is_empty() && labels.is_some_and(|map| map.len == added.len());
    if emptied && absent("labels") {
        operations.push(Operation::remove(format!("{parent}/labels")));
    } else if emptied && null("labels") {
        operations.push(Operation::replace(format!("{parent}/labels"), &()));
    } else {
        for key in added {
            operations.push(Operation::remove(format!("{parent}/labels/{}", escape(key))));
        }
    }
}

//! Removes what was added beside the training containers: volumes, init containers and the grace period.

use swansong_api::launcher_hook::VOLUME;
use swansong_api::record::{ContainerRecord, Record};

use super::Undo;
use super::container::is_added;
use crate::additions::{GRACE_PERIOD, INIT_CONTAINERS, VOLUMES};
use crate::launcher_hook::is_ours;
use crate::operation::Operation;
use crate::original::Original;
use crate::view::{Container, PodSpec, Volume};

/// Removes the additions of `record` from the pod template at `path`, except what the user changed or uses since.
pub(super) fn undo(path: &str, spec: &PodSpec<'_>, record: &Record, undo: &mut Undo) {
    let spec_path = format!("{path}/spec");
    let init_containers = spec.init_containers.items();
    let is_added =
        |container: &Container<'_>| record.init_containers.iter().any(|name| name == container.name());
    let removed = indices(init_containers, is_added);
    remove(&spec_path, INIT_CONTAINERS, &removed, init_containers.len(), record, undo);

    let mut removed = Vec::new();
    for (index, volume) in spec.volumes.items().iter().enumerate() {
        let name = volume.name.text();
        if !record.volumes.iter().any(|added| added == name) {
            continue;
        }
        if is_changed(volume) || is_used(name, spec, record) {
            undo.remaining.push(format!("volume {name} was changed or mounted since and stays"));
        } else {
            removed.push(index);
        }
    }
    remove(&spec_path, VOLUMES, &removed, spec.volumes.items().len(), record, undo);
    grace_period(&spec_path, spec, record, undo);
}

fn is_changed(volume: &Volume<'_>) -> bool {
    volume.name.text() == VOLUME && !is_ours(volume)
}

/// Whether a container mounts the volume where no injection did.
fn is_used(name: &str, spec: &PodSpec<'_>, record: &Record) -> bool {
    let none = ContainerRecord::default();
    let mut containers = spec.containers.items().iter().chain(spec.init_containers.items());
    containers.any(|container| {
        let of_container = record.containers.get(container.name()).unwrap_or(&none);
        !record.init_containers.iter().any(|added| added == container.name())
            && container
                .volume_mounts
                .items()
                .iter()
                .any(|mount| mount.name.text() == name && !is_added(mount, of_container))
    })
}

fn indices<T>(items: &[T], is_removed: impl Fn(&T) -> bool) -> Vec<usize> {
    items.iter().enumerate().filter(|(_, item)| is_removed(item)).map(|(index, _)| index).collect()
}

/// Removes items of a list, or the list itself if the injection created it and it becomes empty.
fn remove(parent: &str, field: &str, removed: &[usize], length: usize, record: &Record, undo: &mut Undo) {
    let list = format!("{parent}/{field}");
    let emptied = !removed.is_empty() && removed.len() == length;
    match Original::of(field, &record.absent, &record.null).filter(|_| emptied) {
        Some(original) => undo.operations.push(original.restore(list)),
        None => undo
            .operations
            .extend(removed.iter().rev().map(|index| Operation::remove(format!("{list}/{index}")))),
    }
}

fn grace_period(parent: &str, spec: &PodSpec<'_>, record: &Record, undo: &mut Undo) {
    let Some(grace) = record.grace_period else { return };
    let path = format!("{parent}/{GRACE_PERIOD}");
    match spec.termination_grace.present() {
        Some(now) if *now == grace.to => undo.operations.push(match grace.from {
            Some(from) => Operation::replace(path, &from),
            None => Original::of(GRACE_PERIOD, &[], &record.null).unwrap_or(Original::Absent).restore(path),
        }),
        Some(_) => undo.remaining.push(format!("{GRACE_PERIOD} was changed since and stays")),
        None => {}
    }
}

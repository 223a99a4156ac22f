//! Undoes the injection of one container.

use swansong_api::env::{LD_PRELOAD, ORIGINAL_LD_PRELOAD, POD_IP, POD_IP_FIELD};
use swansong_api::launcher_hook::VOLUME;
use swansong_api::preload::entries;
use swansong_api::record::{ContainerRecord, OriginalPreload, PreloadRecord, summary};

use super::Undo;
use crate::container::MOUNTS;
use crate::launcher_hook::is_mounted_at;
use crate::operation::Operation;
use crate::original::Original;
use crate::preload;
use crate::view::{Container, EnvVar, Slot, VolumeMount};

pub(super) struct ContainerUndo<'u, 'c, 'a> {
    /// JSON pointer of the container.
    pub(super) path: &'u str,
    pub(super) container: &'c Container<'a>,
    pub(super) record: &'u ContainerRecord,
    pub(super) undo: &'u mut Undo,
}

impl ContainerUndo<'_, '_, '_> {
    pub(super) fn run(mut self) {
        // Edits first, while the indices of the view are valid.
        let mut env: Vec<usize> = self.preload().into_iter().collect();
        let literals = self.record.env.iter().map(|(name, written)| (name, written, false));
        let references = self.record.field_refs.iter().map(|(name, path)| (name, path, true));
        for (name, written, is_reference) in literals.chain(references) {
            let is_ours = if is_reference { refers_to_field } else { has_value };
            match self.container.last_env(name) {
                Some((index, entry)) if is_ours(entry, written) => env.push(index),
                Some(_) => self.report_changed(&format!("env {name}")),
                None => {}
            }
        }
        self.remove("env", env, self.container.env.items().len());
        let mounts = self.mounts();
        self.remove(MOUNTS, mounts, self.container.volume_mounts.items().len());
        let ports = self.ports();
        self.remove("ports", ports, self.container.ports.items().len());
    }

    fn report_changed(&mut self, what: &str) {
        let name = self.container.name();
        self.undo.remaining.push(format!("container {name}: {what} was changed since and stays"));
    }

    /// Removes the libraries from LD_PRELOAD. Returns the index of an entry to remove.
    fn preload(&mut self) -> Option<usize> {
        let PreloadRecord { libraries, original } = self.record.preload.as_ref()?;
        let list = format!("{}/env", self.path);
        let entry = self.container.last_env(LD_PRELOAD);
        let found = entry.and_then(|(index, entry)| Some((index, without(entry, libraries)?)));
        if let Some(OriginalPreload::ValueFrom) = original
            && let Some((renamed, _)) = self.container.last_env(ORIGINAL_LD_PRELOAD)
        {
            // The source gets its name back unless the user added entries to the reference.
            let reference = format!("$({ORIGINAL_LD_PRELOAD})");
            let only = found.as_ref().is_some_and(|(_, rest)| entries(rest).all(|path| path == reference));
            if only || entry.is_none() {
                let name = format!("{list}/{renamed}/name");
                self.undo.operations.push(Operation::replace(name, &LD_PRELOAD));
                return found.map(|(index, _)| index);
            }
        }
        let (index, rest) = found?;
        let path = format!("{list}/{index}/value");
        let operation = match original {
            None if rest.is_empty() => return Some(index),
            Some(OriginalPreload::Null) if rest.is_empty() => Operation::replace(path, &()),
            Some(OriginalPreload::Absent) if rest.is_empty() => Operation::remove(path),
            _ => Operation::replace(path, &rest),
        };
        self.undo.operations.push(operation);
        None
    }

    fn ports(&mut self) -> Vec<usize> {
        let ports = self.container.ports.items();
        let mut ours = Vec::new();
        for written in &self.record.ports {
            let Some((number, name)) = written.split_once("/TCP ") else { continue };
            let Ok(number) = number.parse() else { continue };
            match ports.iter().position(|port| port.is_tcp(number)) {
                Some(index) if ports[index].name.present().is_some_and(|now| **now == *name) => {
                    ours.push(index);
                }
                Some(_) => self.report_changed(&format!("the name of port {number}")),
                None => {}
            }
        }
        ours
    }

    fn mounts(&self) -> Vec<usize> {
        let mounts = self.container.volume_mounts.items().iter().enumerate();
        mounts.filter(|(_, mount)| is_added(mount, self.record)).map(|(index, _)| index).collect()
    }

    /// Removes list items from the highest index down, or the list itself if the injection created it and it becomes empty.
    fn remove(&mut self, field: &str, mut indices: Vec<usize>, len: usize) {
        indices.sort_unstable();
        indices.dedup();
        let emptied = !indices.is_empty() && indices.len() == len;
        let list = format!("{}/{field}", self.path);
        let operations = &mut self.undo.operations;
        if let Some(former) = Original::of(field, &self.record.absent, &self.record.null).filter(|_| emptied)
        {
            operations.push(former.restore(list));
        } else {
            let removed = indices.into_iter().rev();
            operations.extend(removed.map(|index| Operation::remove(format!("{list}/{index}"))));
        }
    }
}

/// Whether a mount is one that `record` has.
pub(super) fn is_added(mount: &VolumeMount<'_>, record: &ContainerRecord) -> bool {
    let (name, path) = (mount.name.text(), mount.mount_path.text());
    let hook = record.launcher_hook.as_deref().filter(|_| name == VOLUME);
    hook.is_some_and(|directory| is_mounted_at(directory, path))
        || record.mounts.get(name).is_some_and(|recorded| recorded == path)
}

/// Whether an entry has the recorded literal value.
fn has_value(entry: &EnvVar<'_>, recorded: &str) -> bool {
    entry.value_from.present().is_none() && entry.value.present().is_some_and(|now| summary(now) == recorded)
}

/// Whether an entry has the recorded fieldRef, also with the default `apiVersion`. A command that replaces a path in a file
/// may have changed the record as well, so the path of POD_IP has to be the one that is added.
fn refers_to_field(entry: &EnvVar<'_>, path: &str) -> bool {
    let is_written = entry.name() != POD_IP || path == POD_IP_FIELD;
    is_written && entry.value_from.present().is_some_and(|source| source.unread == 0 && source.is_field(path))
}

/// The value of an entry without `libraries`; `None` if it has none of them.
fn without(entry: &EnvVar<'_>, libraries: &[String]) -> Option<String> {
    match (&entry.value_from, &entry.value) {
        (Slot::Absent | Slot::Null, Slot::Present(value)) => preload::remove(value, libraries),
        _ => None,
    }
}

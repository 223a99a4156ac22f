//! Removes the volume of the launcher hook.

use swansong_api::launcher_hook::VOLUME;
use swansong_api::record::{ContainerRecord, Record};

use super::Undo;
use super::container::is_added;
use crate::launcher_hook::is_ours;
use crate::operation::Operation;
use crate::original::Original;
use crate::view::{Container, PodSpec};

/// Removes the volume from the pod template at `path`, unless the user mounted it too.
pub(super) fn undo(path: &str, spec: &PodSpec<'_>, record: &Record, undo: &mut Undo) {
    let volumes = spec.volumes.items();
    let added = record.volumes.iter().any(|name| name == VOLUME);
    let Some(index) = volumes.iter().position(|volume| added && volume.name.text() == VOLUME) else { return };
    let none = ContainerRecord::default();
    let is_mounted = |container: &Container<'_>| {
        let record = record.containers.get(container.name()).unwrap_or(&none);
        let mut mounts = container.volume_mounts.items().iter();
        mounts.any(|mount| mount.name.text() == VOLUME && !is_added(mount, record))
    };
    let mut containers = spec.containers.items().iter().chain(spec.init_containers.items());
    if !is_ours(&volumes[index]) || containers.any(is_mounted) {
        undo.remaining.push(format!("volume {VOLUME} was changed or mounted since and stays"));
        return;
    }
    let list = format!("{path}/spec/volumes");
    let created = Original::of("volumes", &record.absent, &record.null).filter(|_| volumes.len() == 1);
    undo.operations.push(match created {
        Some(original) => original.restore(list),
        None => Operation::remove(format!("{list}/{index}")),
    });
}

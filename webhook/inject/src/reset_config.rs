//! Mounts the job's reset.json, where MindCluster's documentation has it.

use serde_json::{Value, json};
use swansong_api::pod::{RESET_CONFIG, RESET_CONFIG_FOLDER};

use crate::additions::{PodAdditions, hides};
use crate::context::ContainerContext;
use crate::policy::ResetConfigMount;
use crate::reason::Reason;
use crate::report::Action;
use crate::view::{Container, PodSpec};

/// Where the device plugin mirrors the ConfigMaps, on the node.
const NODE_FOLDER: &str = "/user/restore/reset";

/// Name of the field in reports.
const FIELD: &str = "resetConfig";

/// The mount of one template.
pub(crate) struct ResetConfig<'t> {
    wanted: Option<ResetConfigMount>,
    job: Option<&'t str>,
    namespace: Option<&'t str>,
    /// Whether the user has a volume of the name, which containers don't mount as ours.
    has_volume: bool,
    is_mounted: bool,
    /// Why there is no mount while the job isn't known.
    unknown: Reason,
}

impl<'t> ResetConfig<'t> {
    pub(crate) fn new(
        wanted: Option<ResetConfigMount>,
        job: Option<&'t str>,
        namespace: Option<&'t str>,
        is_pod: bool,
        spec: &PodSpec<'_>,
    ) -> Self {
        let unknown = if is_pod { Reason::JobNameUnknown } else { Reason::AddedToPods };
        let has_volume = spec.volumes.items().iter().any(|volume| volume.name.text() == RESET_CONFIG);
        Self { wanted, job, namespace, has_volume, is_mounted: false, unknown }
    }

    /// The mount for a container; `None` if it gets none.
    pub(crate) fn mount(
        &mut self,
        context: &mut ContainerContext<'_>,
        container: &Container<'_>,
    ) -> Option<Value> {
        self.wanted?;
        if container.mounts(RESET_CONFIG) {
            context.record_action(Action::kept(FIELD, None, Reason::AlreadyPresent));
            return None;
        }
        let mut mounts = container.volume_mounts.items().iter().map(|mount| mount.mount_path.text());
        let reason = match self.source() {
            Err(reason) => reason,
            Ok(_) if self.has_volume || mounts.any(|path| hides(path, RESET_CONFIG_FOLDER)) => {
                Reason::UserValueKept
            }
            Ok(source) => {
                self.is_mounted = true;
                let action = Action::added(FIELD, source);
                context.record_action(Action { reason: Reason::ResetConfigMounted, ..action });
                return Some(
                    json!({"name": RESET_CONFIG, "mountPath": RESET_CONFIG_FOLDER, "readOnly": true}),
                );
            }
        };
        context.record_action(Action::skipped(FIELD, reason));
        None
    }

    /// Where reset.json comes from.
    fn source(&self) -> Result<String, Reason> {
        let job = self.job.ok_or(self.unknown)?;
        match self.wanted {
            Some(ResetConfigMount::HostPath) => {
                let namespace = self.namespace.ok_or(self.unknown)?;
                Ok(format!("{NODE_FOLDER}/{namespace}.reset-config-{job}"))
            }
            _ => Ok(format!("reset-config-{job}")),
        }
    }

    /// Adds the volume.
    pub(crate) fn emit(&self, additions: &mut PodAdditions) {
        let Some(source) = self.source().ok().filter(|_| self.is_mounted) else { return };
        let volume = if self.wanted == Some(ResetConfigMount::HostPath) {
            json!({"name": RESET_CONFIG, "hostPath": {"path": source, "type": "DirectoryOrCreate"}})
        } else {
            // The Pod starts without it too: the controller may create it later.
            json!({"name": RESET_CONFIG, "configMap": {"name": source, "optional": true}})
        };
        additions.volumes.push((RESET_CONFIG, volume));
    }
}

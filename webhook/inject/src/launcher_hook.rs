//! Mounts the launcher hook into training containers.
//!
//! The Pod carries the hook in two annotations, which a downward API volume makes files. Each is mounted by itself into the
//! directory that TaskD is installed in, because Python reads `.pth` files only there.

use std::sync::LazyLock;

use serde_json::{Value, json};
use swansong_api::annotations::{
    FAST_DUMP, INJECTED, LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH, LIBTASKD, PROTECT_DUMP,
};
use swansong_api::env::SAVE_LIMIT;
use swansong_api::launcher_hook::{MODULE_FILE, PTH_FILE, VOLUME, site_directory};
use swansong_api::record::{ContainerRecord, Record, summary};

use crate::context::{ContainerContext, PodContext};
use crate::metadata::{MAX_ANNOTATIONS, MetadataChanges, PreparedText};
use crate::operation::Operation;
use crate::options::Options;
use crate::original::append;
use crate::policy::{DEFAULT_SAVE_LIMIT, DumpPolicy, DumpStrategy, SAVE_LIMITS};
use crate::reason::Reason;
use crate::report::Action;
use crate::view::{Container, Metadata, PodSpec, Volume};

/// The text of the module.
pub const MODULE: &str = include_str!("launcher_hook/swansong_launcher_hook.py");

/// The line that Python runs at its start. It imports the module only in a launcher, since a mounted module has no compiled
/// copy and importing it takes some milliseconds.
const PTH_TEMPLATE: &str = include_str!("launcher_hook/swansong-launcher-hook.pth");

/// The text of the `.pth` file, with the longest wait in seconds, and whether TaskD's patch of torch's launcher is imported.
pub fn pth(limit_seconds: u16, patch_launcher: bool) -> String {
    let patch = if patch_launcher { "True" } else { "False" };
    PTH_TEMPLATE.replace("LIMIT", &limit_seconds.to_string()).replace("PATCH", patch)
}

static PREPARED_MODULE: LazyLock<PreparedText> = LazyLock::new(|| PreparedText::new(MODULE));

/// Name of the field in reports.
const FIELD: &str = "launcherHook";

/// The field of a container's mounts.
pub(crate) const MOUNTS: &str = "volumeMounts";

/// The files of the volume, with the annotations that they are made of.
const FILES: [(&str, &str); 2] = [(MODULE_FILE, LAUNCHER_HOOK_MODULE), (PTH_FILE, LAUNCHER_HOOK_PTH)];

/// How much longer the hook waits than a save may take, so that the Manager can report the result.
const MARGIN: u16 = 60;

/// The Pods of a job with more templates get the hook one by one, so that the job doesn't become too large.
const MOST_TEMPLATES: usize = 32;

/// Room in the annotations for the hook and the record.
const ROOM: usize = 16 << 10;

/// The hook of one template.
pub(crate) struct LauncherHook<'t> {
    policy: &'t DumpPolicy,
    dump: DumpStrategy,
    /// Why no container gets the hook, if so.
    refused: Option<Reason>,
    /// Whether the template has the volume already.
    has_volume: bool,
    /// The longest time that a save may take in a container with the hook, in seconds.
    longest_save: u16,
    /// Whether at least one container has the hook.
    is_mounted: bool,
    /// Why the last container without the hook doesn't have it.
    missing: Option<Reason>,
}

impl<'t> LauncherHook<'t> {
    /// Decides whether a template gets the hook, in an object of so many `templates`.
    pub(crate) fn new(
        policy: &'t DumpPolicy,
        pod: PodContext,
        options: &Options<'_>,
        own: Option<&Metadata<'_>>,
        spec: &PodSpec<'_>,
        templates: usize,
    ) -> Self {
        let volume = spec.volumes.items().iter().find(|volume| volume.name.text() == VOLUME);
        let has_volume = volume.is_some_and(is_ours);
        let mut containers = spec.containers.items().iter().chain(spec.init_containers.items());
        let is_taken = !has_volume && (volume.is_some() || containers.any(mounts_volume));
        let refused = match options.protect_dump {
            Some(false) => Some(Reason::LauncherHookOptedOut),
            _ if pod.dump == DumpStrategy::Absent => Some(Reason::StrategyWithoutDump),
            None if pod.dump == DumpStrategy::WithOthers => Some(Reason::LauncherHookOtherStrategies),
            None if !policy.launcher_hook => Some(Reason::LauncherHookOff),
            _ if is_taken => Some(Reason::LauncherHookVolumeTaken),
            _ if templates > MOST_TEMPLATES => Some(Reason::AddedToPods),
            _ if own.map_or(0, Metadata::total_annotations_length) + ROOM > MAX_ANNOTATIONS => {
                Some(Reason::AnnotationsTooLarge)
            }
            _ => None,
        };
        Self {
            policy,
            dump: pod.dump,
            refused,
            has_volume,
            longest_save: 0,
            is_mounted: false,
            missing: None,
        }
    }

    /// Mounts the hook into the container at `path`, whose library of TaskD is at `libtaskd`.
    pub(crate) fn mount(
        &mut self,
        context: &mut ContainerContext<'_>,
        container: &Container<'_>,
        path: &str,
        libtaskd: &str,
        record: &mut ContainerRecord,
    ) {
        if self.has_volume && mounts_volume(container) {
            context.record_action(Action::kept(FIELD, None, Reason::AlreadyPresent));
        } else {
            match self.directory(container, libtaskd) {
                Ok(directory) => {
                    context.record_action(Action::added(FIELD, directory));
                    record.launcher_hook = Some(directory.to_owned());
                    let mounts = FILES.map(|(file, _)| mount(directory, file));
                    let created = (&mut record.absent, &mut record.null);
                    append(context.operations, path, MOUNTS, &container.volume_mounts, &mounts, created);
                }
                Err(reason) => {
                    context.record_action(Action::skipped(FIELD, reason));
                    warn_refused(context, reason, libtaskd);
                    self.missing = Some(reason);
                    return;
                }
            }
        }
        self.is_mounted = true;
        self.longest_save = self.longest_save.max(self.save_limit(container));
    }

    /// The directory for the hook, or why the container doesn't get it.
    fn directory<'d>(&self, container: &Container<'_>, libtaskd: &'d str) -> Result<&'d str, Reason> {
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        let directory = site_directory(libtaskd).ok_or(Reason::SiteDirectoryUnknown)?;
        let mut paths = container.volume_mounts.items().iter().map(|mount| mount.mount_path.text());
        if paths.any(|path| hides(path, directory)) {
            return Err(Reason::SiteDirectoryMounted);
        }
        Ok(directory)
    }

    fn save_limit(&self, container: &Container<'_>) -> u16 {
        match container.last_env(SAVE_LIMIT) {
            None => self.policy.save_limit(self.dump).unwrap_or(DEFAULT_SAVE_LIMIT),
            Some((_, entry)) => match entry.value.text().parse() {
                Ok(seconds) if SAVE_LIMITS.contains(&seconds) => seconds,
                _ => *SAVE_LIMITS.end(),
            },
        }
    }

    /// Adds what the mounts refer to: the volume to the template at `path`, and the annotations.
    pub(crate) fn emit(
        &self,
        path: &str,
        own: Option<&Metadata<'_>>,
        spec: &PodSpec<'_>,
        changes: &mut MetadataChanges,
        record: &mut Record,
        operations: &mut Vec<Operation>,
    ) {
        if !self.is_mounted {
            return;
        }
        if !self.has_volume {
            record.volumes.push(VOLUME.to_owned());
            let created = (&mut record.absent, &mut record.null);
            append(operations, &format!("{path}/spec"), "volumes", &spec.volumes, &[volume()], created);
        }
        let missing = |key| own.is_none_or(|own| own.annotation(key).is_none());
        if missing(LAUNCHER_HOOK_MODULE) {
            changes.prepared.push((LAUNCHER_HOOK_MODULE, &PREPARED_MODULE));
        }
        if missing(LAUNCHER_HOOK_PTH) {
            changes.annotations.push((LAUNCHER_HOOK_PTH, self.pth()));
        }
    }

    /// The annotations of the hook that neither the present configuration nor an earlier injection wrote.
    pub(crate) fn foreign_annotations(&self, own: Option<&Metadata<'_>>) -> Vec<&'static str> {
        let Some(own) = own.filter(|_| self.is_mounted) else { return Vec::new() };
        let recorded =
            own.annotation(INJECTED).and_then(|record| Record::parse(record).ok()).unwrap_or_default();
        let expected = [(LAUNCHER_HOOK_MODULE, MODULE.to_owned()), (LAUNCHER_HOOK_PTH, self.pth())];
        let is_foreign = |(key, expected): (&'static str, String)| {
            let present = own.annotation(key)?;
            let is_ours = present == expected || recorded.annotations.get(key) == Some(&summary(present));
            (!is_ours).then_some(key)
        };
        expected.into_iter().filter_map(is_foreign).collect()
    }

    fn pth(&self) -> String {
        pth(self.longest_save + MARGIN, self.policy.launcher_patch)
    }

    /// What the user should know about the dump of these Pods.
    pub(crate) fn warnings(&self, options: &Options<'_>, rank_zero: bool) -> Vec<(Reason, String)> {
        let mut warnings = Vec::new();
        if self.is_mounted {
            if self.dump == DumpStrategy::WithOthers {
                let limit = self.longest_save + MARGIN;
                warnings.push((
                    Reason::LauncherHookDelaysOthers,
                    format!("the launcher waits up to {limit} s before it exits, also when `recover` exchanges its Pod"),
                ));
            }
            return warnings;
        }
        let lost = "a fault on the node of rank 0 loses the dump: there is no launcher hook";
        let advice = match self.missing {
            Some(Reason::LauncherHookOtherStrategies) => Some(format!(
                "{lost}, since other strategies act too; set {PROTECT_DUMP} to \"true\" (its wait may delay them) or \
                 \"false\""
            )),
            Some(Reason::LauncherHookOff) => Some(format!("{lost}, since the configuration switches it off")),
            Some(Reason::AnnotationsTooLarge) => {
                Some(format!("{lost}, since the annotations of the Pod leave no room for it; shorten them"))
            }
            _ => None,
        };
        warnings.extend(advice.filter(|_| rank_zero).map(|advice| (Reason::DumpUnprotected, advice)));
        if options.fast_dump {
            warnings.push((
                Reason::FastDumpUnprotected,
                format!("annotation {FAST_DUMP} has no effect on these Pods: they have no launcher hook"),
            ));
        }
        warnings
    }
}

fn mounts_volume(container: &Container<'_>) -> bool {
    container.volume_mounts.items().iter().any(|mount| mount.name.text() == VOLUME)
}

fn warn_refused(context: &mut ContainerContext<'_>, reason: Reason, libtaskd: &str) {
    let why = match reason {
        Reason::SiteDirectoryUnknown => format!(
            "the path {libtaskd:?} doesn't show where the taskd package is; set {LIBTASKD} to its path in the image"
        ),
        Reason::SiteDirectoryMounted => {
            format!("a volume of yours is mounted over {:?}", site_directory(libtaskd).unwrap_or_default())
        }
        Reason::LauncherHookVolumeTaken => format!("the Pod has another volume called {VOLUME}; rename it"),
        _ => return,
    };
    context.warn(reason, &format!("no launcher hook, so a fault on this node may lose the dump: {why}"));
}

/// Whether `path` is the one of a file of the hook in `directory`.
pub(crate) fn is_file_in(directory: &str, path: &str) -> bool {
    let file = path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    FILES.iter().any(|(name, _)| file == Some(*name))
}

/// Whether a mount at `path` has the directory, or one of our files in it.
fn hides(path: &str, directory: &str) -> bool {
    let path = path.trim_end_matches('/');
    let below = directory.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below || is_file_in(directory, path)
}

fn mount(directory: &str, file: &str) -> Value {
    json!({"name": VOLUME, "mountPath": format!("{directory}/{file}"), "subPath": file, "readOnly": true})
}

fn volume() -> Value {
    let item = |(file, key)| json!({"path": file, "fieldRef": {"fieldPath": field_path(key)}});
    json!({"name": VOLUME, "downwardAPI": {"items": FILES.map(item)}})
}

fn field_path(annotation: &str) -> String {
    format!("metadata.annotations['{annotation}']")
}

/// Whether a volume has the files of the hook.
pub(crate) fn is_ours(volume: &Volume<'_>) -> bool {
    let files = volume.downward_api.present().map_or(&[][..], |source| source.items.items());
    FILES.iter().all(|(name, key)| {
        files.iter().any(|file| {
            let field = file.field_ref.present();
            file.path.text() == *name && field.is_some_and(|field| field.is_field(&field_path(key)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_is_small() {
        assert!(MODULE.len() < 15 << 10, "{}", MODULE.len());
    }

    #[test]
    fn mounts_that_hide_the_directory() {
        for (path, expected) in [
            ("/usr/lib/python3/dist-packages", true),
            ("/usr/lib/", true),
            ("/usr/lib/python3/dist-packages/swansong_launcher_hook.py", true),
            ("/usr/lib/python3/dist-packages/taskd", false),
            ("/usr/lib/python", false),
            ("/data", false),
        ] {
            assert_eq!(hides(path, "/usr/lib/python3/dist-packages"), expected, "{path}");
        }
    }
}

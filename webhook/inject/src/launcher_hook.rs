//! Mounts the launcher hook into training containers.
//!
//! The Pod carries the hook in two annotations, which a downward API volume makes files. Each is mounted by itself into the
//! directory that TaskD is installed in, because Python reads `.pth` files only in site directories. Where the libraries are
//! discovered, that directory isn't known at admission: the init container then makes a user site directory with links to
//! the files, which `PYTHONUSERBASE` names.

use std::sync::LazyLock;

use serde_json::{Value, json};
use swansong_api::annotations::{
    FAST_DUMP, INJECTED, LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH, LIBTASKD, PROTECT_DUMP,
};
use swansong_api::env::SAVE_LIMIT;
use swansong_api::launcher_hook::{MODULE_FILE, PTH_FILE, VOLUME, site_directory};
use swansong_api::pod::{HOOK_FOLDER, LIBRARIES_FOLDER, LIBTASKD as LINK, PYTHON_USER_BASE};
use swansong_api::record::{ContainerRecord, Record, summary};

use crate::additions::{PodAdditions, hides};
use crate::context::{ContainerContext, PodContext};
use crate::metadata::{MAX_ANNOTATIONS, MetadataChanges, PreparedText};
use crate::options::Options;
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

/// The files of the volume, with the annotations that they are made of.
const FILES: [(&str, &str); 2] = [(MODULE_FILE, LAUNCHER_HOOK_MODULE), (PTH_FILE, LAUNCHER_HOOK_PTH)];

/// How much longer the hook waits than a save may take, so that the Manager can report the result.
const MARGIN: u16 = 60;

/// The Pods of a job with more templates get the hook one by one, so that the job doesn't become too large.
const MOST_TEMPLATES: usize = 32;

/// Room in the annotations for the hook and the record.
const ROOM: usize = 16 << 10;

/// Where a container has the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement<'d> {
    /// It has it already.
    Present,
    /// It is mounted into this directory.
    Directory(&'d str),
    /// The container gets none.
    Refused(Reason),
}

impl Placement<'_> {
    /// Whether the container needs `PYTHONUSERBASE` for it.
    pub(crate) fn needs_user_base(self) -> bool {
        self == Self::Directory(HOOK_FOLDER)
    }
}

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

    /// Decides where a container whose library of TaskD is at `libtaskd` gets the hook.
    pub(crate) fn place<'d>(&self, container: &Container<'_>, libtaskd: &'d str) -> Placement<'d> {
        if self.has_volume && mounts_volume(container) {
            return Placement::Present;
        }
        match self.directory(container, libtaskd) {
            Ok(directory) => Placement::Directory(directory),
            Err(reason) => Placement::Refused(reason),
        }
    }

    /// The mounts of the hook for a container, which the caller adds.
    pub(crate) fn mount(
        &mut self,
        context: &mut ContainerContext<'_>,
        container: &Container<'_>,
        placement: Placement<'_>,
        libtaskd: &str,
        record: &mut ContainerRecord,
    ) -> Vec<Value> {
        let mounts = match placement {
            Placement::Present => {
                context.record_action(Action::kept(FIELD, None, Reason::AlreadyPresent));
                Vec::new()
            }
            Placement::Directory(directory) => {
                context.record_action(Action::added(FIELD, directory));
                record.launcher_hook = Some(directory.to_owned());
                if self.policy.launcher_patch {
                    let action = Action::added("launcherPatch", "taskd.python.adaptor.patch");
                    context.record_action(Action { reason: Reason::LauncherPatched, ..action });
                }
                if directory == HOOK_FOLDER {
                    vec![json!({"name": VOLUME, "mountPath": HOOK_FOLDER, "readOnly": true})]
                } else {
                    FILES.map(|(file, _)| mount(directory, file)).into()
                }
            }
            Placement::Refused(reason) => {
                context.record_action(Action::skipped(FIELD, reason));
                warn_refused(context, reason, libtaskd);
                self.missing = Some(reason);
                return Vec::new();
            }
        };
        self.is_mounted = true;
        self.longest_save = self.longest_save.max(self.save_limit(container));
        mounts
    }

    /// The directory for the hook, or why the container doesn't get it.
    fn directory<'d>(&self, container: &Container<'_>, libtaskd: &'d str) -> Result<&'d str, Reason> {
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        let mut paths = container.volume_mounts.items().iter().map(|mount| mount.mount_path.text());
        if libtaskd == LINK {
            let base = container.last_env(PYTHON_USER_BASE);
            if base.is_some_and(|(_, entry)| entry.value.text() != LIBRARIES_FOLDER) {
                return Err(Reason::PythonUserBaseTaken);
            }
            if paths.any(|path| hides(path, HOOK_FOLDER)) {
                return Err(Reason::SiteDirectoryMounted);
            }
            return Ok(HOOK_FOLDER);
        }
        let directory = site_directory(libtaskd).ok_or(Reason::SiteDirectoryUnknown)?;
        if paths.any(|path| hides(path, directory) || is_file_in(directory, path.trim_end_matches('/'))) {
            return Err(Reason::SiteDirectoryMounted);
        }
        Ok(directory)
    }

    /// The longest time that a save of the container may take, in seconds.
    pub(crate) fn save_limit(&self, container: &Container<'_>) -> u16 {
        match container.last_env(SAVE_LIMIT) {
            None => self.policy.save_limit(self.dump).unwrap_or(DEFAULT_SAVE_LIMIT),
            Some((_, entry)) => match entry.value.text().parse() {
                Ok(seconds) if SAVE_LIMITS.contains(&seconds) => seconds,
                _ => *SAVE_LIMITS.end(),
            },
        }
    }

    /// Adds what the mounts refer to: the volume and the annotations.
    pub(crate) fn emit(
        &self,
        own: Option<&Metadata<'_>>,
        changes: &mut MetadataChanges,
        additions: &mut PodAdditions,
    ) {
        if !self.is_mounted {
            return;
        }
        if !self.has_volume {
            additions.volumes.push((VOLUME, volume()));
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
        let present = |key| own.annotation(key).map(|value| (key, value));
        let module = present(LAUNCHER_HOOK_MODULE).filter(|(_, value)| *value != MODULE);
        let pth = present(LAUNCHER_HOOK_PTH).filter(|(_, value)| *value != self.pth());
        if module.is_none() && pth.is_none() {
            return Vec::new();
        }
        let recorded =
            own.annotation(INJECTED).and_then(|record| Record::parse(record).ok()).unwrap_or_default();
        let is_ours = |key, value| recorded.annotations.get(key) == Some(&summary(value));
        let foreign = module.into_iter().chain(pth).filter(|(key, value)| !is_ours(*key, value));
        foreign.map(|(key, _)| key).collect()
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
    container.mounts(VOLUME)
}

fn warn_refused(context: &mut ContainerContext<'_>, reason: Reason, libtaskd: &str) {
    let why = match reason {
        Reason::SiteDirectoryUnknown => format!(
            "the path {libtaskd:?} doesn't show where the taskd package is; set {LIBTASKD} to its path in the image"
        ),
        Reason::SiteDirectoryMounted => {
            format!("a volume of yours is mounted over {:?}", site_directory(libtaskd).unwrap_or(HOOK_FOLDER))
        }
        Reason::PythonUserBaseTaken => format!(
            "env {PYTHON_USER_BASE} is yours; remove it, or set {LIBTASKD} to the path of libtaskd.so in the image"
        ),
        Reason::LauncherHookVolumeTaken => format!("the Pod has another volume called {VOLUME}; rename it"),
        _ => return,
    };
    context.warn(reason, &format!("no launcher hook, so a fault on this node may lose the dump: {why}"));
}

/// Whether `path` is one at which the hook is mounted for the recorded `directory`.
pub(crate) fn is_mounted_at(directory: &str, path: &str) -> bool {
    (directory == HOOK_FOLDER && path == HOOK_FOLDER) || is_file_in(directory, path)
}

/// Whether `path` is the one of a file of the hook in `directory`.
fn is_file_in(directory: &str, path: &str) -> bool {
    let file = path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    FILES.iter().any(|(name, _)| file == Some(*name))
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
            let directory = "/usr/lib/python3/dist-packages";
            assert_eq!(hides(path, directory) || is_file_in(directory, path), expected, "{path}");
        }
    }
}

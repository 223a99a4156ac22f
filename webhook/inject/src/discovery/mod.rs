//! Has an init container find the libraries in the image, where their paths aren't configured.
//!
//! It links them into a volume of the Pod, which `LD_PRELOAD` names. ld.so identifies a library by its inode, so TaskD gets
//! the same one when it loads its file by the real path.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use swansong_api::launcher_hook::{MODULE_FILE, PTH_FILE};
use swansong_api::pod::{HOOK_FOLDER, LIBMSPTI, LIBRARIES, LIBRARIES_FOLDER, LIBTASKD, PREFIX};
use swansong_api::preload::{LIBMSPTI_PATHS, LIBTASKD_IN_SITE, SITE_PATTERNS};

use crate::additions::{PodAdditions, hides};
use crate::options::Options;
use crate::policy::Policy;
use crate::reason::Reason;
use crate::source::Source;
use crate::view::{Container, PodSpec};

/// What the init container runs.
static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    include_str!("find-libraries.sh")
        .replace("SITE_PATTERNS", &SITE_PATTERNS.join(" "))
        .replace("LIBMSPTI_PATTERNS", &LIBMSPTI_PATHS.join(" "))
        .replace("LIBTASKD", LIBTASKD_IN_SITE)
        .replace("HOOK/PTH HOOK/MODULE", &format!("{HOOK_FOLDER}/{PTH_FILE} {HOOK_FOLDER}/{MODULE_FILE}"))
        .replace("OUT", LIBRARIES_FOLDER)
});

/// The text of the script, for tests and documentation.
pub fn script() -> &'static str {
    &SCRIPT
}

/// Resources that an init container needs too, so that the Pod's quality of service stays the same.
const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The libraries of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LibraryPaths<'p> {
    /// For `LD_PRELOAD`, libtaskd.so last.
    pub(crate) paths: Vec<&'p str>,
    /// Whether at least one of them is a link that the init container makes.
    pub(crate) are_discovered: bool,
}

impl<'p> LibraryPaths<'p> {
    /// From the annotation with a path, else as the annotation `swansong.dev/libraries` says, else as the rule for the
    /// image says, else the default.
    pub(crate) fn of(options: &Options<'p>, image: &str, policy: &'p Policy, may_discover: bool) -> Self {
        let rule = policy.image_rules.iter().find(|rule| rule.matches(image));
        let by_annotation = may_discover && options.discover == Some(true);
        let by_default = options.discover.is_none()
            && may_discover
            && rule.and_then(|rule| rule.discover).unwrap_or(policy.discover_libraries);
        let pick = |annotation: Option<&'p str>, ruled: Option<&'p String>, link, default: &'p String| {
            let discovered = |is: bool| is.then_some(link);
            let ruled = discovered(by_annotation).or(ruled.map(String::as_str));
            annotation.or(ruled).or(discovered(by_default)).unwrap_or(default)
        };
        let Policy { libraries, .. } = policy;
        let libmspti = pick(
            options.libmspti,
            rule.and_then(|rule| rule.libmspti.as_ref()),
            LIBMSPTI,
            &libraries.libmspti,
        );
        let libtaskd = pick(
            options.libtaskd,
            rule.and_then(|rule| rule.libtaskd.as_ref()),
            LIBTASKD,
            &libraries.libtaskd,
        );
        let are_discovered = libmspti == LIBMSPTI || libtaskd == LIBTASKD;
        let paths = if libmspti == libtaskd { vec![libmspti] } else { vec![libmspti, libtaskd] };
        Self { paths, are_discovered }
    }
}

/// The discovery of one template.
pub(crate) struct Discovery<'t> {
    /// Whether the template has the volume and the init container already.
    is_present: bool,
    /// Why no container gets the links, if so.
    refused: Option<Reason>,
    /// The image that is searched, and the container that has it.
    model: Option<(&'t str, String)>,
}

impl<'t> Discovery<'t> {
    pub(crate) fn new(spec: &'t PodSpec<'_>) -> Self {
        let volume = spec.volumes.items().iter().any(|volume| volume.name.text() == LIBRARIES);
        let finder = spec.init_containers.items().iter().find(|container| container.name() == LIBRARIES);
        let is_present = volume && finder.is_some();
        let mut containers = spec.containers.items().iter().chain(spec.init_containers.items());
        let has_name =
            |container: &Container<'_>| container.name() == LIBRARIES || container.mounts(LIBRARIES);
        let is_taken = !is_present && (volume || containers.any(has_name));
        Self {
            is_present,
            refused: is_taken.then_some(Reason::LibrariesNameTaken),
            model: finder.map(|finder| (finder.image.text(), String::new())),
        }
    }

    /// Why the container can't have the links, if so.
    pub(crate) fn refusal(&self, container: &Container<'_>) -> Option<Reason> {
        if self.refused.is_some() {
            return self.refused;
        }
        let other = self.model.as_ref().is_some_and(|(image, _)| *image != container.image.text());
        let has_mount = self.is_present && container.mounts(LIBRARIES);
        let mut mounts = container.volume_mounts.items().iter().map(|mount| mount.mount_path.text());
        if !has_mount && mounts.any(|path| hides(path, LIBRARIES_FOLDER)) {
            return Some(Reason::LibrariesFolderMounted);
        }
        other.then_some(Reason::LibrariesOfSeveralImages)
    }

    /// Has the links made for the container at `pointer`.
    pub(crate) fn request(&mut self, container: &'t Container<'_>, pointer: &str) {
        self.model.get_or_insert_with(|| (container.image.text(), pointer.to_owned()));
    }

    /// Adds the volume and the init container.
    pub(crate) fn emit(&self, source: &Source<'_>, additions: &mut PodAdditions) {
        let Some((_, pointer)) = self.model.as_ref().filter(|_| !self.is_present) else { return };
        additions.volumes.push((LIBRARIES, json!({"name": LIBRARIES, "emptyDir": {}})));
        let mut model = source.object(pointer);
        let mut finder = Map::new();
        finder.insert("name".to_owned(), json!(LIBRARIES));
        finder.insert("command".to_owned(), json!(["/bin/sh", "-c", script()]));
        for key in ["image", "imagePullPolicy", "securityContext"] {
            finder.extend(model.remove_entry(key).filter(|(_, value)| !value.is_null()));
        }
        let resources = resources(model.get("resources"));
        if !resources.is_empty() {
            finder.insert("resources".to_owned(), Value::Object(resources));
        }
        let mut mounts = own_mounts(&model);
        mounts.push(json!({"name": LIBRARIES, "mountPath": LIBRARIES_FOLDER}));
        finder.insert("volumeMounts".to_owned(), Value::Array(mounts));
        additions.finder = Some(Value::Object(finder));
    }
}

/// The user's mounts of a container, except those that depend on its variables.
pub(crate) fn own_mounts(container: &Map<String, Value>) -> Vec<Value> {
    let mounts = container.get("volumeMounts").and_then(Value::as_array).into_iter().flatten();
    let is_own = |mount: &&Value| {
        let name = mount["name"].as_str().unwrap_or_default();
        !name.starts_with(PREFIX) && mount.get("subPathExpr").is_none_or(Value::is_null)
    };
    mounts.filter(is_own).cloned().collect()
}

/// Requests and limits of what isn't a device.
fn resources(of_container: Option<&Value>) -> Map<String, Value> {
    let mut resources = Map::new();
    for kind in ["limits", "requests"] {
        let list = of_container.and_then(|resources| resources.get(kind)).and_then(Value::as_object);
        let kept = list.into_iter().flatten().filter(|(name, _)| RESOURCES.contains(&name.as_str()));
        let kept: Map<String, Value> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !kept.is_empty() {
            resources.insert(kind.to_owned(), Value::Object(kept));
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_no_placeholder_and_no_reference_that_the_kubelet_expands() {
        let script = script();
        for placeholder in ["OUT", "PATTERNS", "HOOK", "LIBTASKD"] {
            assert!(!script.contains(placeholder), "{placeholder}:\n{script}");
        }
        assert!(!script.contains("$$") && script.len() < 4 << 10, "{}", script.len());
    }
}

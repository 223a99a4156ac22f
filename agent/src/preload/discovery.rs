//! What the init container that finds the libraries of an image reported.

use serde::Serialize;
use swansong_api::documented::Documented as _;
use swansong_api::pod::LIBRARIES;

use crate::node::PodObject;

/// How the search for the libraries ended.
///
/// The documentation of a variant is its meaning, the `message` says what to do.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    strum::EnumMessage,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum DiscoveryReason {
    /// The image has the libraries, and they are linked.
    #[strum(message = "Nothing to do.")]
    LibrariesFound,
    /// The image lacks a library, so it isn't preloaded.
    #[strum(
        message = "Install the TaskD wheel and CANN in the image, or set `swansong.dev/libtaskd` and `swansong.dev/libmspti`."
    )]
    LibrariesNotFound,
    /// The package's libtaskd.so is a symbolic link, which TaskD refuses to load.
    #[strum(message = "Install the TaskD wheel again, so that its libtaskd.so is a regular file.")]
    LibraryIsLink,
    /// The init container didn't run, probably since the image has no `/bin/sh`, and the Pod can't start.
    #[strum(message = "Set `swansong.dev/libraries: configured` on the job, or a rule for the image.")]
    LibrariesNotSearched,
}

/// The result of the search for one Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Discovery {
    pub reason: DiscoveryReason,
    pub message: String,
}

impl Discovery {
    /// Reads the state of the init container; `None` without one, and while it runs.
    pub(crate) fn of(pod: &PodObject) -> Option<Self> {
        /// Reasons of the kubelet for a container that waits in the usual course.
        const USUAL: [&str; 2] = ["PodInitializing", "ContainerCreating"];
        let statuses = pod.status.as_ref()?.init_container_statuses.as_ref()?;
        let state = statuses.iter().find(|status| status.name == LIBRARIES)?.state.as_ref()?;
        let reason = |reason: &Option<String>| reason.clone().unwrap_or_default();
        if let Some(waiting) = &state.waiting {
            let why = reason(&waiting.reason);
            return (!USUAL.contains(&why.as_str())).then(|| not_searched(&why, waiting.message.as_deref()));
        }
        let ended = state.terminated.as_ref()?;
        let message = ended.message.as_deref().unwrap_or_default();
        let value = |key: &str| message.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let (Some(libtaskd), Some(libmspti)) = (value("libtaskd"), value("libmspti")) else {
            return Some(not_searched(&reason(&ended.reason), ended.message.as_deref()));
        };
        let names = [("libtaskd.so", libtaskd), ("libmspti.so", libmspti)];
        let missing: Vec<&str> =
            names.iter().filter(|(_, path)| path.is_empty()).map(|(name, _)| *name).collect();
        let warning = value("warning");
        let (reason, message) = if !missing.is_empty() {
            let reason = DiscoveryReason::LibrariesNotFound;
            let why = warning.map(|warning| format!(" ({warning})")).unwrap_or_default();
            let missing = missing.join(" and no ");
            (reason, format!("the image has no {missing}{why}. {}", reason.remedy()))
        } else if let Some(warning) = warning {
            let reason = DiscoveryReason::LibraryIsLink;
            (reason, format!("{warning}. {}", reason.remedy()))
        } else {
            (DiscoveryReason::LibrariesFound, format!("{libtaskd} and {libmspti} are linked"))
        };
        Some(Self { reason, message })
    }
}

fn not_searched(why: &str, message: Option<&str>) -> Discovery {
    let reason = DiscoveryReason::LibrariesNotSearched;
    let detail = message.map(|message| format!(": {message}")).unwrap_or_default();
    let message = format!("{} {} ({why}{detail})", reason.meaning(), reason.remedy());
    Discovery { reason, message }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use strum::VariantArray as _;

    use super::*;

    fn discovery(state: &Value) -> Option<Discovery> {
        let pod = json!({"status": {"initContainerStatuses": [{"name": "x"}, {"name": LIBRARIES, "state": state}]}});
        Discovery::of(&serde_json::from_value(pod).expect("a Pod"))
    }

    #[test]
    fn result_is_read_from_the_state_of_the_init_container() {
        let ended =
            |message: &str| json!({"terminated": {"reason": "Completed", "exitCode": 0, "message": message}});
        let both = "libtaskd=/a/libtaskd.so\nlibmspti=/b/libmspti.so\n";
        for (state, expected, text) in [
            (ended(both), Some(DiscoveryReason::LibrariesFound), "/a/libtaskd.so"),
            (ended("libtaskd=\nlibmspti=/b\n"), Some(DiscoveryReason::LibrariesNotFound), "no libtaskd.so. "),
            (
                ended("libtaskd=\nlibmspti=\n"),
                Some(DiscoveryReason::LibrariesNotFound),
                "no libtaskd.so and no libmspti.so",
            ),
            (
                ended(&format!("warning=/a/libtaskd.so is a symbolic link\n{both}")),
                Some(DiscoveryReason::LibraryIsLink),
                "/a/libtaskd.so is a symbolic link. ",
            ),
            (
                ended("warning=/opt/libtaskd.so can't be linked to /a\nlibtaskd=\nlibmspti=/b\n"),
                Some(DiscoveryReason::LibrariesNotFound),
                "no libtaskd.so (/opt/libtaskd.so can't be linked to /a). ",
            ),
            (
                json!({"terminated": {"reason": "StartError", "message": "exec: \"/bin/sh\": no such file"}}),
                Some(DiscoveryReason::LibrariesNotSearched),
                "StartError: exec: \"/bin/sh\"",
            ),
            (
                json!({"waiting": {"reason": "CrashLoopBackOff"}}),
                Some(DiscoveryReason::LibrariesNotSearched),
                "(CrashLoopBackOff)",
            ),
            (json!({"waiting": {"reason": "PodInitializing"}}), None, ""),
            (json!({"running": {}}), None, ""),
        ] {
            let found = discovery(&state);
            assert_eq!(found.as_ref().map(|found| found.reason), expected, "{state}");
            assert!(found.is_none_or(|found| found.message.contains(text)), "{state}");
        }
        assert_eq!(Discovery::of(&PodObject::default()), None);
    }

    #[test]
    fn every_reason_has_a_meaning_and_a_remedy() {
        for reason in DiscoveryReason::VARIANTS {
            assert!(reason.meaning().ends_with('.') && reason.remedy().ends_with('.'), "{reason:?}");
        }
    }
}

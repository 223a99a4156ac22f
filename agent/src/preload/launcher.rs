//! Whether the launcher hook is active in a container, and whether its processes know where MindIO's controller is. Pure.

use std::collections::BTreeSet;
use std::time::Duration;
use swansong_api::documented::Documented as _;

use serde::Serialize;
use swansong_api::annotations::{INJECT, is_opted_out};
use swansong_api::env::{
    HIGH_AVAILABILITY, LOCAL_PROXY_ENABLE, MS_ENABLE_TFT, MS_TFT_IP, MS_TFT_PORT, POD_IP, TTP_ADDR, TTP_PORT,
};
use swansong_api::launcher_hook::{MODULE_FILE, PTH_FILE, VOLUME};
use swansong_api::pod::HOOK_FOLDER;
use swansong_api::strategy::Strategies;

use super::verdict::{ObservedProcess, Role};
use crate::node::{Container, PodObject};

/// Where a PyTorch process finds MindIO's controller; one of them is enough.
const TTP_ADDRESSES: [&str; 3] = [TTP_ADDR, "PROCESSOR_ADDR", "CONTROLLER_ADDR"];
/// Where a MindSpore process finds it.
const MINDSPORE: [&str; 2] = [MS_TFT_IP, MS_TFT_PORT];
/// All of them, which a start script may set.
pub(super) const VARIABLES: [&str; 7] =
    [POD_IP, TTP_PORT, TTP_ADDR, TTP_ADDRESSES[1], TTP_ADDRESSES[2], MS_TFT_IP, MS_TFT_PORT];

/// What a training container's launcher needs for a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launcher {
    /// The folder into which the launcher hook is mounted; `None` if the Pod has none.
    pub hook: Option<String>,
    /// Variables that the Pod doesn't set, so that a start script has to.
    pub missing: Vec<&'static str>,
}

/// A Python interpreter of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Python {
    /// Whether it has the hook's file open, as the launcher has while the hook is active; `None` if that can't be read.
    pub has_hook: Option<bool>,
    /// Whether it was started with `-S`.
    pub is_site_disabled: bool,
    /// The virtual or conda environment that it runs in.
    pub prefix: Option<String>,
    /// Which of `VARIABLES` it has; `None` if its environment can't be read.
    pub variables: Option<BTreeSet<&'static str>>,
}

/// The verdict on a launcher hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookVerdict {
    /// Whether it is active; `None` if that couldn't be found out.
    pub is_active: Option<bool>,
    pub reason: HookReason,
    pub message: String,
}

/// Why a launcher hook is active, isn't, or is unknown.
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
pub enum HookReason {
    /// The launcher has the hook loaded, and TaskD's agent is wrapped.
    #[strum(message = "Nothing to do.")]
    HookActive,
    /// The launcher's Python was started with -S, so it reads no .pth files.
    #[strum(message = "Remove -S from the start script.")]
    SiteDisabled,
    /// The launcher's Python is another one than the hook was mounted for: another version, a virtual environment or conda.
    #[strum(
        message = "Set the annotation swansong.dev/libtaskd to the path of libtaskd.so in that environment, from which the hook's folder follows."
    )]
    OtherInterpreter,
    /// No Python of the container has loaded the hook together with TaskD's agent.
    #[strum(
        message = "Check that the image's torchrun imports taskd.python.adaptor.patch, and the lines `swansong launcher hook` in the training log."
    )]
    NotLoaded,
    /// The agent has no permission to inspect the processes.
    #[strum(message = "Install the agent by the overlay agent-preload-check or agent-faults.")]
    NoPermission,
    /// No Python of the container is older than the grace period.
    #[strum(message = "Nothing to do.")]
    NoPython,
}

impl HookReason {
    const fn is_active(self) -> Option<bool> {
        match self {
            Self::HookActive => Some(true),
            Self::SiteDisabled | Self::OtherInterpreter | Self::NotLoaded => Some(false),
            Self::NoPermission | Self::NoPython => None,
        }
    }
}

impl Launcher {
    /// What the launcher of `container` needs.
    pub(super) fn of(pod: &PodObject, container: &Container) -> Self {
        let mounts = container.volume_mounts.iter().flatten();
        let mut mounts = mounts.filter(|mount| mount.name == VOLUME);
        let path = mounts.next().map(|mount| mount.mount_path.as_str());
        let folder =
            path.map(|path| path.strip_suffix(MODULE_FILE).or(path.strip_suffix(PTH_FILE)).unwrap_or(path));
        let hook =
            folder.filter(|_| pod.has_launcher_hook()).map(|folder| folder.trim_end_matches('/').to_owned());
        Self { hook, missing: missing(pod, container) }
    }

    /// Whether nothing has to be inspected.
    pub(super) const fn is_empty(&self) -> bool {
        self.hook.is_none() && self.missing.is_empty()
    }

    /// Judges the hook by the Python processes that are at least `grace` old.
    pub(super) fn judge_hook(&self, processes: &[ObservedProcess], grace: Duration) -> Option<HookVerdict> {
        let folder = self.hook.as_deref()?;
        let reason = reason(folder, &settled(processes, grace));
        let message = match reason.remedy() {
            "Nothing to do." => reason.meaning().to_owned(),
            remedy => format!("{} {} The hook is in {folder}", reason.meaning(), remedy),
        };
        Some(HookVerdict { is_active: reason.is_active(), reason, message })
    }

    /// The variables that neither the Pod nor the start script sets; none while no Python process is old enough.
    pub(super) fn missing_variables(
        &self,
        processes: &[ObservedProcess],
        grace: Duration,
    ) -> Vec<&'static str> {
        let pythons = settled(processes, grace);
        let is_set = |name: &str| {
            pythons.iter().any(|(_, python)| {
                python.variables.as_ref().is_some_and(|variables| {
                    variables.contains(name)
                        || (name == TTP_ADDRESSES[0]
                            && TTP_ADDRESSES.iter().any(|other| variables.contains(other)))
                })
            })
        };
        if pythons.is_empty() {
            return Vec::new();
        }
        self.missing.iter().copied().filter(|name| !is_set(name)).collect()
    }
}

fn settled(processes: &[ObservedProcess], grace: Duration) -> Vec<(&str, &Python)> {
    let settled = processes.iter().filter(|process| process.role == Role::Python && process.age >= grace);
    settled.filter_map(|process| Some((process.name.as_str(), process.python.as_ref()?))).collect()
}

fn reason(folder: &str, pythons: &[(&str, &Python)]) -> HookReason {
    if pythons.iter().any(|(_, python)| python.has_hook == Some(true)) {
        return HookReason::HookActive;
    }
    if pythons.is_empty() {
        return HookReason::NoPython;
    }
    if pythons.iter().any(|(_, python)| python.has_hook.is_none()) {
        return HookReason::NoPermission;
    }
    if pythons.iter().all(|(_, python)| python.is_site_disabled) {
        return HookReason::SiteDisabled;
    }
    if pythons.iter().all(|(name, python)| is_other_interpreter(folder, name, python)) {
        return HookReason::OtherInterpreter;
    }
    HookReason::NotLoaded
}

/// Whether the program `name` reads other site directories than `folder`, such as `/usr/lib/python3.11/dist-packages`.
/// Each interpreter reads a user site directory.
fn is_other_interpreter(folder: &str, name: &str, python: &Python) -> bool {
    if folder == HOOK_FOLDER {
        return false;
    }
    let version = folder.split('/').find(|component| component.starts_with("python3."));
    let is_other_version = version.is_some_and(|version| name.starts_with("python3.") && name != version);
    is_other_version || python.prefix.as_ref().is_some_and(|prefix| !folder.starts_with(prefix.as_str()))
}

/// The variables that a Pod that asks for a dump doesn't set.
fn missing(pod: &PodObject, container: &Container) -> Vec<&'static str> {
    let annotations = pod.metadata.annotations.as_ref();
    let inject = annotations.and_then(|annotations| annotations.get(INJECT));
    let is_pytorch = container
        .variable(HIGH_AVAILABILITY)
        .is_some_and(|strategies| Strategies::parse(strategies).tokens().contains(&"dump"));
    let is_mindspore = container.variable(MS_ENABLE_TFT).is_some_and(|value| value.contains("TTP:1"));
    if !(is_pytorch || is_mindspore)
        || inject.is_some_and(|value| is_opted_out(value))
        || container.variable(LOCAL_PROXY_ENABLE) == Some("on")
    {
        return Vec::new();
    }
    let has = |name: &&str| container.env.iter().flatten().any(|variable| variable.name == **name);
    let mut missing = vec![POD_IP, TTP_PORT];
    if is_mindspore {
        missing.extend(MINDSPORE);
    } else if !TTP_ADDRESSES.iter().any(has) {
        missing.push(TTP_ADDR);
    }
    missing.retain(|name| !has(name));
    missing
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use strum::VariantArray as _;

    use super::*;

    const GRACE: Duration = Duration::from_secs(30);
    const FOLDER: &str = "/usr/local/lib/python3.11/dist-packages";

    fn process(name: &str, python: Python) -> ObservedProcess {
        ObservedProcess {
            pid: 7,
            started: 1,
            age: GRACE,
            name: name.to_owned(),
            role: Role::Python,
            libraries: None,
            python: Some(python),
            training: None,
        }
    }

    fn launcher() -> Launcher {
        Launcher { hook: Some(FOLDER.to_owned()), missing: vec!["POD_IP", "TTP_ADDR"] }
    }

    #[test]
    fn hook_is_judged_by_all_pythons_of_the_container() {
        let without = || Python { has_hook: Some(false), ..Python::default() };
        let with = || Python { has_hook: Some(true), ..Python::default() };
        let hidden = || Python { has_hook: None, ..Python::default() };
        let no_site = || Python { is_site_disabled: true, ..without() };
        let conda = || Python { prefix: Some("/opt/conda".to_owned()), ..without() };
        let young = ObservedProcess { age: Duration::ZERO, ..process("python3.11", with()) };
        for (processes, expected) in [
            (vec![], HookReason::NoPython),
            (vec![young], HookReason::NoPython),
            (vec![process("python3.11", without()), process("python3.11", with())], HookReason::HookActive),
            (vec![process("python3.11", hidden()), process("python3.11", with())], HookReason::HookActive),
            (
                vec![process("python3.11", hidden()), process("python3.11", without())],
                HookReason::NoPermission,
            ),
            (vec![process("python3.11", without())], HookReason::NotLoaded),
            (vec![process("python3.11", no_site())], HookReason::SiteDisabled),
            (vec![process("python3.11", no_site()), process("python3.11", without())], HookReason::NotLoaded),
            (vec![process("python3.10", without())], HookReason::OtherInterpreter),
            (vec![process("python3.11", conda())], HookReason::OtherInterpreter),
        ] {
            let verdict = launcher().judge_hook(&processes, GRACE).expect("a hook is expected");
            assert_eq!(verdict.reason, expected, "{processes:?}");
            assert!(!verdict.message.is_empty());
        }
        assert_eq!(Launcher::default().judge_hook(&[], GRACE), None);
    }

    #[test]
    fn variables_that_the_start_script_sets_are_not_missing() {
        let python = |variables: Option<&[&'static str]>| {
            let variables = variables.map(|names| names.iter().copied().collect());
            vec![process("python3", Python { variables, ..Python::default() })]
        };
        let missing = |processes: &[ObservedProcess]| launcher().missing_variables(processes, GRACE);
        assert_eq!(missing(&[]), [""; 0]);
        assert_eq!(missing(&python(None)), ["POD_IP", "TTP_ADDR"]);
        assert_eq!(missing(&python(Some(&["POD_IP"]))), ["TTP_ADDR"]);
        assert_eq!(missing(&python(Some(&["POD_IP", "PROCESSOR_ADDR"]))), [""; 0]);
    }

    #[test]
    fn pod_that_asks_for_a_dump_needs_the_controllers_address() {
        let missing = |env: &[(&str, &str)], annotations: Value| {
            let env: Vec<Value> =
                env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "ascend", "env": env}]}});
            let pod: PodObject = serde_json::from_value(pod).expect("a Pod");
            let container = pod.spec.as_ref().and_then(|spec| spec.containers.as_ref()?.first().cloned());
            super::missing(&pod, &container.expect("one"))
        };
        let torch = (HIGH_AVAILABILITY, "dump,exit");
        let mindspore = (MS_ENABLE_TFT, "{TTP:1,UCE:1}");
        assert_eq!(missing(&[], json!({})), [""; 0]);
        assert_eq!(missing(&[(HIGH_AVAILABILITY, "recover")], json!({})), [""; 0]);
        assert_eq!(missing(&[torch], json!({})), ["POD_IP", "TTP_PORT", "TTP_ADDR"]);
        assert_eq!(missing(&[torch], json!({INJECT: "false"})), [""; 0]);
        assert_eq!(missing(&[torch, (LOCAL_PROXY_ENABLE, "on")], json!({})), [""; 0]);
        assert_eq!(missing(&[torch, (POD_IP, ""), (TTP_PORT, "1")], json!({})), ["TTP_ADDR"]);
        assert_eq!(
            missing(&[torch, (POD_IP, ""), (TTP_PORT, "1"), ("PROCESSOR_ADDR", "x")], json!({})),
            [""; 0]
        );
        assert_eq!(
            missing(&[mindspore, (POD_IP, ""), ("MS_TFT_IP", "x")], json!({})),
            ["TTP_PORT", "MS_TFT_PORT"]
        );
    }

    #[test]
    fn every_reason_has_a_meaning_and_a_remedy() {
        for reason in HookReason::VARIANTS {
            for sentence in [reason.meaning(), reason.remedy()] {
                assert!(sentence.ends_with('.') && !sentence.contains(". "), "{reason:?}: {sentence}");
            }
        }
    }
}

//! Validates a file and turns it into a [`Policy`]. All problems are reported, not only the first.

use serde_saphyr::{Location, Spanned};

use std::collections::BTreeMap;
use std::str::FromStr as _;

use super::file::{At, Dump, Env, File, Image, Libraries, Manager, Mount, Port, Ports, Preload};
use super::{Config, Problem, Problems, Strictness};
use swansong_api::strategy;
use swansong_inject::policy::{
    ImageRule, NamedPort, Policy, SAVE_LIMITS, TORCHRUN_DEFAULTS, ZeroTouch, preload_path_fault,
};
use swansong_trainer::{Effect, TrainerReason};

/// Variables that ascend-operator writes; `*` ends a family.
const OF_ASCEND_OPERATOR: [&str; 10] = [
    "PROCESS_RECOVER",
    "ELASTIC_*",
    "HIGH_AVAILABILITY",
    "MS_*",
    "ENABLE_RESTART_FAULT_PROCESS",
    "MASTER_*",
    "RANK",
    "WORLD_SIZE",
    "MINDX_*",
    "HCCL_*",
];

/// Variables that Swansong writes; other settings determine their values.
const OF_SWANSONG: [&str; 7] = [
    "POD_IP",
    "TTP_PORT",
    "TTP_ADDR",
    "TTP_NORMAL_ACTION_TIME_LIMIT",
    "TASKD_PROCESS_ENABLE",
    "LD_PRELOAD",
    "SWANSONG_ORIGINAL_LD_PRELOAD",
];

/// The longest name of a container port (IANA_SVC_NAME, RFC 6335).
const LONGEST_PORT_NAME: usize = 15;

pub(super) fn check(file: File) -> Result<Config, Problems> {
    let mut checker =
        Checker { problems: Vec::new(), policy: Policy::default(), explicit: Explicit::default() };
    checker.libraries(file.libraries.unwrap_or_default());
    checker.preload(&file.preload.unwrap_or_default());
    checker.ports(file.ports.unwrap_or_default());
    checker.env(file.env.unwrap_or_default());
    checker.strategies(file.strategies);
    checker.policy.node_readiness = file.node_readiness.unwrap_or_default();
    checker.dump(file.dump.unwrap_or_default());
    checker.manager(file.manager.unwrap_or_default());
    checker.policy.reset_config = file.reset_config.unwrap_or_default().mount.and_then(Mount::policy);
    checker.explicit.torchrun_defaults = file.torchrun_defaults;
    checker.zero_touch(file.zero_touch.unwrap_or_default(), file.zero_touch_namespaces);
    let strictness = file.strictness.unwrap_or_default();
    let denied_trainers = checker.denied_trainers(file.trainer_strictness);
    Problems::none_or(checker.problems, Config { policy: checker.policy, strictness, denied_trainers })
}

/// Settings whose defaults depend on `zeroTouch`, as far as the file has them.
#[derive(Debug, Default, Clone, Copy)]
struct Explicit {
    discover: Option<bool>,
    launcher_patch: Option<bool>,
    torchrun_defaults: Option<bool>,
    manager_sidecar: Option<bool>,
}

impl Explicit {
    /// The settings with `zero_touch` for those that the file doesn't have.
    fn apply(self, mut policy: Policy, zero_touch: bool) -> Policy {
        policy.discover_libraries = self.discover.unwrap_or(zero_touch);
        policy.dump.launcher_patch = self.launcher_patch.unwrap_or(zero_touch);
        policy.manager.sidecar = self.manager_sidecar.unwrap_or(zero_touch);
        if self.torchrun_defaults.unwrap_or(zero_touch) {
            for (name, value) in TORCHRUN_DEFAULTS {
                // A value given under `env` is the more deliberate one.
                if policy.extra_env.iter().all(|(present, _)| present != name) {
                    policy.extra_env.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        policy
    }
}

struct Checker {
    problems: Vec<Problem>,
    policy: Policy,
    explicit: Explicit,
}

impl Checker {
    fn problem(&mut self, at: &Location, key: impl Into<String>, message: impl Into<String>) {
        let position = (*at != Location::UNKNOWN).then(|| (at.line(), at.column()));
        self.problems.push(Problem { position, key: key.into(), message: message.into() });
    }

    /// Only what prevents or restricts a dump can be a reason to deny a job: what isn't known can't.
    fn denied_trainers(&mut self, strictness: At<BTreeMap<String, Strictness>>) -> Vec<TrainerReason> {
        let mut denied = Vec::new();
        let Some(all) = strictness else { return denied };
        for (name, strictness) in &all.value {
            let reason = TrainerReason::from_str(name).ok();
            let is_certain =
                |reason: &TrainerReason| !matches!(reason.effect(), Effect::Unsure | Effect::Note);
            match reason.filter(is_certain) {
                Some(reason) if *strictness == Strictness::Deny => denied.push(reason),
                Some(_) => {}
                None => self.problem(
                    &all.referenced,
                    format!("trainerStrictness.{name}"),
                    "this reason isn't known, or doesn't say that a dump is impossible; docs/trainer.md lists the reasons",
                ),
            }
        }
        denied
    }

    fn libraries(&mut self, libraries: Libraries) {
        self.explicit.discover = libraries.discover;
        if let Some(path) = self.library("libraries.libmspti", libraries.libmspti) {
            self.policy.libraries.libmspti = path;
        }
        if let Some(path) = self.library("libraries.libtaskd", libraries.libtaskd) {
            self.policy.libraries.libtaskd = path;
        }
        for (index, image) in libraries.images.unwrap_or_default().into_iter().enumerate() {
            self.image(&format!("libraries.images[{index}]"), image);
        }
    }

    fn image(&mut self, key: &str, image: Spanned<Image>) {
        let Image { pattern, discover, libmspti, libtaskd } = image.value;
        if libmspti.is_none() && libtaskd.is_none() && discover.is_none() {
            self.problem(&image.referenced, key, "sets nothing; give libmspti, libtaskd or discover");
        }
        let libmspti = self.library(&format!("{key}.libmspti"), libmspti);
        let libtaskd = self.library(&format!("{key}.libtaskd"), libtaskd);
        match pattern {
            None => self.problem(
                &image.referenced,
                format!("{key}.match"),
                "is missing; write a pattern for whole image references, such as \"*mindspore*\"",
            ),
            Some(pattern) if pattern.value.is_empty() => self.problem(
                &pattern.referenced,
                format!("{key}.match"),
                "is empty and would match no image; write \"*\" for all of them",
            ),
            Some(pattern) => {
                let pattern = pattern.value;
                self.policy.image_rules.push(ImageRule { pattern, libmspti, libtaskd, discover });
            }
        }
    }

    fn library(&mut self, key: &str, path: At<String>) -> Option<String> {
        let path = path?;
        if let Some(fault) = preload_path_fault(&path.value) {
            let problem = format!(
                "{:?} can't be preloaded: {fault}; give the path inside the training image",
                path.value
            );
            self.problem(&path.referenced, key, problem);
        }
        Some(path.value)
    }

    fn preload(&mut self, preload: &Preload) {
        if let Some(patterns) = &preload.keep_first {
            self.policy.preload_keep_first.clone_from(patterns);
        }
        if let Some(order) = preload.order {
            self.policy.preload_order = order;
        }
        if let Some(value_from) = preload.value_from {
            self.policy.preload_value_from = value_from;
        }
    }

    fn ports(&mut self, ports: Ports) {
        let (ttp, taskd) = (ports.ttp.unwrap_or_default(), ports.taskd.unwrap_or_default());
        // Where a clash is shown: at what was written last.
        let place = |port: &Port| {
            let name = port.name.as_ref().map(|name| name.referenced);
            name.or(port.port.as_ref().map(|port| port.referenced))
        };
        let at = place(&taskd).or(place(&ttp)).unwrap_or(Location::UNKNOWN);
        self.policy.ttp_port = self.port("ports.ttp", ttp, self.policy.ttp_port.clone());
        self.policy.taskd_port = self.port("ports.taskd", taskd, self.policy.taskd_port.clone());
        let Policy { ttp_port, taskd_port, .. } = &self.policy;
        let (name, number) = (ttp_port.name.clone(), ttp_port.port);
        let (same_name, same_number) = (taskd_port.name == name, taskd_port.port == number);
        if same_name {
            self.problem(&at, "ports", format!("ttp and taskd have one name, {name:?}; give each its own"));
        }
        if same_number {
            self.problem(&at, "ports", format!("ttp and taskd have one port, {number}; give each its own"));
        }
    }

    fn port(&mut self, key: &str, given: Port, default: NamedPort) -> NamedPort {
        let mut port = default;
        if let Some(name) = given.name {
            if let Some(fault) = port_name_fault(&name.value) {
                let problem = format!("{:?} {fault}; Kubernetes would refuse the pods", name.value);
                self.problem(&name.referenced, format!("{key}.name"), problem);
            }
            port.name = name.value;
        }
        if let Some(number) = given.port {
            match u16::try_from(number.value) {
                Ok(number) if number > 0 => port.port = number,
                _ => self.problem(
                    &number.referenced,
                    format!("{key}.port"),
                    format!("{} isn't a port; give a number from 1 to 65535", number.value),
                ),
            }
        }
        port
    }

    fn env(&mut self, env: Env) {
        for (name, value) in env.0 {
            let key = format!("env.{name}");
            if !is_env_name(&name) {
                self.problem(
                    &value.referenced,
                    key,
                    "isn't the name of an environment variable; use letters, digits, `_`, `-` and `.`, no digit first",
                );
            } else if owned_by_operator(&name) {
                self.problem(
                    &value.referenced,
                    key,
                    "belongs to ascend-operator, which writes it itself; remove it here",
                );
            } else if OF_SWANSONG.contains(&name.as_str()) {
                self.problem(
                    &value.referenced,
                    key,
                    "is written by Swansong itself; use libraries, preload, ports or dump to shape it",
                );
            } else {
                self.policy.extra_env.push((name, value.value));
            }
        }
    }

    fn dump(&mut self, dump: Dump) {
        if let Some(limit) = dump.save_limit_seconds {
            self.policy.dump.save_limit = self.save_limit("dump.saveLimitSeconds", &limit);
        }
        if let Some(limit) = dump.save_limit_seconds_with_other_strategies {
            self.policy.dump.save_limit_with_other_strategies =
                self.save_limit("dump.saveLimitSecondsWithOtherStrategies", &limit);
        }
        let policy = &mut self.policy.dump;
        policy.launcher_hook = dump.launcher_hook.unwrap_or(policy.launcher_hook);
        self.explicit.launcher_patch = dump.launcher_patch;
    }

    fn manager(&mut self, manager: Manager) {
        self.explicit.manager_sidecar = manager.sidecar;
        for (key, given) in [("manager.cpu", &manager.cpu), ("manager.memory", &manager.memory)] {
            if let Some(quantity) = given
                && !is_quantity(&quantity.value)
            {
                let problem =
                    format!("{:?} isn't a quantity of Kubernetes, such as 1, 500m or 4Gi", quantity.value);
                self.problem(&quantity.referenced, key, problem);
            }
        }
        let policy = &mut self.policy.manager;
        policy.cpu = manager.cpu.map_or_else(|| std::mem::take(&mut policy.cpu), |cpu| cpu.value);
        policy.memory =
            manager.memory.map_or_else(|| std::mem::take(&mut policy.memory), |memory| memory.value);
    }

    /// Applies the defaults, which differ in some namespaces or everywhere.
    fn zero_touch(&mut self, everywhere: bool, namespaces: At<Vec<Spanned<String>>>) {
        let base = std::mem::take(&mut self.policy);
        if let Some(namespaces) = namespaces.filter(|namespaces| !namespaces.value.is_empty()) {
            if everywhere {
                let problem =
                    "has no effect beside zeroTouch: true, which applies everywhere; remove one of them";
                self.problem(&namespaces.referenced, "zeroTouchNamespaces", problem);
            }
            let policy = Box::new(self.explicit.apply(base.clone(), true));
            let namespaces = namespaces.value.into_iter().map(|namespace| namespace.value).collect();
            self.policy.zero_touch = Some(ZeroTouch { namespaces, policy });
        }
        let zero_touch = self.policy.zero_touch.take();
        self.policy = Policy { zero_touch, ..self.explicit.apply(base, everywhere) };
    }

    /// A limit; 0 is none.
    fn save_limit(&mut self, key: &str, seconds: &Spanned<i64>) -> Option<u16> {
        let limit = u16::try_from(seconds.value).ok().filter(|seconds| SAVE_LIMITS.contains(seconds));
        if limit.is_none() && seconds.value != 0 {
            let problem = format!(
                "{} isn't a limit of MindIO; give a number from {} to {}, or 0 for MindIO's default",
                seconds.value,
                SAVE_LIMITS.start(),
                SAVE_LIMITS.end()
            );
            self.problem(&seconds.referenced, key, problem);
        }
        limit
    }

    fn strategies(&mut self, strategies: At<Vec<Spanned<String>>>) {
        let Some(strategies) = strategies else { return };
        if strategies.value.is_empty() {
            self.problem(
                &strategies.referenced,
                "strategies",
                "is empty, so that nothing would ever be injected; name at least one, or remove it for [dump]",
            );
        }
        let mut triggers = Vec::with_capacity(strategies.value.len());
        for (index, token) in strategies.value.into_iter().enumerate() {
            if !strategy::KNOWN.contains(&token.value.as_str()) {
                let problem = format!(
                    "{:?} isn't a strategy of MindCluster; choose among {}",
                    token.value,
                    strategy::KNOWN.join(", ")
                );
                self.problem(&token.referenced, format!("strategies[{index}]"), problem);
            }
            triggers.push(token.value);
        }
        self.policy.triggers = triggers;
    }
}

/// Whether the API server takes it as a quantity of a resource, in a form without an exponent.
fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    is_digits(whole)
        && is_digits(fraction)
        && matches!(unit, "" | "m" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti")
}

/// What Kubernetes says against a port's name, or `None`.
fn port_name_fault(name: &str) -> Option<String> {
    if name.len() > LONGEST_PORT_NAME {
        return Some(format!("has {} characters, {LONGEST_PORT_NAME} are allowed", name.len()));
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(allowed) || !name.contains(|c: char| c.is_ascii_lowercase()) {
        return Some("must be lower-case letters, digits and hyphens, at least one letter".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        return Some("may have hyphens only between letters or digits, one at a time".to_owned());
    }
    None
}

/// Whether every API server in support takes it as a variable's name.
fn is_env_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    // `.` and `..` are taken for paths where variables become files.
    !name.is_empty()
        && name.chars().all(allowed)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name != "."
        && !name.starts_with("..")
}

fn owned_by_operator(name: &str) -> bool {
    OF_ASCEND_OPERATOR.iter().any(|owned| match owned.strip_suffix('*') {
        Some(family) => name.starts_with(family),
        None => name == *owned,
    })
}

//! Injects the variables by which training processes find MindIO's controller, and its time limits.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use swansong_api::env::{
    MASTER_ADDR, MS_ENABLE_TFT, MS_ROLE, MS_SCHED_HOST, MS_TFT_IP, MS_TFT_PORT, ORDER_LIMIT, POD_IP, RANK,
    SAVE_LIMIT, TTP_ADDR, TTP_PORT,
};

use super::{EnvInjection, NewValue, literal, references, shown};
use crate::context::Rank;
use crate::kind::WorkloadKind;
use crate::policy::{DEFAULT_ORDER_LIMIT, DEFAULT_SAVE_LIMIT, DumpStrategy, ORDER_LIMITS, SAVE_LIMITS};
use crate::reason::Reason;
use crate::report::Action;
use crate::view::EnvVar;

impl EnvInjection<'_, '_, '_, '_> {
    /// Adds references to what ascend-operator wrote. It does so on Pods, behind the variables of the job's template,
    /// where a reference would stay literal.
    pub(super) fn controller_address(&mut self) {
        let of_mindspore = [MS_SCHED_HOST, MS_ROLE, MS_ENABLE_TFT];
        let is_mindspore =
            self.pod.is_mindspore || of_mindspore.iter().any(|name| self.container.last_env(name).is_some());
        if is_mindspore {
            self.refer(MS_TFT_IP, MS_SCHED_HOST);
            self.refer(MS_TFT_PORT, TTP_PORT);
        } else {
            match self.pod.rank {
                Rank::Zero => self.refer(TTP_ADDR, POD_IP),
                Rank::Other | Rank::ByIndex { .. } => self.refer(TTP_ADDR, MASTER_ADDR),
                Rank::Unknown => self.unknown_rank(),
            }
        }
    }

    fn unknown_rank(&mut self) {
        if let Some((index, entry)) = self.container.last_env(TTP_ADDR) {
            self.keep(TTP_ADDR, None, index, entry);
            return;
        }
        self.context
            .record_action(Action::skipped(format!("env.{TTP_ADDR}"), Reason::ControllerAddressUnknown));
        self.context.warn(
            Reason::ControllerAddressUnknown,
            &format!(
                "env {TTP_ADDR} wasn't added: the Pod doesn't show whether it has rank 0. Set RANK, or export \
                 {TTP_ADDR} in the start script, or training doesn't start"
            ),
        );
    }

    /// Keeps a variable of the user, which should have the value `wanted` if that is known.
    fn keep(&mut self, name: &str, wanted: Option<&str>, index: usize, entry: &EnvVar<'_>) {
        let present = entry.value.text();
        let (earlier, later) = self.container.env.items().split_at(index);
        let mut undefined: HashSet<&str> = references(present).collect();
        for entry in earlier {
            undefined.remove(entry.name());
        }
        let mut behind = [MASTER_ADDR, MS_SCHED_HOST].into_iter().chain(later.iter().map(EnvVar::name));
        let undefined = behind.find(|name| undefined.contains(name));
        let has_value = entry.value_from.present().is_some() || !present.is_empty();
        let is_own = name != MS_TFT_PORT
            && self.pod.has_other_ranks
            && references(present).any(|source| source == POD_IP);
        let same = Some(present) == wanted && undefined.is_none();
        let reason = if same { Reason::AlreadyPresent } else { Reason::UserValueKept };
        self.context.record_action(Action::kept(format!("env.{name}"), shown(entry), reason));
        let (reason, problem) = if let Some(undefined) = undefined {
            (
                Reason::ControllerAddressLiteral,
                format!(
                    "refers to {undefined}, which isn't defined before it, so the reference stays literal text"
                ),
            )
        } else if !has_value {
            (
                Reason::ControllerAddressWrong,
                "is empty, so processes don't find MindIO's controller".to_owned(),
            )
        } else if is_own {
            (
                Reason::ControllerAddressWrong,
                format!("refers to {POD_IP}, but MindIO's controller is on the Pod of rank 0 only"),
            )
        } else {
            return;
        };
        self.context.warn(reason, &format!("env {name} {problem}: remove it, Swansong adds it to the Pods"));
    }

    fn refer(&mut self, name: &'static str, source: &'static str) {
        let field = format!("env.{name}");
        let value = format!("$({source})");
        if let Some((index, entry)) = self.container.last_env(name) {
            self.keep(name, Some(&value), index, entry);
            return;
        }
        let behind = self.behind(source);
        match (self.pod.kind, behind) {
            (WorkloadKind::Pod, Some(behind)) => {
                self.context.record_action(Action::added(field, value.clone()));
                self.add(name, NewValue::Literal(value.into()), behind);
            }
            (WorkloadKind::AscendJob, _) | (_, Some(_)) => {
                let action = Action::skipped(field, Reason::AddedToPods);
                let value = match self.pod.rank {
                    Rank::ByIndex { named } if name == TTP_ADDR => self.by_index(named),
                    _ => value,
                };
                self.context.record_action(Action { value: Some(value), ..action });
            }
            (kind, None) => {
                self.context.record_action(Action::skipped(field, Reason::ControllerAddressUnknown));
                // An empty POD_IP has its own warning, and so has a job without ascend-operator.
                if kind == WorkloadKind::Pod && source != POD_IP {
                    self.context.warn(
                        Reason::ControllerAddressUnknown,
                        &format!(
                            "env {name} wasn't added: the container has no {source} to refer to. Export {name} in the \
                             start script, or training doesn't start"
                        ),
                    );
                }
            }
        }
    }

    /// What the Pods of a task of a Volcano Job get.
    fn by_index(&mut self, named: bool) -> String {
        if self.container.last_env(RANK).is_some() {
            return format!("$({POD_IP}) with RANK 0, else $({MASTER_ADDR})");
        }
        if named {
            return format!("$({POD_IP}) with index 0, else $({MASTER_ADDR})");
        }
        self.context.warn(
            Reason::ControllerAddressUnknown,
            &format!(
                "the Pod with index 0 gets no {TTP_ADDR}, since nothing shows whether it has rank 0: name the task of \
                 rank 0 master, or set RANK or {TTP_ADDR}"
            ),
        );
        format!("none with index 0, else $({MASTER_ADDR})")
    }

    /// The index from which on entries may refer to `source`; `None` if it has no value.
    fn behind(&self, source: &str) -> Option<usize> {
        if let Some(addition) = self.additions.iter().find(|addition| addition.name == source) {
            return Some(addition.before);
        }
        let (index, entry) = self.container.last_env(source)?;
        let has_value = entry.value_from.present().is_some() || !entry.value.text().is_empty();
        has_value.then_some(index + 1)
    }

    pub(super) fn limits(&mut self) {
        if self.pod.dump == DumpStrategy::Absent {
            return;
        }
        let field = format!("env.{SAVE_LIMIT}");
        let limit = self.policy.dump.save_limit(self.pod.dump);
        match (self.container.last_env(SAVE_LIMIT), limit) {
            (Some((_, entry)), limit) => {
                let same = limit.is_some_and(|limit| entry.value.text() == limit.to_string());
                let reason = if same { Reason::AlreadyPresent } else { Reason::UserValueKept };
                self.context.record_action(Action::kept(field, shown(entry), reason));
            }
            (None, Some(limit)) => {
                let limit = limit.to_string();
                self.context.record_action(Action::added(field, limit.clone()));
                self.add(SAVE_LIMIT, NewValue::Literal(limit.into()), 0);
            }
            (None, None) => self.context.record_action(Action::skipped(field, Reason::SaveLimitDefault)),
        }
        let consequence = "a save that takes longer is thrown away";
        self.check_limit(SAVE_LIMIT, &SAVE_LIMITS, DEFAULT_SAVE_LIMIT, consequence);
        let consequence = "without an order of ClusterD by then nothing is saved";
        self.check_limit(ORDER_LIMIT, &ORDER_LIMITS, DEFAULT_ORDER_LIMIT, consequence);
    }

    /// Warns if the user's limit isn't one that MindIO accepts, or is lower than its default, in seconds.
    fn check_limit(&mut self, name: &str, range: &RangeInclusive<u16>, default: u16, consequence: &str) {
        let Some(value) = self.container.last_env(name).and_then(|(_, entry)| literal(entry)) else { return };
        match value.trim().parse() {
            Ok(seconds) if seconds >= default && range.contains(&seconds) => {}
            Ok(seconds) if range.contains(&seconds) => self.context.warn(
                Reason::ManagerLimitLow,
                &format!(
                    "env {name} is {seconds}, less than MindIO's default of {default} s: {consequence}; raise or \
                     remove it"
                ),
            ),
            _ => self.context.warn(
                Reason::ManagerLimitInvalid,
                &format!(
                    "env {name} is {value:?}, but MindIO accepts only whole seconds from {} to {}: correct or remove it",
                    range.start(),
                    range.end()
                ),
            ),
        }
    }
}

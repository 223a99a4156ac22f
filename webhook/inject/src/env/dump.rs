//! Injects the variables by which training processes find MindIO's controller, and its time limits.

use swansong_api::env::{
    MASTER_ADDR, MS_ENABLE_TFT, MS_ROLE, MS_SCHED_HOST, MS_TFT_IP, MS_TFT_PORT, ORDER_LIMIT, POD_IP,
    SAVE_LIMIT, TTP_ADDR, TTP_PORT,
};

use super::{EnvInjection, NewValue, refers_to, shown};
use crate::kind::WorkloadKind;
use crate::policy::{DEFAULT_ORDER_LIMIT, DEFAULT_SAVE_LIMIT, DumpStrategy};
use crate::reason::Reason;
use crate::report::Action;

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
            self.refer(TTP_ADDR, if self.pod.rank_zero { POD_IP } else { MASTER_ADDR });
        }
    }

    fn refer(&mut self, name: &'static str, source: &'static str) {
        let field = format!("env.{name}");
        let value = format!("$({source})");
        if let Some((index, entry)) = self.container.last_env(name) {
            let present = entry.value.text();
            let earlier = &self.container.env.items()[..index];
            let undefined = [MASTER_ADDR, MS_SCHED_HOST].into_iter().find(|source| {
                refers_to(present, source) && earlier.iter().all(|entry| entry.name() != *source)
            });
            let same = present == value && undefined.is_none();
            let reason = if same { Reason::AlreadyPresent } else { Reason::UserValueKept };
            self.context.record_action(Action::kept(field, shown(entry), reason));
            if let Some(undefined) = undefined {
                self.context.warn(
                    Reason::ControllerAddressLiteral,
                    &format!(
                        "env {name} refers to {undefined}, which ascend-operator adds behind it, so the reference \
                         stays literal text: remove {name}, which Swansong adds to the Pods"
                    ),
                );
            }
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
        self.check_limit(SAVE_LIMIT, DEFAULT_SAVE_LIMIT, "a save that takes longer is thrown away");
        self.check_limit(
            ORDER_LIMIT,
            DEFAULT_ORDER_LIMIT,
            "without an order of ClusterD by then nothing is saved",
        );
    }

    /// Warns if the user's limit is lower than the default of MindIO's controller, in seconds.
    fn check_limit(&mut self, name: &str, default: u16, consequence: &str) {
        let Some(seconds) = self.container.env_value(name).and_then(|value| value.trim().parse::<u16>().ok())
        else {
            return;
        };
        if seconds < default {
            self.context.warn(
                Reason::ManagerLimitLow,
                &format!(
                    "env {name} is {seconds}, less than MindIO's default of {default} s: {consequence}; raise or \
                     remove it"
                ),
            );
        }
    }
}

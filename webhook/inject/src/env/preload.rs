//! Injects the variable `LD_PRELOAD` of one container.

use std::borrow::Cow;

use swansong_api::env::{LD_PRELOAD, ORIGINAL_LD_PRELOAD};
use swansong_api::preload::{entries, file_name};
use swansong_api::record::{OriginalPreload, PreloadRecord};

use super::{EnvInjection, NewValue};
use crate::operation::Operation;
use crate::policy::{PreloadOrder, PreloadValueFrom, wildcard};
use crate::preload::{self, Joined};
use crate::reason::Reason;
use crate::report::{Action, ActionKind};
use crate::view::{EnvVar, Slot, ValueFrom};

impl<'p> EnvInjection<'_, '_, '_, 'p> {
    /// Joins the libraries to the last of several entries, which is the effective one in the kubelet.
    pub(super) fn preload(&mut self, ours: &[&'p str], order: Option<PreloadOrder>) {
        const FIELD: &str = "env.LD_PRELOAD";
        let Some((index, entry)) = self.container.last_env(LD_PRELOAD) else {
            let value = ours.join(":");
            self.record_preload(ours, None);
            self.context.record_action(Action::added(FIELD, value.clone()));
            self.add(LD_PRELOAD, NewValue::Literal(value.into()), 0);
            if !self.container.env_from.items().is_empty() {
                self.context.warn(
                    Reason::PreloadMayHideEnvFrom,
                    "envFrom may contain an LD_PRELOAD, which the injected one overrides; \
                     write that value as an explicit env entry, and the libraries join it",
                );
            }
            return;
        };
        if entry.value_from.present().is_some() {
            self.preload_value_from(index, entry, ours, order.unwrap_or(self.policy.preload_order));
            return;
        }
        let user = entry.value.present().map_or("", |value| value);
        let resolved = self.resolved(user);
        let stays_first = entries(&resolved).map(file_name).find(|name| {
            let mut patterns = self.policy.preload_keep_first.iter();
            patterns.any(|pattern| wildcard(pattern.as_bytes(), name.as_bytes()))
        });
        let order = match (order, stays_first) {
            (Some(order), _) => order,
            (None, Some(_)) => PreloadOrder::Last,
            (None, None) => self.policy.preload_order,
        };
        self.report_other_paths(ours, &resolved);
        let has = |path: &str| entries(&resolved).any(|entry| file_name(entry) == file_name(path));
        let ours: Vec<&str> = ours.iter().copied().filter(|path| !has(path)).collect();
        let Some(Joined { value, added }) = preload::join(&ours, user, order) else {
            self.context.record_action(Action::kept(FIELD, Some(user.to_owned()), Reason::AlreadyPresent));
            return;
        };
        let path = format!("{}/env/{index}/value", self.path);
        let (original, operation) = match &entry.value {
            Slot::Absent => (OriginalPreload::Absent, Operation::add(path, &value)),
            Slot::Null => (OriginalPreload::Null, Operation::replace(path, &value)),
            Slot::Present(_) => (OriginalPreload::Value, Operation::replace(path, &value)),
        };
        self.record_preload(&added, Some(original));
        self.context.operations.push(operation);
        let reason = match stays_first {
            Some(_) if order == PreloadOrder::Last => Reason::PreloadKeptFirst,
            _ => Reason::PreloadMerged,
        };
        self.context.record_action(Action {
            field: FIELD.into(),
            action: ActionKind::Merged,
            value: Some(value),
            reason,
        });
    }

    /// The value with the variables to which it refers; those of unknown values stay.
    fn resolved<'v>(&self, value: &'v str) -> Cow<'v, str> {
        let mut resolved = Cow::Borrowed(value);
        for entry in self.container.env.items() {
            let reference = format!("$({})", entry.name());
            let known = self.container.env_value(entry.name()).filter(|known| known.len() <= 4096);
            if resolved.contains(&reference)
                && resolved.len() <= 4096
                && let Some(known) = known
            {
                resolved = resolved.replace(&reference, known).into();
            }
        }
        resolved
    }

    /// Reports libraries that the user preloads from another path than the configured one.
    fn report_other_paths(&mut self, ours: &[&'p str], user: &str) {
        for path in ours.iter().filter(|path| !entries(user).any(|entry| entry == **path)) {
            if let Some(other) = entries(user).find(|entry| file_name(entry) == file_name(path)) {
                self.context.warn(
                    Reason::PreloadFromOtherPath,
                    &format!("LD_PRELOAD has {other:?}, so {path:?} wasn't added"),
                );
            }
        }
    }

    /// Renames the user's entry, and adds one behind it that refers to the new name: the API server refuses an entry with
    /// both `value` and `valueFrom`.
    fn preload_value_from(
        &mut self,
        index: usize,
        entry: &EnvVar<'_>,
        ours: &[&'p str],
        order: PreloadOrder,
    ) {
        let taken = self.container.last_env(ORIGINAL_LD_PRELOAD).is_some();
        if self.policy.preload_value_from == PreloadValueFrom::Skip || taken {
            self.context.record_action(Action::skipped("env.LD_PRELOAD", Reason::PreloadValueFromSkipped));
            self.context.warn(
                Reason::PreloadValueFromSkipped,
                "LD_PRELOAD comes from a valueFrom and was left unchanged: libmspti.so and libtaskd.so are NOT preloaded; \
                 write its value out, and the libraries join it",
            );
            return;
        }
        if entry.value_from.present().is_some_and(ValueFrom::is_optional) {
            self.context.record_action(Action::skipped("env.LD_PRELOAD", Reason::PreloadValueFromOptional));
            self.context.warn(
                Reason::PreloadValueFromOptional,
                "LD_PRELOAD comes from an optional valueFrom and was left unchanged: libmspti.so and libtaskd.so are NOT preloaded; \
                 write its value out or remove `optional`, and the libraries join it",
            );
            return;
        }
        let value = preload::join_reference(ours, ORIGINAL_LD_PRELOAD, order);
        self.context
            .operations
            .push(Operation::replace(format!("{}/env/{index}/name", self.path), &ORIGINAL_LD_PRELOAD));
        self.record_preload(ours, Some(OriginalPreload::ValueFrom));
        self.context.record_action(Action {
            field: "env.LD_PRELOAD".into(),
            action: ActionKind::Merged,
            value: Some(value.clone()),
            reason: Reason::PreloadValueFromReferenced,
        });
        self.add(LD_PRELOAD, NewValue::Literal(value.into()), index + 1);
    }

    fn record_preload(&mut self, libraries: &[&str], original: Option<OriginalPreload>) {
        let libraries = libraries.iter().map(|path| (*path).to_owned()).collect();
        self.record.preload = Some(PreloadRecord { libraries, original });
    }
}

//! Injects the environment variables of one container.

mod dump;
mod preload;

use serde::ser::{Serialize, SerializeMap, Serializer};
use swansong_api::env::{
    LD_PRELOAD, LOCAL_PROXY_ENABLE, POD_IP, POD_IP_FIELD, TASKD_PROCESS_ENABLE, TTP_PORT,
};
use swansong_api::pod::{LIBRARIES_FOLDER, PYTHON_USER_BASE};
use swansong_api::ports::TTP;
use swansong_api::record::{ContainerRecord, summary};

use super::context::{ContainerContext, PodContext};
use super::operation::Operation;
use super::original::append;
use super::report::Action;
use super::view::{Container, EnvVar};
use crate::policy::{NamedPort, Policy, PreloadOrder, TORCHRUN_DEFAULTS};
use crate::reason::Reason;

/// The libraries to preload into one container, and their order if an annotation sets it; `None` doesn't change `LD_PRELOAD`.
pub(super) type Libraries<'p> = Option<(Vec<&'p str>, Option<PreloadOrder>)>;

/// A variable to add.
struct NewVar<'p> {
    name: &'p str,
    value: NewValue<'p>,
    /// Index of the existing entry to insert before; `usize::MAX` appends.
    before: usize,
}

enum NewValue<'p> {
    Literal(std::borrow::Cow<'p, str>),
    FieldPath(&'static str),
}

impl NewValue<'_> {
    /// Adds it to a record.
    fn record(&self, name: &str, record: &mut ContainerRecord) {
        match self {
            Self::Literal(value) => record.env.insert(name.to_owned(), summary(value)),
            Self::FieldPath(path) => record.field_refs.insert(name.to_owned(), (*path).to_owned()),
        };
    }
}

impl Serialize for NewVar<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct FieldRef {
            #[serde(rename = "fieldPath")]
            field_path: &'static str,
        }
        #[derive(serde::Serialize)]
        struct Source {
            #[serde(rename = "fieldRef")]
            field_ref: FieldRef,
        }
        let mut entry = serializer.serialize_map(Some(2))?;
        entry.serialize_entry("name", self.name)?;
        match &self.value {
            NewValue::Literal(value) => entry.serialize_entry("value", value)?,
            NewValue::FieldPath(field_path) => {
                entry.serialize_entry("valueFrom", &Source { field_ref: FieldRef { field_path } })?;
            }
        }
        entry.end()
    }
}

/// The injection of one container's environment.
pub(super) struct EnvInjection<'s, 'o, 'a, 'p> {
    context: &'s mut ContainerContext<'o>,
    container: &'o Container<'a>,
    policy: &'p Policy,
    pod: PodContext,
    additions: Vec<NewVar<'p>>,
    /// The indices of the entries whose value may refer to another variable.
    referring: Vec<usize>,
    record: &'s mut ContainerRecord,
    /// JSON pointer of the container.
    path: &'s str,
}

impl<'s, 'o, 'a, 'p> EnvInjection<'s, 'o, 'a, 'p> {
    pub(super) fn new(
        context: &'s mut ContainerContext<'o>,
        container: &'o Container<'a>,
        policy: &'p Policy,
        pod: PodContext,
        path: &'s str,
        record: &'s mut ContainerRecord,
    ) -> Self {
        let entries = container.env.items().iter().enumerate();
        let referring =
            entries.filter(|(_, entry)| entry.value.text().contains("$(")).map(|(index, _)| index);
        let referring = referring.collect();
        Self { context, container, policy, pod, additions: Vec::new(), referring, record, path }
    }

    /// Adds the missing variables in the documented order.
    pub(super) fn run(mut self, libraries: &Libraries<'p>, needs_user_base: bool) {
        self.pod_ip();
        self.ttp_port();
        self.taskd_process_enable();
        if self.container.env_value(LOCAL_PROXY_ENABLE) == Some("on") {
            let on = Some("on".to_owned());
            self.context.record_action(Action::kept("env.LOCAL_PROXY_ENABLE", on, Reason::LocalProxy));
        } else {
            self.controller_address();
        }
        self.limits();
        for (name, value) in &self.policy.extra_env {
            let is_default = TORCHRUN_DEFAULTS.contains(&(name.as_str(), value.as_str()));
            let reason = if is_default { Reason::TorchrunDefault } else { Reason::Required };
            self.add_unless_present_for(reason, name, value);
        }
        if needs_user_base {
            self.add_unless_present(PYTHON_USER_BASE, LIBRARIES_FOLDER);
        }
        match libraries {
            Some((libraries, order)) => self.preload(libraries, *order),
            None => self.context.record_action(Action::skipped("env.LD_PRELOAD", Reason::PreloadOptedOut)),
        }
        self.warn_of_env_from();
        self.emit();
    }

    fn pod_ip(&mut self) {
        let Some((_, entry)) = self.container.last_env(POD_IP) else {
            self.context.record_action(Action::added("env.POD_IP", POD_IP_FIELD));
            self.add(POD_IP, NewValue::FieldPath(POD_IP_FIELD), 0);
            return;
        };
        if entry.value_from.present().is_none() && entry.value.present().is_none_or(|value| value.is_empty())
        {
            self.context.record_action(Action::kept("env.POD_IP", None, Reason::PodIpEmpty));
            self.context.warn(
                Reason::PodIpEmpty,
                "env POD_IP has no value, so the TaskD Manager would listen on 127.0.0.1 only; \
                 write valueFrom.fieldRef.fieldPath: status.podIP, fieldRef indented below valueFrom",
            );
        } else {
            self.context.record_action(Action::kept("env.POD_IP", shown(entry), Reason::AlreadyPresent));
        }
    }

    fn ttp_port(&mut self) {
        let default = self.policy.ttp_port.port;
        match self.container.last_env(TTP_PORT) {
            None => {
                let value = default.to_string();
                self.context.record_action(Action::added("env.TTP_PORT", value.clone()));
                self.add(TTP_PORT, NewValue::Literal(value.into()), 0);
            }
            Some((_, entry)) => match ttp_port_of(self.container, &self.policy.ttp_port) {
                TtpPort::Number(TTP) => {
                    self.context.record_action(Action::kept(
                        "env.TTP_PORT",
                        shown(entry),
                        Reason::AlreadyPresent,
                    ));
                }
                TtpPort::Number(number) => {
                    self.context.record_action(Action::kept(
                        "env.TTP_PORT",
                        shown(entry),
                        Reason::TtpPortNotDefault,
                    ));
                    self.context.warn(
                        Reason::TtpPortNotDefault,
                        &format!("env TTP_PORT is {number}, but MindSpeed-LLM ignores the variable and connects to {TTP}"),
                    );
                }
                TtpPort::Unknown(number) => {
                    self.context.record_action(Action::kept(
                        "env.TTP_PORT",
                        shown(entry),
                        Reason::TtpPortUnknown,
                    ));
                    self.context.warn(
                        Reason::TtpPortUnknown,
                        &format!(
                            "env TTP_PORT isn't a plain port number, so port {number} is taken for it; \
                             if it differs, declare the right one under the name {:?}",
                            self.policy.ttp_port.name
                        ),
                    );
                }
            },
        }
    }

    fn taskd_process_enable(&mut self) {
        if self
            .container
            .env_value(TASKD_PROCESS_ENABLE)
            .is_some_and(|value| value.eq_ignore_ascii_case("off"))
        {
            self.context.record_action(Action::kept(
                "env.TASKD_PROCESS_ENABLE",
                Some("off".to_owned()),
                Reason::TaskdDisabled,
            ));
            self.context.warn(
                Reason::TaskdDisabled,
                "env TASKD_PROCESS_ENABLE is off: TaskD takes no part in recovery and nothing will be saved; \
                 remove it or set it to on",
            );
        } else {
            self.add_unless_present(TASKD_PROCESS_ENABLE, "on");
        }
    }

    fn add_unless_present(&mut self, name: &'p str, value: &'p str) {
        self.add_unless_present_for(Reason::Required, name, value);
    }

    fn add_unless_present_for(&mut self, reason: Reason, name: &'p str, value: &'p str) {
        let field = format!("env.{name}");
        match self.container.last_env(name) {
            None => {
                self.context.record_action(Action { reason, ..Action::added(field, value) });
                self.add(name, NewValue::Literal(value.into()), 0);
            }
            Some((_, entry)) => {
                let same = entry.value.present().is_some_and(|present| &**present == value);
                let reason = if same { Reason::AlreadyPresent } else { Reason::UserValueKept };
                self.context.record_action(Action::kept(field, shown(entry), reason));
            }
        }
    }

    /// Adds an entry before the first one from index `from` on that refers to it, because the kubelet resolves `$(NAME)`
    /// only from earlier entries.
    fn add(&mut self, name: &'p str, value: NewValue<'p>, from: usize) {
        let entries = self.container.env.items();
        let mut referring = self.referring.iter().copied().filter(|index| *index >= from);
        let before =
            referring.find(|index| refers_to(entries[*index].value.text(), name)).unwrap_or(usize::MAX);
        if name != LD_PRELOAD {
            value.record(name, self.record);
        }
        self.additions.push(NewVar { name, value, before });
    }

    fn warn_of_env_from(&mut self) {
        let literal = |addition: &&NewVar<'_>| {
            addition.name != LD_PRELOAD && matches!(addition.value, NewValue::Literal(_))
        };
        let names: Vec<&str> = self.additions.iter().filter(literal).map(|addition| addition.name).collect();
        if !names.is_empty() && !self.container.env_from.items().is_empty() {
            self.context.warn(
                Reason::VariablesMayHideEnvFrom,
                &format!(
                    "envFrom may contain {}, which the injected ones override; write such values as explicit env entries",
                    names.join(", ")
                ),
            );
        }
    }

    fn emit(mut self) {
        // In ascending order an insertion shifts the later ones by one.
        self.additions.sort_by_key(|addition| addition.before);
        let ContainerContext { operations, .. } = self.context;
        let inserted = self.additions.iter().take_while(|addition| addition.before < usize::MAX).count();
        let (inserted, appended) = self.additions.split_at(inserted);
        for (shift, addition) in inserted.iter().enumerate() {
            let path = format!("{}/env/{}", self.path, addition.before + shift);
            operations.push(Operation::add(path, addition));
        }
        let created = (&mut self.record.absent, &mut self.record.null);
        append(operations, self.path, "env", &self.container.env, appended, created);
    }
}

/// The port on which MindIO's controller listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TtpPort {
    /// The value of `TTP_PORT`, present or injected.
    Number(u16),
    /// `TTP_PORT` is unknown at admission; this is the port declared under its name, or the default.
    Unknown(u16),
}

impl TtpPort {
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Number(number) | Self::Unknown(number) => number,
        }
    }
}

/// Reads `TTP_PORT` of a container; without one it will be that of `default`.
pub(super) fn ttp_port_of(container: &Container<'_>, default: &NamedPort) -> TtpPort {
    let Some((_, entry)) = container.last_env(TTP_PORT) else { return TtpPort::Number(default.port) };
    let literal = if entry.value_from.present().is_some() { None } else { entry.value.present() };
    match literal.and_then(|value| value.parse().ok()) {
        Some(number) if number > 0 => TtpPort::Number(number),
        _ => TtpPort::Unknown(container.tcp_port_named(&default.name).unwrap_or(default.port)),
    }
}

/// A value for the report.
fn shown(entry: &EnvVar<'_>) -> Option<String> {
    match entry.value_from.present() {
        Some(_) => Some("(valueFrom)".to_owned()),
        None => entry.value.present().map(|value| value.to_string()),
    }
}

/// Whether a value is known: neither from elsewhere nor with references.
fn literal<'v>(entry: &'v EnvVar<'_>) -> Option<&'v str> {
    let value = entry.value.text();
    (entry.value_from.present().is_none() && !value.contains("$(")).then_some(value)
}

/// Whether `value` holds `$(name)` where the kubelet would expand it.
fn refers_to(value: &str, name: &str) -> bool {
    references(value).any(|reference| reference == name)
}

/// The names in `value` that the kubelet would expand; `$$` is an escaped dollar.
fn references(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = value;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once('$')?;
            rest = after.strip_prefix('$').unwrap_or(after);
            if let Some(inner) = after.strip_prefix('(') {
                // Without a closing parenthesis no later reference is complete either.
                let (name, behind) = inner.split_once(')')?;
                rest = behind;
                return Some(name);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_as_the_kubelet_sees_them() {
        for (value, expected) in [
            ("$(POD_IP)", true),
            ("http://$(POD_IP):1", true),
            ("$(A)$(POD_IP)", true),
            ("$$$$(POD_IP)", false),
            ("$(A$(POD_IP)", false),
            ("$$(POD_IP)", false),
            ("$$$(POD_IP)", true),
            ("$(POD_IP_2)", false),
            ("${POD_IP}", false),
            ("$(POD_IP", false),
            ("$", false),
        ] {
            assert_eq!(refers_to(value, "POD_IP"), expected, "{value}");
        }
    }
}

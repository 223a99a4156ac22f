//! Reads Swansong's annotations on a pod template.

use std::collections::HashSet;

use swansong_api::annotations::{
    CONTAINERS, FAST_DUMP, INJECT, LIBMSPTI, LIBRARIES, LIBTASKD, MANAGER, PRELOAD_ORDER, PROTECT_DUMP,
    RESET_CONFIG, SKIP_PRELOAD, flag,
};

use super::report::Warning;
use super::view::Metadata;
use crate::policy::{PreloadOrder, ResetConfigMount, preload_path_fault};
use crate::reason::Reason;

/// The options in force for one template: its own, else its job's.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    /// Whether the template is excluded from injection.
    pub opted_out: bool,
    /// Order of `LD_PRELOAD`, if set.
    pub preload_order: Option<PreloadOrder>,
    /// The containers to inject, if named.
    pub containers: Option<HashSet<&'a str>>,
    /// Containers without `LD_PRELOAD`.
    pub skip_preload: HashSet<&'a str>,
    /// Usable path of libtaskd.so.
    pub libtaskd: Option<&'a str>,
    /// Usable path of libmspti.so.
    pub libmspti: Option<&'a str>,
    /// Whether an annotation enables or disables the launcher hook.
    pub protect_dump: Option<bool>,
    /// Whether an annotation has the libraries discovered or not.
    pub discover: Option<bool>,
    /// Whether an annotation asks for the TaskD Manager as a sidecar or not.
    pub manager_sidecar: Option<bool>,
    /// How reset.json is mounted by an annotation, or that it isn't.
    pub reset_config: Option<Option<ResetConfigMount>>,
    /// Whether the rank of a lost device is ended at once.
    pub fast_dump: bool,
}

impl<'a> Options<'a> {
    /// Reads the options. An unusable value causes a warning and counts as absent.
    pub fn read(
        template: Option<&'a Metadata<'_>>,
        job: Option<&'a Metadata<'_>>,
        warnings: &mut Vec<Warning>,
    ) -> Self {
        let value = |key| {
            let own = template.and_then(|metadata| metadata.annotation(key));
            own.or_else(|| job.and_then(|metadata| metadata.annotation(key)))
        };
        let inject = value(INJECT).unwrap_or_default().trim();
        let opted_out = flag(inject) == Some(false);
        if !inject.is_empty() && flag(inject).is_none() {
            warnings.push(invalid(INJECT, inject, "write \"false\" to exclude the pod"));
        }
        let preload_order = one_of(
            PRELOAD_ORDER,
            value(PRELOAD_ORDER),
            &[("first", PreloadOrder::First), ("last", PreloadOrder::Last)],
            warnings,
        );
        let mut switch = |key| {
            let value = value(key);
            let known = value.and_then(flag);
            known.or_else(|| one_of(key, value, &[("true", true), ("false", false)], warnings))
        };
        let (protect_dump, fast_dump) = (switch(PROTECT_DUMP), switch(FAST_DUMP) == Some(true));
        let discover = [("discover", true), ("configured", false)];
        let discover = one_of(LIBRARIES, value(LIBRARIES), &discover, warnings);
        let manager_sidecar =
            one_of(MANAGER, value(MANAGER), &[("sidecar", true), ("none", false)], warnings);
        let reset_config = [
            ("configMap", Some(ResetConfigMount::ConfigMap)),
            ("hostPath", Some(ResetConfigMount::HostPath)),
            ("none", None),
        ];
        let reset_config = one_of(RESET_CONFIG, value(RESET_CONFIG), &reset_config, warnings);
        let containers = value(CONTAINERS).map(list);
        if containers.as_ref().is_some_and(HashSet::is_empty) {
            warnings.push(invalid(CONTAINERS, "", "name the containers, separated by commas, or remove it"));
        }
        let mut path = |key| {
            let path = value(key)?;
            match preload_path_fault(path) {
                None => Some(path),
                Some(fault) => {
                    warnings.push(invalid(key, path, fault));
                    None
                }
            }
        };
        Self {
            opted_out,
            preload_order,
            protect_dump,
            fast_dump,
            discover,
            manager_sidecar,
            reset_config,
            libtaskd: path(LIBTASKD),
            libmspti: path(LIBMSPTI),
            containers: containers.filter(|names| !names.is_empty()),
            skip_preload: value(SKIP_PRELOAD).map(list).unwrap_or_default(),
        }
    }

    /// Whether the container gets no `LD_PRELOAD`.
    pub fn skips_preload(&self, container: &str) -> bool {
        self.skip_preload.contains("*") || self.skip_preload.contains(container)
    }
}

/// The meaning of a value among `values`; a different one causes a warning.
fn one_of<T: Copy>(
    key: &str,
    value: Option<&str>,
    values: &[(&str, T)],
    warnings: &mut Vec<Warning>,
) -> Option<T> {
    let value = value.map(str::trim).filter(|value| !value.is_empty())?;
    let known = values.iter().find(|(name, _)| *name == value);
    if known.is_none() {
        let names: Vec<String> = values.iter().map(|(name, _)| format!("{name:?}")).collect();
        warnings.push(invalid(key, value, &format!("write {}", names.join(" or "))));
    }
    known.map(|(_, meaning)| *meaning)
}

/// The names in a list, as a set because a hostile annotation may have 256 KiB of them.
fn list(value: &str) -> HashSet<&str> {
    value.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

fn invalid(key: &str, value: &str, what: &str) -> Warning {
    Warning {
        reason: Reason::OptionInvalid,
        message: format!("annotation {key}: {value:?} is ignored: {what}"),
    }
}

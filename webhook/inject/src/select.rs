//! Which containers of a pod take part in the dying checkpoint.

use std::collections::HashSet;

use swansong_api::annotations::{CONTAINERS, SKIP_PRELOAD};

use super::options::Options;
use super::report::Warning;
use super::view::{Container, PodSpec};
use crate::reason::Reason;

/// ascend-operator's `api.DefaultContainerName`, the only container it deals with.
pub const DEFAULT_CONTAINER: &str = "ascend";

/// A chosen container and where it stands.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'o, 'a> {
    /// `containers` or `initContainers`.
    pub list: &'static str,
    /// Index in that list.
    pub index: usize,
    /// The container.
    pub container: &'o Container<'a>,
}

/// Chooses: those named by annotation; else the one called `ascend`; else those that ask for an NPU;
/// else the only one. Never an ordinary init container, a native sidecar only by name.
pub fn choose<'o, 'a>(
    spec: &'o PodSpec<'a>,
    options: &Options<'_>,
    warnings: &mut Vec<Warning>,
) -> Vec<Chosen<'o, 'a>> {
    let containers = spec.containers.items();
    warn_unknown(spec, SKIP_PRELOAD, &options.skip_preload, warnings);
    if let Some(names) = &options.containers {
        warn_unknown(spec, CONTAINERS, names, warnings);
        return named(spec, names, warnings);
    }
    let by = |chosen: &dyn Fn(&Container<'a>) -> bool| -> Vec<Chosen<'o, 'a>> {
        in_list("containers", containers).filter(|it| chosen(it.container)).collect()
    };
    let ascend = by(&|container| container.name() == DEFAULT_CONTAINER);
    if !ascend.is_empty() {
        return ascend;
    }
    let npu = by(&Container::wants_npu);
    if !npu.is_empty() {
        return npu;
    }
    if containers.len() == 1 {
        return by(&|_| true);
    }
    let names: Vec<_> = containers.iter().map(Container::name).collect();
    warnings.push(Warning {
        reason: Reason::NoContainerChosen,
        message: format!(
            "nothing was added: no container is called {DEFAULT_CONTAINER:?} or requests huawei.com/*; \
             name the training container with the annotation {CONTAINERS} (containers: {})",
            names.join(", ")
        ),
    });
    Vec::new()
}

fn in_list<'o, 'a>(
    list: &'static str,
    containers: &'o [Container<'a>],
) -> impl Iterator<Item = Chosen<'o, 'a>> {
    containers.iter().enumerate().map(move |(index, container)| Chosen { list, index, container })
}

fn named<'o, 'a>(
    spec: &'o PodSpec<'a>,
    names: &HashSet<&str>,
    warnings: &mut Vec<Warning>,
) -> Vec<Chosen<'o, 'a>> {
    let all = in_list("containers", spec.containers.items())
        .chain(in_list("initContainers", spec.init_containers.items()));
    let mut chosen = Vec::new();
    for it in all.filter(|it| names.contains(it.container.name())) {
        if it.list == "initContainers" && !it.container.is_sidecar() {
            warnings.push(Warning {
                reason: Reason::InitContainer,
                message: format!(
                    "annotation {CONTAINERS}: {:?} is an ordinary init container and is left alone",
                    it.container.name()
                ),
            });
        } else {
            chosen.push(it);
        }
    }
    chosen
}

fn warn_unknown(spec: &PodSpec<'_>, annotation: &str, names: &HashSet<&str>, warnings: &mut Vec<Warning>) {
    if names.is_empty() {
        return;
    }
    let all = spec.containers.items().iter().chain(spec.init_containers.items());
    let present: HashSet<&str> = all.map(Container::name).collect();
    let mut unknown: Vec<_> = names.iter().filter(|name| **name != "*" && !present.contains(*name)).collect();
    unknown.sort_unstable();
    for name in unknown {
        warnings.push(Warning {
            reason: Reason::UnknownContainer,
            message: format!("annotation {annotation}: the pod has no container {name:?}"),
        });
    }
}

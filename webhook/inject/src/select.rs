//! Selects the containers to inject.

use std::collections::HashSet;

use swansong_api::annotations::{CONTAINERS, SKIP_PRELOAD};
use swansong_api::record::Record;

use super::options::Options;
use super::report::Warning;
use super::view::{Container, PodSpec};
use crate::reason::Reason;

/// ascend-operator's `api.DefaultContainerName`, the only container that it changes.
pub const DEFAULT_CONTAINER: &str = "ascend";

/// A chosen container and its position.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'o, 'a> {
    /// `containers` or `initContainers`.
    pub list: &'static str,
    /// Index in that list.
    pub index: usize,
    pub container: &'o Container<'a>,
}

impl Chosen<'_, '_> {
    /// JSON pointer of the container in the template at `template`.
    pub fn path(&self, template: &str) -> String {
        format!("{template}/spec/{}/{}", self.list, self.index)
    }
}

/// Chooses the containers that the annotation names; else the one called `ascend`; else those that were injected before, since
/// another webhook may have added a container; else those that request NPUs; else the only one, unless `lacks_npus`: then only other templates of the job request NPUs. Ordinary init containers are never chosen, native sidecars only by name.
pub fn choose<'o, 'a>(
    spec: &'o PodSpec<'a>,
    options: &Options<'_>,
    lacks_npus: bool,
    injected: &Record,
    warnings: &mut Vec<Warning>,
) -> Vec<Chosen<'o, 'a>> {
    let containers = spec.containers.items();
    warn_unknown(spec, SKIP_PRELOAD, &options.skip_preload, warnings);
    if let Some(names) = &options.containers {
        warn_unknown(spec, CONTAINERS, names, warnings);
        return named(spec, names, warnings);
    }
    let by = |chosen: &dyn Fn(&Container<'a>) -> bool| -> Vec<Chosen<'o, 'a>> {
        in_list("containers", containers).filter(|candidate| chosen(candidate.container)).collect()
    };
    let ascend = by(&|container| container.name() == DEFAULT_CONTAINER);
    if !ascend.is_empty() {
        return ascend;
    }
    let before = by(&|container| injected.containers.contains_key(container.name()));
    if !before.is_empty() {
        return before;
    }
    let npu = by(&Container::requests_npu);
    if !npu.is_empty() {
        return npu;
    }
    if lacks_npus {
        return Vec::new();
    }
    if containers.len() == 1 {
        return by(&|_| true);
    }
    let names: Vec<_> = containers.iter().map(Container::name).collect();
    warnings.push(Warning {
        reason: Reason::NoContainerChosen,
        message: format!(
            "nothing was added: no container is called {DEFAULT_CONTAINER:?} or requests huawei.com/*; \
             name the training container in the annotation {CONTAINERS} (containers: {})",
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
    for candidate in all.filter(|candidate| names.contains(candidate.container.name())) {
        if candidate.list == "initContainers" && !candidate.container.is_sidecar() {
            warnings.push(Warning {
                reason: Reason::InitContainer,
                message: format!(
                    "annotation {CONTAINERS}: {:?} is an ordinary init container and is left unchanged",
                    candidate.container.name()
                ),
            });
        } else {
            chosen.push(candidate);
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

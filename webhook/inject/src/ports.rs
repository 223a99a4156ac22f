//! Declares the ports of one container.

use std::collections::HashSet;

use serde::Serialize;
use swansong_api::record::ContainerRecord;

use super::context::ContainerContext;
use super::original::append;
use super::report::Action;
use super::view::{Container, PodSpec};
use crate::policy::NamedPort;
use crate::reason::Reason;

/// The pod's network, as far as it affects ports.
pub(super) struct Network {
    host: bool,
    rank_zero: bool,
    /// Number of pods of the template.
    pods: i64,
    /// TCP ports of all containers, which under hostNetwork become ports of the node.
    declared: HashSet<i64>,
    warned: bool,
}

impl Network {
    pub(super) fn of(spec: &PodSpec<'_>, rank_zero: bool, pods: i64) -> Self {
        let host = spec.host_network.present() == Some(&true);
        let mut declared = HashSet::new();
        if host {
            for container in spec.containers.items().iter().chain(spec.init_containers.items()) {
                let tcp = container.ports.items().iter().filter(|port| port.is_tcp_protocol());
                declared.extend(tcp.filter_map(|port| port.container_port.present()));
            }
        }
        Self { host, rank_zero, pods, declared, warned: false }
    }
}

#[derive(Serialize)]
struct NewPort<'p> {
    #[serde(rename = "containerPort")]
    container_port: u16,
    name: &'p str,
    protocol: &'static str,
}

impl<'p> NewPort<'p> {
    fn of(port: &'p NamedPort) -> Self {
        Self { container_port: port.port, name: &port.name, protocol: "TCP" }
    }
}

/// Declares those of the `wanted` ports that the container lacks and may have.
pub(super) fn inject(
    context: &mut ContainerContext<'_>,
    container: &Container<'_>,
    wanted: &[NamedPort; 2],
    network: &mut Network,
    path: &str,
    record: &mut ContainerRecord,
) {
    let mut additions: Vec<&NamedPort> = Vec::new();
    for port in wanted {
        let twin = additions.iter().find(|added| added.port == port.port).map(|added| added.name.as_str());
        if may_add(context, container, port, twin, network) {
            additions.push(port);
        }
    }
    record.ports.extend(additions.iter().map(ToString::to_string));
    let additions: Vec<_> = additions.into_iter().map(NewPort::of).collect();
    let created = (&mut record.absent, &mut record.null);
    append(context.operations, path, "ports", &container.ports, &additions, created);
}

/// Whether to add `port`; otherwise records why not. `twin` is the name under which the same number is being added.
fn may_add(
    context: &mut ContainerContext<'_>,
    container: &Container<'_>,
    port: &NamedPort,
    twin: Option<&str>,
    network: &mut Network,
) -> bool {
    let NamedPort { name, port: number } = port;
    let field = format!("ports.{number}");
    let present = container.ports.items().iter().find(|present| present.is_tcp(*number));
    let present_name = present.map(|present| present.name.present().map_or("", |name| name)).or(twin);
    if let Some(present_name) = present_name {
        let same = present_name == name;
        let reason = if same { Reason::AlreadyPresent } else { Reason::PortNameDiffers };
        context.record_action(Action::kept(
            field,
            Some(format!("{number}/TCP {present_name}").trim_end().to_owned()),
            reason,
        ));
        if present_name.is_empty() {
            context.warn(
                Reason::PortNameDiffers,
                &format!(
                    "port {number} has no name, and ascend-operator's Service for rank 0 carries named ports only: \
                     rename it to {name:?}"
                ),
            );
        } else if !same {
            context.warn(
                Reason::PortNameDiffers,
                &format!(
                    "port {number} has the name {present_name:?}, not {name:?}; check that it is the port of the checkpoint \
                     and not of another server"
                ),
            );
        }
        return false;
    }
    if let Some(holder) = container
        .ports
        .items()
        .iter()
        .find(|present| present.name.present().is_some_and(|present| **present == **name))
    {
        let held = holder.container_port.present().copied().unwrap_or_default();
        context.record_action(Action::skipped(field, Reason::PortNameTaken));
        context.warn(
            Reason::PortNameTaken,
            &format!(
                "port {number} wasn't added, since the name {name:?} belongs to port {held}; rename that one"
            ),
        );
        return false;
    }
    if network.host && !network.rank_zero {
        context.record_action(Action::skipped(field, Reason::HostNetworkNotRankZero));
        if !network.warned {
            network.warned = true;
            context.warn(
                Reason::HostNetworkNotRankZero,
                "under hostNetwork the ports are declared for rank 0 only: they become ports of the node, \
                 and the other ranks don't listen on them",
            );
        }
        return false;
    }
    if network.host && network.declared.contains(&i64::from(*number)) {
        context.record_action(Action::skipped(field, Reason::HostNetworkPortTaken));
        context.warn(
            Reason::HostNetworkPortTaken,
            &format!("port {number} wasn't added: under hostNetwork another container of the pod uses this port of the node"),
        );
        return false;
    }
    if network.host && network.pods > 1 && !network.warned {
        network.warned = true;
        context.warn(
            Reason::HostNetworkSeveralPods,
            &format!(
                "this template has {} pods, and under hostNetwork only one of them can use the port of a node: \
                 no two of them can share a node",
                network.pods
            ),
        );
    }
    network.declared.insert(i64::from(*number));
    context.record_action(Action::added(field, port.to_string()));
    true
}

//! Whether every link of the chain holds, judged by what the API server stored and what the containers logged.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt;
use swansong_api::strategy::Strategies;
use swansong_clusterd::reset_config::{State, state};
use swansong_inject::policy::{LIBMSPTI, LIBTASKD};

use crate::training_log::TrainingLog;

/// Ports that other ranks need on rank 0, with their names.
const PORTS: [(&str, u16); 2] = [("ttp-port", 8000), ("taskd-port", 9601)];

/// A pod of the job and what its training process reported.
#[derive(Clone, Debug)]
pub struct Rank {
    /// The pod as it is stored.
    pub pod: Pod,
    /// What its container printed.
    pub log: String,
    /// The facts in that.
    pub report: TrainingLog,
}

/// One link of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub claim: String,
    /// What shows it, or what is there instead.
    pub evidence: Result<String, String>,
}

impl Link {
    fn new(claim: impl Into<String>, evidence: Result<String, String>) -> Self {
        Self { claim: claim.into(), evidence }
    }

    /// Whether it holds.
    pub fn holds(&self) -> bool {
        self.evidence.is_ok()
    }
}

/// All links that can be seen without NPUs, in the order in which they are needed.
pub fn links(ranks: &[Rank], service: &Service) -> Vec<Link> {
    let mut links: Vec<_> = ranks.iter().flat_map(of_process).collect();
    links.extend(PORTS.iter().map(|(name, port)| service_port(service, name, *port)));
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    let zero = ranks.iter().find(|rank| rank.report.rank == Some(0));
    for rank in ranks.iter().filter(|rank| rank.report.rank != Some(0)) {
        links.extend(PORTS.iter().map(|(_, port)| reached(rank, zero, address, *port)));
    }
    if zero.is_none() || ranks.iter().any(|rank| rank.report.ranks as usize != ranks.len()) {
        let numbers: Vec<_> = ranks.iter().map(|rank| rank.report.rank).collect();
        links.push(Link::new("every rank runs", Err(format!("seen: {numbers:?}"))));
    }
    links
}

/// The link without which ClusterD ends ranks and saves nothing.
pub fn reset_config(config_map: &ConfigMap, job_uid: &str) -> Link {
    let claim = format!("ConfigMap {} is there for ClusterD, and goes with the job", config_map.name_any());
    let owned = config_map.owner_references().iter().any(|owner| owner.uid == job_uid);
    let evidence = match state(config_map.data.as_ref()) {
        State::Usable if owned => Ok("it can be used, and the job owns it".to_owned()),
        State::Usable => Err("the job doesn't own it".to_owned()),
        other => Err(format!("{other:?}")),
    };
    Link::new(claim, evidence)
}

/// The links that one process sees for itself.
fn of_process(rank: &Rank) -> Vec<Link> {
    let name = rank.pod.name_any();
    let mut links = Vec::new();
    for path in [LIBMSPTI, LIBTASKD] {
        let library = path.rsplit_once('/').map_or(path, |(_, library)| library);
        let evidence = match rank.report.mapped.iter().find(|mapped| mapped.as_str() == path) {
            Some(mapped) => Ok(mapped.clone()),
            None => Err(format!("mapped are {:?}", rank.report.mapped)),
        };
        links.push(Link::new(format!("{name}: {library} is mapped into the training process"), evidence));
    }
    let pod_ip = rank.pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or("unknown");
    for (variable, expected) in [("TTP_PORT", "8000"), ("POD_IP", pod_ip), ("TASKD_PROCESS_ENABLE", "on")] {
        let found = rank.report.env.get(variable);
        let evidence = match found {
            Some(value) if value == expected => Ok(value.clone()),
            other => Err(format!("it is {other:?}, not {expected:?}")),
        };
        links.push(Link::new(format!("{name}: {variable} is set"), evidence));
    }
    links.push(Link::new(format!("{name}: the operator announces the dump"), announced(&rank.report)));
    links
}

/// The operator's own variable, which shows that it understood the strategy.
fn announced(report: &TrainingLog) -> Result<String, String> {
    let pytorch = report.env.get("HIGH_AVAILABILITY");
    if let Some(list) = pytorch.filter(|list| Strategies::parse(list).tokens().contains(&"dump")) {
        return Ok(format!("HIGH_AVAILABILITY={list}"));
    }
    let mindspore = report.env.get("MS_ENABLE_TFT");
    match mindspore.filter(|list| list.trim_matches(['{', '}']).split(',').any(|ability| ability == "TTP:1"))
    {
        Some(list) => Ok(format!("MS_ENABLE_TFT={list}")),
        None => Err(format!("HIGH_AVAILABILITY is {pytorch:?}, MS_ENABLE_TFT is {mindspore:?}")),
    }
}

fn service_port(service: &Service, name: &str, port: u16) -> Link {
    let claim = format!("Service {} has {name}", service.name_any());
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let found = ports.iter().find(|found| found.port == i32::from(port));
    let evidence = match found {
        Some(found) if found.name.as_deref() == Some(name) => Ok(format!("{port}")),
        Some(found) => Err(format!("{port} is called {:?}", found.name)),
        None => Err(format!("its ports are {:?}", ports.iter().map(|port| port.port).collect::<Vec<_>>())),
    };
    Link::new(claim, evidence)
}

/// Both ends have to say so, which also shows that the Service led to rank 0.
fn reached(rank: &Rank, zero: Option<&Rank>, address: &str, port: u16) -> Link {
    let claim = format!("{}: reaches rank 0 on {port} through the Service", rank.pod.name_any());
    let there = rank.report.reached.contains(&(address.to_owned(), port));
    let number = rank.report.rank.unwrap_or_default();
    let here = zero.is_some_and(|zero| zero.report.accepted.contains(&(number, port)));
    let evidence = match (there, here) {
        (true, true) => Ok(format!("{address}:{port}")),
        (true, false) => Err(format!("{address}:{port} answered, but it wasn't rank 0")),
        (false, _) => Err(format!("{address}:{port} didn't answer")),
    };
    Link::new(claim, evidence)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rank(number: u32, lines: &[&str]) -> Rank {
        let role = if number == 0 { "master" } else { "worker" };
        let pod = json!({
            "metadata": { "name": format!("job-{role}-0") },
            "status": { "podIP": format!("10.1.0.{number}") },
        });
        let mut facts = vec![format!("rank {number} of 2"), format!("env POD_IP=10.1.0.{number}")];
        facts.extend([LIBMSPTI, LIBTASKD].map(|path| format!("mapped {path}")));
        let common = ["env TTP_PORT=8000", "env TASKD_PROCESS_ENABLE=on", "env HIGH_AVAILABILITY=dump"];
        facts.extend(common.iter().chain(lines).map(|&fact| fact.to_owned()));
        let log: Vec<_> = facts.iter().map(|fact| format!("swansong-demo: {fact}")).collect();
        let log = log.join("\n");
        Rank { pod: serde_json::from_value(pod).unwrap(), report: TrainingLog::read(&log), log }
    }

    fn service(ports: &[(&str, u16)]) -> Service {
        let ports: Vec<_> = ports.iter().map(|(name, port)| json!({ "name": name, "port": port })).collect();
        let service = json!({
            "metadata": { "name": "job-master-0" },
            "spec": { "clusterIP": "10.0.0.7", "ports": ports },
        });
        serde_json::from_value(service).unwrap()
    }

    fn broken(ranks: &[Rank], service: &Service) -> Vec<String> {
        links(ranks, service).into_iter().filter(|link| !link.holds()).map(|link| link.claim).collect()
    }

    fn zero() -> Rank {
        rank(0, &["accepted rank 1 on 8000", "accepted rank 1 on 9601"])
    }

    fn one() -> Rank {
        rank(1, &["reached 10.0.0.7:8000 ttp-port", "reached 10.0.0.7:9601 taskd-port"])
    }

    #[test]
    fn a_whole_chain_holds() {
        let ranks = [zero(), one()];
        assert_eq!(broken(&ranks, &service(&PORTS)), Vec::<String>::new());
        assert_eq!(links(&ranks, &service(&PORTS)).len(), 2 * 6 + 2 + 2);
    }

    #[test]
    fn each_missing_piece_breaks_its_own_link() {
        let mut bare = one();
        bare.report.mapped.clear();
        bare.report.env.remove("POD_IP");
        assert_eq!(
            broken(&[zero(), bare], &service(&PORTS)),
            [
                "job-worker-0: libmspti.so is mapped into the training process",
                "job-worker-0: libtaskd.so is mapped into the training process",
                "job-worker-0: POD_IP is set",
            ]
        );
        let unannounced = {
            let mut one = one();
            one.report.env.insert("HIGH_AVAILABILITY".to_owned(), "recover".to_owned());
            one
        };
        assert_eq!(
            broken(&[zero(), unannounced], &service(&PORTS)),
            ["job-worker-0: the operator announces the dump"]
        );
    }

    #[test]
    fn ports_count_only_where_others_find_them() {
        let ranks = [zero(), one()];
        let claim = "Service job-master-0 has taskd-port";
        assert_eq!(broken(&ranks, &service(&PORTS[..1])), [claim]);
        assert_eq!(broken(&ranks, &service(&[PORTS[0], ("other", 9601)])), [claim]);
    }

    #[test]
    fn an_answer_from_another_process_is_ignored() {
        let deaf = rank(0, &["accepted rank 1 on 8000"]);
        assert_eq!(
            broken(&[deaf, one()], &service(&PORTS)),
            ["job-worker-0: reaches rank 0 on 9601 through the Service"]
        );
    }

    #[test]
    fn a_config_map_counts_if_clusterd_can_use_it_and_the_job_owns_it() {
        let holds = |data: &str, uid: &str| {
            let owner = json!({ "apiVersion": "v1", "kind": "AscendJob", "name": "j", "uid": uid });
            let found = json!({
                "metadata": { "name": "reset-config-j", "ownerReferences": [owner] }, "data": { "reset.json": data },
            });
            reset_config(&serde_json::from_value(found).unwrap(), "u").holds()
        };
        assert!(holds("{}", "u"));
        assert!(!holds("{}", "v") && !holds("", "u"));
    }

    #[test]
    fn a_rank_that_never_ran_is_missed() {
        assert_eq!(broken(&[zero()], &service(&PORTS)), ["every rank runs"]);
    }
}

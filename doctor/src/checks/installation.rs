//! Swansong's own objects.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;

use super::certificate;
use super::finding::{Check, Checks, Judged, Verdict, known, required};
use super::link::Link;
use crate::snapshot::{Installation, Replica, Seen, Snapshot, ready_endpoints};

/// The webhooks of the configuration, without their domain.
const WEBHOOKS: [&str; 3] = ["ascendjobs", "pods", "volcanojobs"];
const CONFIGURATION: &str = "the MutatingWebhookConfiguration swansong";
/// The policies of webhook, reset-config controller and agent.
const POLICIES: [&str; 4] =
    ["swansong-agent-events", "swansong-agent-nodes", "swansong-reset-config", "swansong-webhook"];

pub(super) fn check(installation: &Installation, snapshot: &Snapshot) -> Vec<Check> {
    let mut checks = Checks::default();
    checks.add(Link::WebhookConfiguration, configuration(installation));
    checks.add(Link::WebhookReplicas, replicas(installation));
    checks.add(Link::WebhookEndpoints, endpoints(installation));
    checks.add(Link::WebhookReachable, reachable(installation));
    match required(&installation.replicas, "the webhook's Pods") {
        Ok(replicas) if replicas.is_empty() => {
            for link in [Link::CaBundle, Link::Certificate] {
                checks.add(link, Verdict::unknown("no replica of the webhook runs that could be asked"));
            }
        }
        Ok(replicas) => {
            let each = |judge: &dyn Fn(&Replica) -> Judged| -> Vec<(&str, Judged)> {
                replicas.iter().map(|replica| (replica.name.as_str(), judge(replica))).collect()
            };
            checks.add_all(Link::CaBundle, "replicas", each(&|replica| trust(installation, replica)));
            let dates = |replica: &Replica| certificate::dates(served(replica)?, snapshot.taken_at);
            checks.add_all(Link::Certificate, "replicas", each(&dates));
        }
        Err(unknown) => {
            for link in [Link::CaBundle, Link::Certificate] {
                checks.add(link, unknown.clone());
            }
        }
    }
    checks.add(Link::AdmissionPolicies, policies(installation));
    checks.add(Link::Agents, agents(installation));
    checks.add(Link::Versions, versions(installation, snapshot));
    checks.all
}

fn configuration(installation: &Installation) -> Judged {
    let found = required(&installation.configuration, CONFIGURATION)?;
    let names = found.webhooks.iter().flatten().map(|webhook| webhook.name.as_str());
    let names: BTreeSet<&str> = names.filter_map(|name| name.strip_suffix(".swansong.dev")).collect();
    let missing: Vec<&str> = WEBHOOKS.into_iter().filter(|name| !names.contains(name)).collect();
    Ok(if missing.is_empty() {
        Verdict::pass("it calls the webhook for AscendJobs, Volcano Jobs and Pods")
    } else {
        Verdict::fail(format!("{CONFIGURATION} calls no webhook for {}", missing.join(", ")))
    })
}

fn available(deployment: &Deployment) -> i32 {
    deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn replicas(installation: &Installation) -> Judged {
    let found = required(&installation.deployment, "the Deployment swansong-webhook")?;
    let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = available(found);
    let seen = format!("{available} of {wanted} replicas are available");
    Ok(match available {
        0 => Verdict::fail(seen),
        _ if available < wanted => Verdict::warn(seen),
        1 => Verdict::warn("the webhook has one replica, so jobs pass it by while that restarts"),
        _ => Verdict::pass(seen),
    })
}

fn endpoints(installation: &Installation) -> Judged {
    let slices = required(&installation.endpoints, "the endpoints of the Service swansong-webhook")?;
    let ready = ready_endpoints(slices);
    // That no replica is available is another check's.
    let has_replica = match known(&installation.deployment, "the Deployment") {
        Ok(deployment) => deployment.is_some_and(|deployment| available(deployment) > 0),
        Err(_) => true,
    };
    if ready == 0 && !has_replica {
        return Err(Verdict::unknown("no replica of the webhook is available"));
    }
    Ok(Verdict::of(ready > 0, format!("the Service swansong-webhook has {ready} ready endpoints")))
}

fn reachable(installation: &Installation) -> Judged {
    Ok(match &installation.service_answer {
        Seen::Read(404) => {
            Verdict::unknown("the API server finds no such Service, or no such path behind it")
        }
        Seen::Read(_) => Verdict::pass("the API server reached it through its Service"),
        Seen::Failed(_)
            if installation.endpoints.read().is_some_and(|slices| ready_endpoints(slices) == 0) =>
        {
            Verdict::unknown("its Service has no ready endpoint")
        }
        Seen::Failed(message) => Verdict::fail(format!("the API server doesn't reach it: {message}")),
        Seen::Forbidden(message) => Verdict::unknown(format!("its Service may not be asked: {message}")),
        Seen::Absent | Seen::NotAsked => Verdict::unknown("its Service wasn't asked"),
    })
}

fn served(replica: &Replica) -> Result<&str, Verdict> {
    match known(&replica.certificate, "the served certificate")? {
        Some(chain) => Ok(chain),
        None => Err(Verdict::unknown("the replica is of a version that doesn't show its certificate")),
    }
}

fn trust(installation: &Installation, replica: &Replica) -> Judged {
    // That there is none is another check's.
    let found = required(&installation.configuration, CONFIGURATION)
        .map_err(|verdict| Verdict::unknown(verdict.seen))?;
    let name = server_name(found)?;
    let chain = served(replica)?;
    let bundles: Vec<Option<&[u8]>> = found
        .webhooks
        .iter()
        .flatten()
        .map(|webhook| webhook.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()))
        .collect();
    let mut verdict = Err(Verdict::fail("the configuration has no webhook"));
    for bundle in bundles {
        let Some(bundle) = bundle.filter(|bundle| !bundle.is_empty()) else {
            return Err(Verdict::fail("the caBundle is empty"));
        };
        verdict = certificate::trust(bundle, chain, &name);
        if verdict.is_err() {
            break;
        }
    }
    verdict
}

/// The name by which API servers call the webhook.
fn server_name(configuration: &MutatingWebhookConfiguration) -> Result<String, Verdict> {
    let mut services =
        configuration.webhooks.iter().flatten().filter_map(|webhook| webhook.client_config.service.as_ref());
    let service = services.next();
    let name = service.map(|service| format!("{}.{}.svc", service.name, service.namespace));
    name.ok_or_else(|| Verdict::unknown("the configuration names a URL instead of a Service"))
}

fn policies(installation: &Installation) -> Judged {
    let found = known(&installation.policies, "the bindings of admission policies")?;
    let Some(found) = found else {
        return Ok(Verdict::warn("this cluster has no ValidatingAdmissionPolicies"));
    };
    let missing: Vec<&str> =
        POLICIES.into_iter().filter(|policy| !found.iter().any(|name| name == policy)).collect();
    Ok(if missing.is_empty() {
        Verdict::pass(format!("{} policies are bound", found.len()))
    } else {
        Verdict::warn(format!("not bound: {}", missing.join(", ")))
    })
}

fn agents(installation: &Installation) -> Judged {
    let Some(found) = known(&installation.agents, "the DaemonSet swansong-agent")? else {
        return Ok(Verdict::warn(
            "the agent isn't installed, so that nothing is seen of nodes and processes",
        ));
    };
    let status = found.status.as_ref();
    let (wanted, ready) =
        status.map_or((0, 0), |status| (status.desired_number_scheduled, status.number_ready));
    let seen = format!("{ready} of {wanted} agents are ready");
    Ok(if wanted == 0 {
        Verdict::warn("no node has the label by which agents are placed (accelerator)")
    } else if ready < wanted {
        Verdict::warn(seen)
    } else {
        Verdict::pass(seen)
    })
}

fn versions(installation: &Installation, snapshot: &Snapshot) -> Judged {
    let mut versions = BTreeSet::new();
    for replica in required(&installation.replicas, "the webhook's Pods")? {
        let version = known(&replica.version, "the metrics of a replica of the webhook")?;
        versions.insert(version.and_then(Option::as_deref).unwrap_or("unknown"));
    }
    let agents = snapshot.nodes.iter().filter_map(|node| node.status.read());
    versions.extend(agents.map(|status| status.version.as_str()));
    let all = versions.iter().copied().collect::<Vec<_>>().join(", ");
    Ok(match versions.len() {
        0 => Verdict::unknown("nothing runs that could be asked"),
        1 if all != "unknown" => Verdict::pass(all),
        1 => Verdict::unknown("the metrics name no version"),
        _ => Verdict::warn(format!("several versions run: {all}")),
    })
}

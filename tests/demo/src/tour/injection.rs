//! The acts of the injection: what the API server stores of a job, and what its processes see.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swansong_testcluster::Cluster;

use super::NAMESPACE;
use crate::proof::{Link, links, reset_config};
use crate::screen::{Screen, Tone};
use crate::{JOB, evidence, operator, view};

/// Shows the injection, and returns whether every link of the chain holds.
pub(super) async fn show(screen: &Screen, cluster: &Cluster, folder: &Path) -> Result<bool> {
    let before: Value = serde_saphyr::from_str(JOB).context("read tests/demo/job.yaml")?;
    let name = before["metadata"]["name"].as_str().context("tests/demo/job.yaml names no job")?;
    let after = create(cluster, folder, name).await?;

    screen.act("Act 1: what the API server stores of a job that says recover-strategy: \"dump\"");
    screen.line("  kubectl create -f tests/demo/job.yaml");
    show_changes(screen, &before, &after)?;

    let client = cluster.client().await?;
    let ranks = evidence::ranks(&client, NAMESPACE, name, pods_of(&after)).await?;
    let service = evidence::service(&client, NAMESPACE, name).await?;
    let mut links = links(&ranks, &service);
    let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
    links.push(reset_config(&evidence::reset_config(&client, NAMESPACE, name).await?, uid));

    screen.act("Act 2: what its training processes see, from their own logs");
    screen.step("A stand-in for ascend-operator made a Service and two Pods of the job");
    screen.block(&cluster.kubectl(&["get", "pods,services", "--selector=job-name=llama"]).await?);
    Ok(judge(screen, &links))
}

/// Creates the job with kubectl, and returns it as it is stored.
async fn create(cluster: &Cluster, folder: &Path, name: &str) -> Result<Value> {
    let file = folder.join("job.yaml");
    std::fs::write(&file, JOB).context("write the job")?;
    let create = ["create", "--filename"].map(Path::new);
    cluster.kubectl(&[&create[..], &[&file]].concat()).await?;
    let stored = operator::ascend_jobs(cluster.client().await?, NAMESPACE).get(name).await?;
    serde_json::to_value(stored).context("read the stored job")
}

/// Shows what changed. Where workers get the same as rank 0, they are folded.
fn show_changes(screen: &Screen, before: &Value, after: &Value) -> Result<()> {
    let worker = |job: &Value| job["spec"]["replicaSpecs"]["Worker"].clone();
    let is_same = worker(after) == after["spec"]["replicaSpecs"]["Master"];
    let (mut before, mut after) = (before.clone(), after.clone());
    if is_same && worker(&before) == before["spec"]["replicaSpecs"]["Master"] {
        for job in [&mut before, &mut after] {
            job["spec"]["replicaSpecs"]["Worker"] = json!("…");
        }
    }
    view::diff(screen, &view::yaml(&before)?, &view::yaml(&after)?);
    if is_same {
        screen.line("  Worker got the same as Master.");
    }
    Ok(())
}

fn pods_of(job: &Value) -> usize {
    let replicas = job["spec"]["replicaSpecs"].as_object().into_iter().flatten();
    replicas.filter_map(|(_, replica)| usize::try_from(replica["replicas"].as_u64()?).ok()).sum()
}

/// Prints every link and returns whether all hold.
fn judge(screen: &Screen, links: &[Link]) -> bool {
    for link in links {
        match &link.evidence {
            Ok(evidence) => screen.tinted(Tone::Good, format_args!("  ✔ {} ({evidence})", link.claim)),
            Err(instead) => screen.tinted(Tone::Bad, format_args!("  ✘ {}: {instead}", link.claim)),
        }
    }
    let broken = links.iter().filter(|link| !link.holds()).count();
    if broken == 0 {
        let all = format!("One annotation, and all {} checks that need no NPU pass.", links.len());
        screen.tinted(Tone::Heading, all);
    } else {
        screen.tinted(Tone::Bad, format_args!("{broken} of {} checks fail.", links.len()));
    }
    broken == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(evidence: Result<&str, &str>) -> Link {
        Link { claim: "it holds".to_owned(), evidence: evidence.map(str::to_owned).map_err(str::to_owned) }
    }

    #[test]
    fn one_broken_link_breaks_the_chain() {
        let screen = Screen::new(std::io::sink());
        assert!(judge(&screen, &[link(Ok("seen")), link(Ok("seen"))]));
        assert!(!judge(&screen, &[link(Ok("seen")), link(Err("it doesn't"))]));
    }
}

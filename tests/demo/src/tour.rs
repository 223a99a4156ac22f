//! The demo itself, step by step.

use std::path::PathBuf;

use anyhow::{Context, Result};
use kube::{Client, ResourceExt};
use serde_json::Value;
use swansong_demo::proof::{Link, links, reset_config};
use swansong_demo::{JOB, definitions, evidence, install, operator, training_image};
use swansong_testcluster::{Cluster, Tier};
use tokio::task::JoinSet;

use crate::screen::{Screen, Tone, failure};
use crate::view;

const NAMESPACE: &str = "default";

/// What is to be shown, and how.
pub(crate) struct Tour {
    pub(crate) swansong: PathBuf,
    pub(crate) definitions: PathBuf,
    /// Whether the cluster is kept afterwards, until the demo is interrupted.
    pub(crate) keep: bool,
}

impl Tour {
    /// Runs the demo until its end or until `interrupted`, and cleans up. Returns whether every link of the chain held.
    pub(crate) async fn run(&self, interrupted: impl Future<Output = ()>) -> Result<bool> {
        let screen = Screen::new();
        tokio::pin!(interrupted);
        screen.step("Starting Kubernetes: etcd, API server, controllers, a node with 8 Ascend 910s on paper");
        let cluster = tokio::select! {
            cluster = Cluster::start(Tier::Node) => cluster?,
            () = &mut interrupted => anyhow::bail!("interrupted"),
        };
        // People's own jobs get pods, too, as long as the cluster is there.
        let mut operator = JoinSet::new();
        let shown = tokio::select! {
            shown = self.show(&screen, &cluster, &mut operator) => shown,
            () = &mut interrupted => Err(anyhow::anyhow!("interrupted")),
        };
        if self.keep && shown.is_ok() {
            invite(&screen, &cluster);
            interrupted.await;
        }
        screen.step("Cleaning up");
        operator.shutdown().await;
        cluster.stop().await?;
        shown
    }

    async fn show(&self, screen: &Screen, cluster: &Cluster, operator: &mut JoinSet<()>) -> Result<bool> {
        let folder = tempfile::tempdir().context("make a temporary folder")?;
        let client = cluster.client().await?;

        screen.step("Making and loading two images: Swansong, and a training image with stand-in libraries");
        install::load_image(cluster, &self.swansong, folder.path()).await?;
        cluster.load_image(&training_image::build(folder.path())?).await?;
        screen.line(format_args!("    {}, {}", install::IMAGE, training_image::NAME));

        screen.step("Installing the AscendJob definition and Swansong's manifests");
        definitions::apply(cluster, &self.definitions).await?;
        install::install(cluster).await?;
        screen.block(&cluster.kubectl(&["--namespace=swansong-system", "get", "deployments,pods"]).await?);

        screen.step("The job as its owner wrote it: tests/demo/job.yaml");
        screen.block(JOB);
        let before: Value = serde_saphyr::from_str(JOB).context("read tests/demo/job.yaml")?;
        let name =
            before["metadata"]["name"].as_str().context("tests/demo/job.yaml names no job")?.to_owned();

        screen.step("kubectl create -f tests/demo/job.yaml, and what the API server stored");
        let file = folder.path().join("job.yaml");
        std::fs::write(&file, JOB).context("write the job")?;
        let create = ["create", "--filename"].map(std::path::Path::new);
        cluster.kubectl(&[&create[..], &[&file]].concat()).await?;
        let stored = operator::ascend_jobs(client.clone(), NAMESPACE).get(&name).await?;
        let after = serde_json::to_value(stored).context("read the stored job")?;
        view::diff(screen, &view::yaml(&before)?, &view::yaml(&after)?);

        screen.step("A stand-in for ascend-operator makes the Service and the Pods; they start");
        operator.spawn(operate(client.clone()));
        let ranks = evidence::ranks(&client, NAMESPACE, &name, pods_of(&after)).await?;
        let service = evidence::service(&client, NAMESPACE, &name).await?;
        for rank in &ranks {
            screen.line("");
            screen.line(format_args!("  {}, container {}:", rank.pod.name_any(), operator::CONTAINER));
            view::container(screen, &rank.pod);
        }
        screen.line("");
        screen.block(&cluster.kubectl(&["get", "services"]).await?);
        screen.line("");
        screen.block(&cluster.kubectl(&["get", "pods", "--output=wide"]).await?);

        screen.step("The proof: what the training processes themselves say");
        for rank in &ranks {
            screen.line(format_args!("  kubectl logs {}", rank.pod.name_any()));
            screen.block(&rank.log);
            screen.line("");
        }
        let mut links = links(&ranks, &service);
        let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
        links.push(reset_config(&evidence::reset_config(&client, NAMESPACE, &name).await?, uid));
        Ok(judge(screen, &links))
    }
}

async fn operate(client: Client) {
    let result = operator::run(client, NAMESPACE, |refused| failure(&refused.to_string())).await;
    if let Err(error) = result {
        failure(&error.to_string());
    }
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
    screen.line("");
    if broken == 0 {
        let all = format!("One annotation, and all {} checks that need no NPU pass.", links.len());
        screen.tinted(Tone::Heading, all);
    } else {
        screen.tinted(Tone::Bad, format_args!("{broken} of {} checks fail.", links.len()));
    }
    broken == 0
}

fn invite(screen: &Screen, cluster: &Cluster) {
    let info = cluster.info();
    let kubectl = info.kubectl.display();
    screen.step(&format!("The cluster is yours at {}. From another terminal:", info.api_url));
    screen.block(&format!(
        "export KUBECONFIG={}\n\
         alias kubectl={kubectl}\n\
         kubectl logs llama-master-0\n\
         kubectl get ascendjob llama -o yaml\n\
         kubectl get pod llama-worker-0 -o jsonpath='{{.metadata.annotations.swansong\\.dev/injected}}'\n\
         kubectl -n swansong-system logs deployment/swansong-webhook\n\
         kubectl create --dry-run=server -o yaml -f YOUR-JOB.yaml  # 4 NPUs are left to run one",
        cluster.kubeconfig().display(),
    ));
    screen.line("");
    screen.tinted(Tone::Heading, "Ctrl-C ends it and leaves nothing behind.");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(evidence: Result<&str, &str>) -> Link {
        Link { claim: "it holds".to_owned(), evidence: evidence.map(str::to_owned).map_err(str::to_owned) }
    }

    #[test]
    fn one_broken_link_breaks_the_chain() {
        let screen = Screen::new();
        assert!(judge(&screen, &[link(Ok("seen")), link(Ok("seen"))]));
        assert!(!judge(&screen, &[link(Ok("seen")), link(Err("it doesn't"))]));
    }
}

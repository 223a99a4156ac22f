//! The demo itself: acts of one screen each.

mod fault;
mod injection;
mod timeline;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use swansong_testcluster::{Cluster, Tier};
use tokio::task::JoinSet;

use crate::screen::{Screen, Tone, failure};
use crate::{definitions, install, operator, training_image};

const NAMESPACE: &str = "default";

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Length {
    /// The injection only.
    Quick,
    /// Also a fault of a device, with and without Swansong.
    Full,
}

/// What is to be shown, and how.
pub struct Tour {
    /// The program `swansong` to put into the image.
    pub swansong: PathBuf,
    pub definitions: PathBuf,
    /// Whether the cluster is kept afterwards, until the demo is interrupted.
    pub keep: bool,
    pub length: Length,
    /// Times of the fakes in parts of those measured on the real programs.
    pub time_factor: f32,
}

impl Tour {
    /// Runs the demo until its end or until `interrupted`, and cleans up. Returns whether everything was as it should be.
    pub async fn run(&self, screen: &Screen, interrupted: impl Future<Output = ()>) -> Result<bool> {
        tokio::pin!(interrupted);
        screen.step("Starting Kubernetes: etcd, API server, controllers, a node with 8 Ascend 910s on paper");
        let cluster = tokio::select! {
            cluster = Cluster::start(Tier::Node) => cluster?,
            () = &mut interrupted => anyhow::bail!("interrupted"),
        };
        // People's own jobs get pods, too, as long as the cluster is there.
        let mut operator = JoinSet::new();
        let shown = tokio::select! {
            shown = self.show(screen, &cluster, &mut operator) => shown,
            () = &mut interrupted => Err(anyhow::anyhow!("interrupted")),
        };
        if self.keep && shown.is_ok() {
            invite(screen, &cluster);
            interrupted.await;
        }
        screen.step("Cleaning up");
        operator.shutdown().await;
        cluster.stop().await?;
        shown
    }

    async fn show(&self, screen: &Screen, cluster: &Cluster, operator: &mut JoinSet<()>) -> Result<bool> {
        let folder = tempfile::tempdir().context("make a temporary folder")?;
        screen.step("Loading the images; installing the AscendJob definition and Swansong by its manifests");
        tokio::try_join!(self.load_images(cluster, folder.path()), async {
            definitions::apply(cluster, &self.definitions).await.map_err(Into::into)
        })?;
        install::install(cluster).await?;
        screen.block(&cluster.kubectl(&["--namespace=swansong-system", "get", "deployments,pods"]).await?);
        operator.spawn(operate(cluster.client().await?));

        let injection = injection::show(screen, cluster, folder.path());
        if self.length == Length::Quick {
            return injection.await;
        }
        // Meanwhile, the jobs that will be hit start to train.
        let stage = fault::Stage::set(cluster, folder.path(), self.time_factor);
        let (injected, stage) = tokio::try_join!(injection, stage)?;
        Ok(stage.play(screen).await? && injected)
    }

    async fn load_images(&self, cluster: &Cluster, folder: &Path) -> Result<()> {
        install::load_image(cluster, &self.swansong, folder).await?;
        cluster.load_image(&training_image::build(folder)?).await?;
        Ok(())
    }
}

async fn operate(client: kube::Client) {
    let result = operator::run(client, NAMESPACE, |refused| failure(&refused.to_string())).await;
    if let Err(error) = result {
        failure(&error.to_string());
    }
}

fn invite(screen: &Screen, cluster: &Cluster) {
    let info = cluster.info();
    let kubectl = info.kubectl.display();
    screen.act("Your turn");
    screen.step(&format!("The cluster is yours at {}. From another terminal:", info.api_url));
    screen.block(&format!(
        "export KUBECONFIG={}\n\
         alias kubectl={kubectl}\n\
         kubectl logs llama-master-0\n\
         kubectl get ascendjob llama -o yaml\n\
         kubectl get pod llama-worker-0 -o jsonpath='{{.metadata.annotations.swansong\\.dev/injected}}'\n\
         kubectl -n swansong-system logs deployment/swansong-webhook\n\
         kubectl create --dry-run=server -o yaml -f YOUR-JOB.yaml",
        cluster.kubeconfig().display(),
    ));
    screen.line("");
    screen.tinted(Tone::Heading, "Ctrl-C ends it and leaves nothing behind.");
}

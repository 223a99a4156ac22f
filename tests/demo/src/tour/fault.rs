//! The acts of a fault: a device of two jobs fails; one job has Swansong, and the control is set up by hand.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use serde_json::json;
use swansong_agent::checks::Family;
use swansong_fake_clusterd::server::Clock;
use swansong_fake_clusterd::{FakeClusterd, Settings};
use swansong_fixtures::host::Host;
use swansong_testcluster::{Cluster, eventually};
use tokio::task::JoinSet;

use super::timeline::{Entry, Timeline};
use crate::screen::{Screen, Tone};
use crate::training::{Job, Leader, Training};
use crate::{agents, evidence, python_image};

/// The longest time from a fault to the end of a job.
const TIMEOUT: Duration = Duration::from_mins(4);

const WITH: Job = Job {
    name: "with-swansong",
    pods: 2,
    npus_per_pod: 1,
    first_npu: 4,
    lost_rank: 0,
    annotations: &[],
    // Twice the time after which a launcher reads its orders: without Swansong it exits during the save.
    save_seconds: 10,
    is_untouched: false,
    hidden: None,
    by_hand: false,
};
const WITHOUT: Job = Job {
    name: "without-swansong",
    first_npu: 6,
    annotations: &[("swansong.dev/inject", "false")],
    by_hand: true,
    ..WITH
};

/// Everything that takes part, ready for the fault.
pub(super) struct Stage {
    client: Client,
    host: Host,
    clusterd: Arc<FakeClusterd>,
    leader: Leader,
    with: Training,
    without: Training,
    /// Ends with the stage.
    _watching: JoinSet<()>,
}

impl Stage {
    /// Installs the agent by its manifests, starts the fakes and both jobs, and waits until they train.
    pub(super) async fn set(cluster: &Cluster, folder: &Path, time_factor: f32) -> Result<Self> {
        let client = cluster.client().await?;
        cluster.load_image(&python_image::build(folder)?).await?;
        agents::prepare(cluster).await?;
        let node = cluster.info().node.as_ref().context("the cluster has no node")?;
        // On an address that Pods reach.
        let address = IpAddr::from(node.host_address);
        let clusterd =
            FakeClusterd::start_at(SocketAddr::new(address, 0), Settings::default(), Clock::running());
        let clusterd = Arc::new(clusterd.await.context("start the fake ClusterD")?);
        let mut watching = JoinSet::new();
        watching.spawn(swansong_fake_clusterd::cluster::run(client.clone(), Arc::clone(&clusterd)));
        let leader = Leader::start(address, time_factor)?;

        let host = Host::healthy(Family::A2);
        let config = format!(
            "npus: 8\ndriver: {{trust: anyone}}\nclusterd: {{dial: false, address: \"{}\"}}\nfaults: {{dcmi: false}}\n",
            clusterd.address()
        );
        let root = host.path("/");
        let agent = agents::install(cluster, "overlays/agent-faults", &root, &config);
        let start = |job| Training::start(cluster, &leader, folder, job);
        let ((), with, without) = tokio::try_join!(
            async { agent.await.map_err(anyhow::Error::from) },
            async { start(WITH).await.map_err(anyhow::Error::from) },
            async { start(WITHOUT).await.map_err(anyhow::Error::from) },
        )?;
        // The agent sends no fault that would end ranks of a job without it.
        evidence::reset_config(&client, &with.namespace, WITH.name).await?;
        Ok(Self { client, host, clusterd, leader, with, without, _watching: watching })
    }

    /// Plays the fault and shows what follows. Returns whether only the job with Swansong has a checkpoint.
    pub(super) async fn play(&self, screen: &Screen) -> Result<bool> {
        screen.act("Act 3: a device of rank 0's node fails while the job trains");
        screen.line("  Two jobs of two Pods train, with stand-ins for ClusterD, TaskD and MindIO:");
        screen.line("    with-swansong     says recover-strategy: \"dump\", and nothing else");
        screen.line("    without-swansong  the same job, set up by hand as MindCluster's documentation says");
        screen.step(&format!(
            "The node loses a device of each: rm /dev/davinci{} /dev/davinci{}",
            WITH.lost_npu(),
            WITHOUT.lost_npu()
        ));
        screen.line("  with-swansong, seconds after the fault:");
        let mut with = Timeline::start(self.client.clone(), &self.with);
        let without = Timeline::start(self.client.clone(), &self.without);
        for job in [WITH, WITHOUT] {
            self.host.remove(&format!("/dev/davinci{}", job.lost_npu()));
        }
        // For the control, ClusterD acts at once, as if the device plugin had reported the fault.
        let control = async {
            self.end(&self.without).await?;
            Ok(without.elapsed())
        };
        let (saved, (), ended) =
            tokio::try_join!(self.follow(screen, &mut with), self.relay_and_end(), control)?;
        let saved = show_file(screen, saved.as_ref());

        screen.act("Act 4: the control, without Swansong");
        screen.line("  It was hit in the same second, and ClusterD knew at once. Seconds after the fault:");
        for entry in without.logs().await? {
            show(screen, &entry);
        }
        let lost = self.show_loss(screen, ended).await?;
        Ok(saved && lost)
    }

    /// ClusterD acts on what the agent has sent, until the job has ended.
    async fn relay_and_end(&self) -> Result<()> {
        let npu = WITH.lost_npu();
        eventually(&format!("ClusterD has the fault of NPU {npu}"), TIMEOUT, || async {
            let kills = self.clusterd.ledger().kills;
            let has_it = kills.iter().any(|kill| kill.devices.contains(&npu));
            if has_it { Ok(()) } else { Err(format!("{kills:?}")) }
        })
        .await?;
        self.end(&self.with).await
    }

    async fn end(&self, job: &Training) -> Result<()> {
        self.leader.send(&json!({"device_fault": job.uid, "ranks": [job.job.lost_rank]}))?;
        Ok(job.fail_with_first_pod(self.client.clone(), &self.leader).await?)
    }

    /// Shows what happens until the agent knows the outcome; returns when the checkpoint appeared.
    async fn follow(&self, screen: &Screen, timeline: &mut Timeline<'_>) -> Result<Option<Checkpoint>> {
        let shown = Mutex::new(HashSet::new());
        let timeline = tokio::sync::Mutex::new(timeline);
        let checkpoint = Mutex::new(None);
        let outcome = eventually("the outcome of the dump is known", TIMEOUT, || async {
            let mut timeline = timeline.lock().await;
            let mut known = checkpoint.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            if !known && let Some(file) = self.with.checkpoint() {
                let found = Checkpoint { after: timeline.elapsed(), file: file.display().to_string() };
                *checkpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                known = true;
            }
            let entries = timeline.read().await.map_err(|error| error.to_string())?;
            let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            for entry in &entries {
                if shown.insert((entry.who.clone(), entry.what.clone())) {
                    show(screen, entry);
                }
            }
            let has_outcome = entries.iter().any(|entry| entry.what.starts_with("Dump"));
            if has_outcome { Ok(known) } else { Err("no Event has it".to_owned()) }
        });
        outcome.await?;
        Ok(checkpoint.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows that the control has no checkpoint, and that none can follow.
    async fn show_loss(&self, screen: &Screen, ended: f64) -> Result<bool> {
        let failed = self.without.failed_pods(&self.client).await?;
        for pod in &failed {
            let who = pod.metadata.name.clone().unwrap_or_default();
            let what = "the Pod has failed: its launcher was ordered to exit".to_owned();
            show(screen, &Entry { after: ended, who, what });
        }
        let folder = self.without.folder().display();
        let lost = match self.without.checkpoint() {
            None => format!("  ✘ no checkpoint in {folder}, and the Manager that would complete it is gone"),
            Some(file) => format!("  there is {}", file.display()),
        };
        screen.tinted(Tone::Bad, lost);
        Ok(self.without.checkpoint().is_none() && !failed.is_empty())
    }
}

/// A saved checkpoint.
struct Checkpoint {
    /// Seconds after the fault.
    after: f64,
    file: String,
}

fn show(screen: &Screen, entry: &Entry) {
    let Entry { after, who, what } = entry;
    screen.tinted(Tone::Faint, format_args!("  {after:>6.1}  {who:<25} {what}"));
}

fn show_file(screen: &Screen, checkpoint: Option<&Checkpoint>) -> bool {
    let Some(Checkpoint { after, file }) = checkpoint else {
        screen.tinted(Tone::Bad, "  ✘ there is no checkpoint");
        return false;
    };
    screen.tinted(Tone::Good, format_args!("  ✔ {after:.1} s from the fault to the checkpoint: {file}"));
    true
}

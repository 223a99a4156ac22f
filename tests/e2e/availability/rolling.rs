//! Replicas rolled and killed, and the authority changed, while Pods are created all the time (B63).

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::{Api, ResourceExt};
use nix::sys::signal::Signal;
use swansong_testcluster::{Cluster, Options, Tier};

use crate::fates::{contradiction, fates, why_let_through};
use crate::load::Load;
use crate::site::{NAMESPACE, Site, signal, site};

/// Creations a second; fewer where the machine doesn't give so many.
const PER_SECOND: u32 = 200;

/// For a calm beginning to compare with.
const CALM: Duration = Duration::from_secs(3);

/// What is done to Swansong while Pods are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    Calm,
    Roll,
    RotateAuthority,
    RotateLeaf,
    RollAndRotate,
    /// `kubectl drain` of each replica's node, as far as a replica sees it.
    Evict,
    ScaleDownAndUp,
    Kill,
    KillAll,
    DeleteAtOnce,
}

impl Disturbance {
    /// Whether the leaving replica is told and given time. Nothing may be let through then.
    fn is_graceful(self) -> bool {
        !matches!(self, Self::Kill | Self::KillAll | Self::DeleteAtOnce)
    }

    async fn happen(self, site: &Site<'_>) {
        match self {
            Self::Calm => tokio::time::sleep(CALM).await,
            Self::Roll => site.roll().await,
            Self::RotateAuthority => site.rotate_authority().await,
            Self::RotateLeaf => site.rotate_leaf().await,
            Self::RollAndRotate => {
                tokio::join!(site.roll(), site.rotate_authority());
            }
            Self::Evict => evict(site).await,
            Self::ScaleDownAndUp => {
                site.scale(1).await;
                site.scale(3).await;
            }
            Self::Kill => kill(site, 1).await,
            Self::KillAll => kill(site, 3).await,
            Self::DeleteAtOnce => {
                let replica = site.replicas().await.remove(0);
                let pods: Api<Pod> = Api::namespaced(site.client.clone(), NAMESPACE);
                pods.delete(&replica.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
                site.settled().await;
            }
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Calm => "nothing",
            Self::Roll => "rollout restart",
            Self::RotateAuthority => "authority changed",
            Self::RotateLeaf => "leaf renewed",
            Self::RollAndRotate => "both at once",
            Self::Evict => "each replica evicted",
            Self::ScaleDownAndUp => "scaled to 1 and to 3",
            Self::Kill => "kill -9 of one",
            Self::KillAll => "kill -9 of all three",
            Self::DeleteAtOnce => "deleted without grace",
        })
    }
}

async fn evict(site: &Site<'_>) {
    let pods: Api<Pod> = Api::namespaced(site.client.clone(), NAMESPACE);
    for replica in site.replicas().await {
        pods.evict(&replica.name_any(), &EvictParams::default()).await.unwrap();
        site.settled().await;
    }
}

/// The kubelet restarts a process that was killed once at once, and later only after a while; whoever comes after a
/// roll is new.
async fn kill(site: &Site<'_>, count: usize) {
    let replicas = site.replicas().await;
    let killed = &replicas[..count];
    for replica in killed {
        signal(replica, Signal::SIGKILL);
    }
    for replica in killed {
        site.restarted(replica).await;
    }
    site.settled().await;
}

/// Everything that happened in one phase.
struct Phase {
    what: Disturbance,
    lasted: Duration,
    created: usize,
    let_through: usize,
    took: Vec<Duration>,
    /// Why something was let through, by the API server's log.
    reasons: BTreeMap<String, usize>,
}

impl Phase {
    fn slowest(&self, share: f64) -> Duration {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let index = (self.took.len() as f64 * share) as usize;
        self.took.get(index.min(self.took.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_precision_loss)]
        let rate = self.created as f64 / self.lasted.as_secs_f64();
        write!(
            f,
            "| {:<21} | {:>5.1} s | {:>7} | {:>5.0} | {:>6.0} ms | {:>6.0} ms | {:>6.0} ms | {:>11} |",
            self.what,
            self.lasted.as_secs_f64(),
            self.created,
            rate,
            self.slowest(0.5).as_secs_f64() * 1e3,
            self.slowest(0.99).as_secs_f64() * 1e3,
            self.slowest(1.0).as_secs_f64() * 1e3,
            self.let_through,
        )
    }
}

/// B63.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_creation_fails_and_none_is_let_through_but_when_killed() {
    use Disturbance::{
        Calm, DeleteAtOnce, Evict, Kill, KillAll, Roll, RollAndRotate, RotateAuthority, RotateLeaf,
        ScaleDownAndUp,
    };
    if env::var_os("SWANSONG_SOAK").is_none() {
        let Some(site) = site().await else { return };
        site.install("base").await;
        return endure(&site, &[Calm, RollAndRotate, Kill]).await;
    }
    let round = [
        Roll,
        RotateAuthority,
        RollAndRotate,
        RotateLeaf,
        Evict,
        ScaleDownAndUp,
        Roll,
        Kill,
        Roll,
        KillAll,
        Roll,
        DeleteAtOnce,
    ];
    let course = [&[Calm][..], &round].concat();
    for aggregator_routing in [false, true] {
        let way = if aggregator_routing {
            "endpoints, dialled by the API server"
        } else {
            "Service address, led by kube-proxy"
        };
        eprintln!("\nThe API server calls: {way}");
        let cluster =
            Cluster::start(Options { aggregator_routing, ..Options::from(Tier::Node) }).await.unwrap();
        let site = Site::alone(&cluster).await;
        site.install("base").await;
        endure(&site, &course).await;
    }
}

/// Creates Pods while one disturbance follows the other, and compares what was stored with what the API server noted.
async fn endure(site: &Site<'_>, course: &[Disturbance]) {
    let namespace = site.cluster.namespace("load").await.unwrap();
    let load = Load::start(site.cluster, &namespace, PER_SECOND).await;
    let mut phases = Vec::new();
    let mut earlier = why_let_through(site.cluster);
    for (index, &what) in course.iter().enumerate() {
        load.enter(index);
        let start = Instant::now();
        what.happen(site).await;
        let lasted = start.elapsed();
        let reasons = why_let_through(site.cluster);
        let new =
            reasons.iter().map(|(reason, times)| (reason.clone(), times - earlier.get(reason).unwrap_or(&0)));
        let new = new.filter(|(_, times)| *times > 0).collect();
        phases.push(Phase { what, lasted, created: 0, let_through: 0, took: Vec::new(), reasons: new });
        earlier = reasons;
    }
    let creations = load.stop().await;
    let fates = fates(site.cluster, &namespace);

    let mut wrong = Vec::new();
    for creation in &creations {
        let fate = fates.get(&creation.name).copied().unwrap_or_default();
        wrong.extend(contradiction(creation, fate));
        phases[creation.began].created += 1;
        phases[creation.began].took.push(creation.took);
        // A kill meets creations that were begun before it, and some are answered only after it.
        let mut during = creation.began..=creation.ended;
        let blamed = during.find(|&phase| !phases[phase].what.is_graceful()).unwrap_or(creation.began);
        phases[blamed].let_through += usize::from(fate.let_through);
    }
    report(&mut phases);
    assert_eq!(wrong, Vec::<String>::new(), "of {} creations", creations.len());
    assert_eq!(fates.len(), creations.len(), "the audit log knows each of them and no other");
    for phase in &phases {
        assert!(phase.created > 0, "{}: nothing was created", phase.what);
        assert!(
            phase.let_through == 0 || !phase.what.is_graceful(),
            "{}: {} let through",
            phase.what,
            phase.let_through
        );
    }
}

/// Prints the table of docs/reliability.md.
fn report(phases: &mut [Phase]) {
    eprintln!(
        "| meanwhile             |   for   | created |   /s  |  median   |   p99     |  longest  | let through |"
    );
    eprintln!(
        "|-----------------------|--------:|--------:|------:|----------:|----------:|----------:|------------:|"
    );
    for phase in &mut *phases {
        phase.took.sort_unstable();
        eprintln!("{phase}");
    }
    for phase in phases.iter().filter(|phase| !phase.reasons.is_empty()) {
        eprintln!("{}: {:?}", phase.what, phase.reasons);
    }
}

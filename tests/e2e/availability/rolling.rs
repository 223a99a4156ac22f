//! Replicas are rolled and killed, and the CA is rotated, while Pods are created continuously.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::{Api, ResourceExt};
use nix::sys::signal::Signal;
use swansong_testcluster::{Cluster, Options, Tier};

use crate::load::Load;
use crate::outcomes::{call_failures, contradiction, outcomes};
use crate::site::{NAMESPACE, Site, signal, site};

/// Creations per second in the long run, or fewer on a slow machine.
const PER_SECOND: u32 = 200;
/// Creations per second otherwise: few enough that calls don't time out because the machine does other work.
const FEW_PER_SECOND: u32 = 40;

/// Duration of the undisturbed phase.
const CALM: Duration = Duration::from_secs(3);

/// A disturbance of Swansong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    Calm,
    Roll,
    RotateCa,
    RotateLeaf,
    RollAndRotate,
    /// Evicts each replica, as `kubectl drain` does.
    Evict,
    ScaleDownAndUp,
    Kill,
    KillAll,
    DeleteAtOnce,
}

impl Disturbance {
    /// Returns whether terminating replicas receive SIGTERM and a grace period. No Pod may be admitted unprocessed then.
    fn is_graceful(self) -> bool {
        !matches!(self, Self::Kill | Self::KillAll | Self::DeleteAtOnce)
    }

    async fn cause(self, site: &Site<'_>) {
        match self {
            Self::Calm => tokio::time::sleep(CALM).await,
            Self::Roll => site.roll().await,
            Self::RotateCa => site.rotate_ca().await,
            Self::RotateLeaf => site.rotate_leaf().await,
            Self::RollAndRotate => {
                tokio::join!(site.roll(), site.rotate_ca());
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
            Self::RotateCa => "CA rotated",
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

/// The kubelet restarts a process at once only the first time, so each kill is of a new Pod.
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

/// The results of one phase.
struct Phase {
    what: Disturbance,
    lasted: Duration,
    created: usize,
    admitted_unprocessed: usize,
    took: Vec<Duration>,
    /// Why Pods were admitted unprocessed, by the API server's log.
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
            self.admitted_unprocessed,
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_creation_fails_and_none_is_admitted_unprocessed_unless_replicas_are_killed() {
    use Disturbance::{
        Calm, DeleteAtOnce, Evict, Kill, KillAll, Roll, RollAndRotate, RotateCa, RotateLeaf, ScaleDownAndUp,
    };
    if env::var_os("SWANSONG_SOAK").is_none() {
        let Some(site) = site().await else { return };
        site.install("base").await;
        return run(&site, &[Calm, RollAndRotate, Kill], FEW_PER_SECOND).await;
    }
    let round = [
        Roll,
        RotateCa,
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
            "endpoints, connected by the API server"
        } else {
            "Service address, by kube-proxy"
        };
        eprintln!("\nThe API server calls: {way}");
        let cluster =
            Cluster::start(Options { aggregator_routing, ..Options::from(Tier::Node) }).await.unwrap();
        let site = Site::alone(&cluster).await;
        site.install("base").await;
        run(&site, &course, PER_SECOND).await;
    }
}

/// Creates Pods during a sequence of disturbances, and compares the stored Pods with the audit log.
async fn run(site: &Site<'_>, course: &[Disturbance], per_second: u32) {
    let namespace = site.cluster.namespace("load").await.unwrap();
    let load = Load::start(site.cluster, &namespace, per_second).await;
    let mut phases = Vec::new();
    let mut earlier = call_failures(site.cluster);
    for (index, &what) in course.iter().enumerate() {
        load.enter(index);
        let start = Instant::now();
        what.cause(site).await;
        let lasted = start.elapsed();
        let reasons = call_failures(site.cluster);
        let new =
            reasons.iter().map(|(reason, times)| (reason.clone(), times - earlier.get(reason).unwrap_or(&0)));
        let new = new.filter(|(_, times)| *times > 0).collect();
        phases.push(Phase {
            what,
            lasted,
            created: 0,
            admitted_unprocessed: 0,
            took: Vec::new(),
            reasons: new,
        });
        earlier = reasons;
    }
    let creations = load.stop().await;
    let outcomes = outcomes(site.cluster, &namespace);

    let mut wrong = Vec::new();
    for creation in &creations {
        let outcome = outcomes.get(&creation.name).copied().unwrap_or_default();
        wrong.extend(contradiction(creation, outcome));
        phases[creation.began].created += 1;
        phases[creation.began].took.push(creation.took);
        // A kill affects requests that were sent before it, and some that are answered after it.
        let mut during = creation.began..=creation.ended;
        let blamed = during.find(|&phase| !phases[phase].what.is_graceful()).unwrap_or(creation.began);
        phases[blamed].admitted_unprocessed += usize::from(outcome.admitted_unprocessed);
    }
    report(&mut phases);
    assert_eq!(wrong, Vec::<String>::new(), "of {} creations", creations.len());
    assert_eq!(outcomes.len(), creations.len(), "the audit log has each of them and no other");
    for phase in &phases {
        assert!(phase.created > 0, "{}: nothing was created", phase.what);
        assert!(
            phase.admitted_unprocessed == 0 || !phase.what.is_graceful(),
            "{}: {} admitted unprocessed: {:?}",
            phase.what,
            phase.admitted_unprocessed,
            phase.reasons
        );
    }
}

/// Prints the table of docs/reliability.md.
fn report(phases: &mut [Phase]) {
    eprintln!(
        "| meanwhile             |   for   | created |   /s  |  median   |   p99     |  longest  | unprocessed |"
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

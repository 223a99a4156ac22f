//! Creates Pods at a steady rate and records the responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use swansong_testcluster::Cluster;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::site::{asking_pod, is_injected};

/// Pods that are deleted together, once twice as many have been created after them.
const BATCH: usize = 500;

/// One creation as seen by its client.
pub(crate) struct Creation {
    pub(crate) name: String,
    /// The phases in which the request was sent and answered.
    pub(crate) began: usize,
    pub(crate) ended: usize,
    pub(crate) took: Duration,
    /// Whether the stored Pod was injected, or the error.
    pub(crate) result: Result<bool, String>,
}

/// Creations in the background.
pub(crate) struct Load {
    phase: Arc<AtomicUsize>,
    stop: Arc<Notify>,
    creations: JoinHandle<Vec<Creation>>,
}

impl Load {
    /// Starts to create Pods at this rate, or as fast as the machine allows.
    pub(crate) async fn start(cluster: &Cluster, namespace: &str, per_second: u32) -> Self {
        let client = cluster.client().await.unwrap();
        let (phase, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let creations =
            create_until(client, namespace.to_owned(), per_second, Arc::clone(&phase), Arc::clone(&stop));
        Self { phase, stop, creations: tokio::spawn(creations) }
    }

    /// Assigns further requests and responses to this phase.
    pub(crate) fn enter(&self, phase: usize) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Stops and waits for all responses.
    pub(crate) async fn stop(self) -> Vec<Creation> {
        self.stop.notify_one();
        self.creations.await.unwrap()
    }
}

async fn create_until(
    client: Client,
    namespace: String,
    per_second: u32,
    phase: Arc<AtomicUsize>,
    stop: Arc<Notify>,
) -> Vec<Creation> {
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    // If the API server takes longer than half a second, the rate falls and no queue grows.
    let slots = Arc::new(Semaphore::new(per_second.div_ceil(2) as usize));
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    // Short delays are made up for: clients of a real cluster are independent of each other.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut running, mut done) = (JoinSet::new(), Vec::new());
    // A separate task, so that deletions don't delay creations.
    let (old, batches) = mpsc::unbounded_channel();
    let deletions = tokio::spawn(delete(pods.clone(), batches));
    for number in 0.. {
        let permit = tokio::select! {
            () = stop.notified() => break,
            permit = async { ticks.tick().await; Arc::clone(&slots).acquire_owned().await } => permit.unwrap(),
        };
        if number % BATCH == 0 && number >= 2 * BATCH {
            old.send(number / BATCH - 2).unwrap();
        }
        let (pods, phase) = (pods.clone(), Arc::clone(&phase));
        running.spawn(async move {
            let _permit = permit;
            create(&pods, number, &phase).await
        });
        while let Some(creation) = running.try_join_next() {
            done.push(creation.unwrap());
        }
    }
    done.extend(running.join_all().await);
    deletions.abort();
    done
}

async fn create(pods: &Api<Pod>, number: usize, phase: &AtomicUsize) -> Creation {
    let name = format!("load-{number}");
    let mut pod = asking_pod(&name);
    pod.labels_mut().insert("batch".to_owned(), (number / BATCH).to_string());
    let (start, began) = (Instant::now(), phase.load(Ordering::Relaxed));
    let result = pods.create(&PostParams::default(), &pod).await;
    let result = result.map(|pod| is_injected(&pod)).map_err(|error| error.to_string());
    Creation { name, began, ended: phase.load(Ordering::Relaxed), took: start.elapsed(), result }
}

async fn delete(pods: Api<Pod>, mut batches: mpsc::UnboundedReceiver<usize>) {
    while let Some(batch) = batches.recv().await {
        let batch = ListParams::default().labels(&format!("batch={batch}"));
        let now = DeleteParams::default().grace_period(0);
        // A busy API server may time out. The remaining Pods do no harm.
        if let Err(error) = pods.delete_collection(&now, &batch).await {
            eprintln!("old Pods are not deleted: {error}");
        }
    }
}

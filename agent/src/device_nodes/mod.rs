//! A source of faults: device nodes and parts of the driver that existed and are missing.

mod dev_watcher;
mod inspect;
mod tracker;

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swansong_fault_model::{Code, SourceUpdate, Subject};
use swansong_faults::sources::{Source, Updates};
use swansong_faults::unix_millis;
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tracing::warn;

use self::dev_watcher::DevWatcher;
use self::inspect::Inspection;
use self::tracker::DeviceTracker;
use crate::checks::{self, Settings};
use crate::host::HostRoot;

/// A driver that is unloaded removes its device nodes one by one.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// Inspects the device nodes below the host root whenever one changes, and at an interval.
#[derive(Debug)]
pub struct DeviceNodes {
    host_root: PathBuf,
    settings: Arc<Settings>,
    interval: Duration,
    tracker: Mutex<DeviceTracker>,
}

impl DeviceNodes {
    /// The device nodes of the first inspection are those that can disappear.
    pub fn new(host_root: &Path, settings: Arc<Settings>, interval: Duration) -> Self {
        Self { host_root: host_root.to_owned(), settings, interval, tracker: Mutex::default() }
    }

    /// Faults that this source reported in an earlier process: their device nodes existed. Other faults are ignored.
    pub fn restore(&self, faults: impl IntoIterator<Item = (Subject, Code)>) {
        let mut tracker = self.tracker();
        for (subject, code) in faults {
            tracker.restore(subject, &code);
        }
    }

    fn tracker(&self) -> MutexGuard<'_, DeviceTracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the watch, then inspects, so that no change is missed.
    fn inspect(&self, watcher: Option<&DevWatcher>) -> Round {
        let mut unwatched = None;
        let mut inspect = || -> Result<Inspection, String> {
            let root = HostRoot::open(&self.host_root).map_err(|error| {
                format!("the host root {} can't be opened: {error}", self.host_root.display())
            })?;
            let dev = inspect::open_dev(&root)?;
            unwatched = watcher.and_then(|watcher| watcher.watch(&dev).err());
            inspect::inspect(&root, &dev, &checks::product(&root, &self.settings))
        };
        let inspection = inspect();
        let failure = inspection.as_ref().err().cloned();
        let updates = self.tracker().update(inspection, unix_millis());
        Round { updates, failure, unwatched }
    }
}

/// The result of an inspection.
struct Round {
    updates: Vec<SourceUpdate>,
    /// Why nothing could be inspected.
    failure: Option<String>,
    /// Why changes won't be noticed.
    unwatched: Option<io::Error>,
}

impl Source for DeviceNodes {
    const NAME: &'static str = "device-nodes";

    async fn run(self: Arc<Self>, updates: Updates, progress: Progress) -> Result<Infallible, TaskError> {
        self.tracker().report_again();
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watcher = start_watcher();
        loop {
            let (source, watching) = (Arc::clone(&self), watcher.clone());
            let inspect = spawn_blocking(move || source.inspect(watching.as_deref()));
            let round = inspect.await.map_err(|error| TaskError(error.to_string()))?;
            for update in round.updates {
                let sent = updates.send((Self::NAME, update)).await;
                sent.map_err(|_| TaskError("the pipeline has ended".to_owned()))?;
            }
            match (round.failure, round.unwatched) {
                (Some(why), _) => progress.failed(&why),
                (None, Some(error)) => progress.failed(&format!("/dev can't be watched: {error}")),
                (None, None) => progress.succeeded(),
            }
            tokio::select! {
                _ = ticks.tick() => {}
                changed = changed(watcher.as_deref()) => match (changed, &watcher) {
                    (Ok(()), Some(watcher)) => {
                        sleep(DEBOUNCE).await;
                        watcher.drain();
                    }
                    (Err(error), _) => {
                        warn!(%error, "the watch on /dev failed, starting another");
                        ticks.tick().await;
                        watcher = start_watcher();
                    }
                    (Ok(()), None) => {}
                },
            }
        }
    }
}

/// Without a watcher, for example when the host has no more of them, the interval remains.
fn start_watcher() -> Option<Arc<DevWatcher>> {
    let watcher = DevWatcher::new().inspect_err(|error| warn!(%error, "/dev can't be watched, polling it"));
    watcher.ok().map(Arc::new)
}

async fn changed(watcher: Option<&DevWatcher>) -> io::Result<()> {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}

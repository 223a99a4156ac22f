//! Device nodes and the driver: what was there and goes is a fault.

mod folder;
mod learnt;
mod look;

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swansong_fault_model::{Code, SourceUpdate, Subject};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tracing::warn;

use self::folder::{Ear, Watch};
use self::learnt::Learnt;
use self::look::Facts;
use super::{Out, Progress, Source, TaskError};
use crate::checks::{self, Product};
use crate::config::Config;
use crate::fault::millis;
use crate::host::HostRoot;

/// A driver that is unloaded takes its devices away one by one; they are looked at once.
const GATHER: Duration = Duration::from_millis(10);

/// Looks at the device nodes below the host root whenever one changes, and from time to time.
#[derive(Debug)]
pub struct DeviceNodes {
    host_root: PathBuf,
    config: Arc<Config>,
    learnt: Mutex<Learnt>,
}

impl DeviceNodes {
    /// Nothing is known yet: what there is at the first look is what can go.
    pub fn new(host_root: &Path, config: Arc<Config>) -> Self {
        Self { host_root: host_root.to_owned(), config, learnt: Mutex::default() }
    }

    /// Faults that this source told in an earlier process and that still stand. What they are about was there, so it is
    /// told whether it is back. Others are left out.
    pub fn remember(&self, standing: impl IntoIterator<Item = (Subject, Code)>) {
        let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        for (subject, code) in standing {
            learnt.remember(subject, &code);
        }
    }

    /// Sets the watch, then looks: what changes in between is heard of.
    fn look(&self, watch: Option<&mut Watch>) -> Round {
        let mut deaf = None;
        let facts = || -> Result<Facts, String> {
            let root = HostRoot::open(&self.host_root).map_err(|error| {
                format!("the host root {} can't be opened: {error}", self.host_root.display())
            })?;
            let dev = look::folder(&root)?;
            if let Some(watch) = watch {
                deaf = watch.set(&dev).err();
            }
            look::look(&root, &dev, &self.product(&root))
        };
        let facts = facts();
        let blind = facts.as_ref().err().cloned();
        let seen = self.learnt.lock().unwrap_or_else(PoisonError::into_inner).judge(facts, millis());
        Round { seen, blind, deaf }
    }

    fn product(&self, root: &HostRoot) -> Product {
        checks::product(root, &self.config.checks)
    }
}

/// What came of a look.
struct Round {
    seen: Vec<SourceUpdate>,
    /// Why nothing could be seen.
    blind: Option<String>,
    /// Why no change will be heard of.
    deaf: Option<io::Error>,
}

impl Source for DeviceNodes {
    const NAME: &'static str = "device-nodes";

    async fn run(self: Arc<Self>, out: Out, progress: Progress) -> Result<Infallible, TaskError> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner).say_all_again();
        let interval = self.config.faults.device_interval;
        let mut ticks = interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut ear, mut watch) = listen();
        loop {
            let source = Arc::clone(&self);
            let look = spawn_blocking(move || {
                let round = source.look(watch.as_mut());
                (round, watch)
            });
            let (round, kept) = look.await.map_err(|error| TaskError(error.to_string()))?;
            watch = kept;
            for seen in round.seen {
                out.send((Self::NAME, seen))
                    .await
                    .map_err(|_| TaskError("nobody takes what is seen".to_owned()))?;
            }
            match (round.blind, round.deaf) {
                (Some(why), _) => progress.failed(&why),
                (None, Some(error)) => progress.failed(&format!("/dev can't be watched: {error}")),
                (None, None) => progress.succeeded(),
            }
            tokio::select! {
                _ = ticks.tick() => {}
                heard = hear(ear.as_ref()) => match (heard, &ear) {
                    (Ok(()), Some(ear)) => {
                        sleep(GATHER).await;
                        ear.drain();
                    }
                    (Err(error), _) => {
                        warn!(%error, "the watch on /dev broke; beginning anew");
                        ticks.tick().await;
                        (ear, watch) = listen();
                    }
                    (Ok(()), None) => {}
                },
            }
        }
    }
}

/// Without one, as when the host has no more of them, there is the interval.
fn listen() -> (Option<Ear>, Option<Watch>) {
    match Ear::new() {
        Ok(ear) => {
            let watch = ear.watch();
            (Some(ear), Some(watch))
        }
        Err(error) => {
            warn!(%error, "device nodes can't be watched; they are looked at from time to time");
            (None, None)
        }
    }
}

async fn hear(ear: Option<&Ear>) -> io::Result<()> {
    match ear {
        Some(ear) => ear.hear().await,
        None => std::future::pending().await,
    }
}

//! Writes the newest state, apart from the pipeline: a disk that hangs holds up nothing else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tracing::{info, warn};

use super::StateFile;

/// Between two attempts while the disk doesn't take the state.
const RETRY: Duration = Duration::from_secs(5);

/// How long something waits for its state to be on disk before it is done without.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The newest state that was tried.
    pub generation: u64,
    /// Why it isn't on disk.
    pub problem: Option<String>,
}

/// The background task that writes the state.
#[derive(Debug)]
pub(crate) struct Saver {
    generation: u64,
    newest: watch::Sender<(u64, Arc<str>)>,
    saved: watch::Receiver<Saved>,
    task: JoinHandle<()>,
}

impl Saver {
    /// Starts without anything to write.
    pub(crate) fn start(file: StateFile, problem: Option<String>) -> Self {
        let (newest, requests) = watch::channel((0, Arc::from("")));
        if let Some(problem) = &problem {
            warn!(problem, "the state of faults is kept in memory only");
        }
        let (sender, saved) = watch::channel(Saved { generation: 0, problem });
        let task = tokio::spawn(run(Arc::new(Mutex::new(file)), requests, sender));
        Self { generation: 0, newest, saved, task }
    }

    /// Has `state` written. A state that is replaced before it is written is left out.
    pub(crate) fn save(&mut self, state: String) {
        self.generation += 1;
        self.newest.send_replace((self.generation, state.into()));
    }

    /// Ends when the last state is on disk, can't be written, or the disk takes too long.
    pub(crate) fn written(&self) -> impl Future<Output = ()> + Send + use<> {
        let (generation, mut saved) = (self.generation, self.saved.clone());
        async move {
            let _ = timeout(TIMEOUT, saved.wait_for(|saved| saved.generation >= generation)).await;
        }
    }

    /// What is on disk, and whenever that changes.
    pub(crate) fn saved(&self) -> watch::Receiver<Saved> {
        self.saved.clone()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    file: Arc<Mutex<StateFile>>,
    mut requests: watch::Receiver<(u64, Arc<str>)>,
    saved: watch::Sender<Saved>,
) {
    loop {
        let is_failing = saved.borrow().problem.is_some();
        let wait = if is_failing { RETRY } else { Duration::from_hours(24) };
        match timeout(wait, requests.changed()).await {
            Ok(Err(_)) => return,
            Ok(Ok(())) => {}
            Err(_) if is_failing => {}
            Err(_) => continue,
        }
        let (generation, state) = requests.borrow_and_update().clone();
        if state.is_empty() {
            continue;
        }
        let file = Arc::clone(&file);
        let write = spawn_blocking(move || file.lock().unwrap_or_else(PoisonError::into_inner).write(&state));
        let problem = match write.await {
            Ok(written) => written.err(),
            Err(panic) => Some(panic.to_string()),
        };
        saved.send_modify(|before| {
            match (&before.problem, &problem) {
                (Some(_), None) => info!("the state of faults is on disk again"),
                (before, Some(problem)) if before.as_ref() != Some(problem) => {
                    warn!(problem, "the state of faults is kept in memory only");
                }
                _ => {}
            }
            *before = Saved { generation, problem };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn newest_state_is_written_and_a_disk_that_is_away_is_retried() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("disk");
        std::fs::write(&folder, "").expect("a file where the folder should be");
        let (file, opened) = StateFile::open(&folder, Duration::ZERO).expect("not in use");
        let mut saver = Saver::start(file, opened.problem);
        let mut results = saver.saved();
        for _ in 0..100 {
            saver.save("{}".to_owned());
        }
        saver.written().await;
        assert!(results.borrow_and_update().problem.is_some());
        std::fs::remove_file(&folder).expect("removed");
        saver.save("{\"faults\":[]}".to_owned());
        saver.written().await;
        assert_eq!(*results.borrow(), Saved { generation: 101, problem: None });
        assert!(std::fs::read_to_string(folder.join("state.json")).expect("written").contains("faults"));
    }
}

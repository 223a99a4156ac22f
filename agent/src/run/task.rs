//! Tasks that are seen to live.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};
use tracing::error;

use super::metrics::Metrics;
use super::pause::Pause;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_mins(1);

/// Why a task that should never end did.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Ended(pub String);

/// All tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    metrics: Arc<Metrics>,
    all: Mutex<BTreeMap<&'static str, Arc<Task>>>,
}

#[derive(Debug)]
pub(super) struct Task {
    name: &'static str,
    /// Whether it sees faults: one that can't, since the driver is away, is no reason to end everything else.
    is_source: bool,
    /// After so long without a sign it counts as stuck.
    patience: Duration,
    begun: Instant,
    /// Milliseconds after `begun`.
    alive: AtomicU64,
    succeeded: AtomicU64,
    ever: AtomicBool,
    runs: AtomicBool,
    restarts: AtomicU64,
    problem: Mutex<Option<String>>,
    metrics: Arc<Metrics>,
}

/// A task's way to say that it lives.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Task>);

/// A task as `/status` shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskView {
    name: &'static str,
    /// `running`, `stuck` or `dead`.
    state: &'static str,
    seconds_since_success: Option<f64>,
    restarts: u64,
    problem: Option<String>,
}

impl Tasks {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, all: Mutex::default() }
    }

    pub(super) fn add(&self, name: &'static str, patience: Duration) -> Arc<Task> {
        self.know(name, patience, false)
    }

    /// A task that sees faults.
    pub(super) fn add_source(&self, name: &'static str, patience: Duration) -> Arc<Task> {
        self.know(name, patience, true)
    }

    fn know(&self, name: &'static str, patience: Duration, is_source: bool) -> Arc<Task> {
        let task = Arc::new(Task {
            name,
            is_source,
            patience,
            begun: Instant::now(),
            alive: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            ever: AtomicBool::new(false),
            runs: AtomicBool::new(true),
            restarts: AtomicU64::new(0),
            problem: Mutex::default(),
            metrics: Arc::clone(&self.metrics),
        });
        self.metrics.task_known(name);
        self.lock().insert(name, Arc::clone(&task));
        task
    }

    /// Those that are dead or stuck.
    pub(super) fn ill(&self) -> Vec<(&'static str, &'static str)> {
        self.ill_among(|_| true)
    }

    /// Those of them without which the agent is none: all but the sources of faults.
    pub(super) fn failing(&self) -> Vec<(&'static str, &'static str)> {
        self.ill_among(|task| !task.is_source)
    }

    fn ill_among(&self, counts: impl Fn(&Task) -> bool) -> Vec<(&'static str, &'static str)> {
        let all = self.lock();
        let states = all.values().filter(|task| counts(task)).map(|task| (task.name, task.state()));
        states.filter(|(_, state)| *state != "running").collect()
    }

    pub(super) fn view(&self) -> Vec<TaskView> {
        self.lock().values().map(|task| task.view()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Arc<Task>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn since(&self, mark: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(mark.load(Relaxed)))
    }

    fn state(&self) -> &'static str {
        if !self.runs.load(Relaxed) {
            "dead"
        } else if self.since(&self.alive) > self.patience {
            "stuck"
        } else {
            "running"
        }
    }

    fn view(&self) -> TaskView {
        TaskView {
            name: self.name,
            state: self.state(),
            seconds_since_success: self.ever.load(Relaxed).then(|| self.since(&self.succeeded).as_secs_f64()),
            restarts: self.restarts.load(Relaxed),
            problem: self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn note(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

impl Progress {
    /// That of a task which nobody supervises.
    pub fn unobserved(name: &'static str) -> Self {
        Self(Tasks::new(Arc::new(Metrics::new())).add(name, Duration::MAX))
    }

    /// It moves.
    pub fn alive(&self) {
        self.0.alive.store(self.0.now(), Relaxed);
    }

    /// It did what it is for.
    pub fn succeeded(&self) {
        self.alive();
        self.0.succeeded.store(self.0.now(), Relaxed);
        self.0.ever.store(true, Relaxed);
        self.0.note(None);
        self.0.metrics.task_succeeded(self.0.name);
    }

    /// It moves and doesn't get on.
    pub fn failed(&self, problem: &impl fmt::Display) {
        self.alive();
        self.0.note(Some(problem.to_string()));
    }
}

/// Runs a task and, whenever it ends, runs it anew after a pause. While it doesn't run, everybody can see that.
pub(super) async fn supervise<F, Fut>(task: Arc<Task>, make: F) -> Infallible
where
    F: Fn(Progress) -> Fut,
    Fut: Future<Output = Result<Infallible, Ended>> + Send + 'static,
{
    let mut pause = Pause::new(FIRST_PAUSE, LAST_PAUSE);
    loop {
        let begun = Instant::now();
        task.runs.store(true, Relaxed);
        let progress = Progress(Arc::clone(&task));
        progress.alive();
        // A task of its own, so that a panic ends nothing else; in a set, so that it ends with its supervisor.
        let mut alone = tokio::task::JoinSet::new();
        alone.spawn(make(progress));
        let problem = match alone.join_next().await {
            Some(Ok(Err(ended))) => ended.to_string(),
            Some(Ok(Ok(never))) => match never {},
            Some(Err(panic)) => panic.to_string(),
            None => "it was never started".to_owned(),
        };
        task.runs.store(false, Relaxed);
        task.restarts.fetch_add(1, Relaxed);
        task.metrics.task_died(task.name);
        task.note(Some(problem.clone()));
        if begun.elapsed() > LAST_PAUSE {
            pause.reset();
        }
        let wait = pause.next(None);
        error!(task = task.name, problem, ?wait, "a task has ended; starting it anew");
        sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn tasks() -> Tasks {
        Tasks::new(Arc::new(Metrics::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn b68_a_task_that_ends_is_seen_and_started_anew() {
        let tasks = tasks();
        let starts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&starts);
        let task = tasks.add("source", Duration::from_mins(1));
        let supervisor = tokio::spawn(supervise(task, move |progress| {
            let start = count.fetch_add(1, Relaxed);
            async move {
                match start {
                    // Its source is closed.
                    0 => Err(Ended("the source has ended".to_owned())),
                    1 => panic!("a fault"),
                    _ => loop {
                        progress.succeeded();
                        sleep(Duration::from_secs(1)).await;
                    },
                }
            }
        }));
        sleep(Duration::from_millis(100)).await;
        assert_eq!(tasks.ill(), [("source", "dead")]);
        assert_eq!(tasks.view()[0].problem.as_deref(), Some("the source has ended"));
        assert!(tasks.metrics.text().contains("swansong_agent_task_restarts_total{task=\"source\"} 1"));
        sleep(Duration::from_secs(20)).await;
        assert_eq!(tasks.ill(), []);
        assert_eq!(starts.load(Relaxed), 3);
        assert_eq!(tasks.view()[0].restarts, 2);
        supervisor.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_move_is_stuck() {
        let tasks = tasks();
        let task = tasks.add("check", Duration::from_mins(1));
        let supervisor = tokio::spawn(supervise(task, |_| std::future::pending()));
        sleep(Duration::from_secs(59)).await;
        assert_eq!(tasks.ill(), []);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(tasks.ill(), [("check", "stuck")]);
        supervisor.abort();
    }
}

//! Long-lived tasks: each is restarted when it ends, and reports progress so that a stuck one is noticed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::error;

use crate::backoff::{Backoff, RESTART};

/// Why a task ended that should run for ever.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TaskError(pub String);

/// All supervised tasks of a process.
#[derive(Debug, Default)]
pub struct Tasks {
    metrics: TaskMetrics,
    tasks: Mutex<BTreeMap<&'static str, Arc<Task>>>,
}

/// A task that [`supervise`] runs.
#[derive(Debug)]
pub struct Task {
    name: &'static str,
    is_essential: bool,
    /// Without progress for this long it counts as stuck.
    timeout: Duration,
    metrics: TaskMetrics,
    record: Mutex<Record>,
}

#[derive(Debug)]
struct Record {
    is_running: bool,
    last_progress: Instant,
    last_success: Option<Instant>,
    restarts: u64,
    problem: Option<String>,
}

/// The current state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TaskState {
    /// It runs and makes progress.
    Running,
    /// It runs and has made no progress for longer than its timeout.
    Stuck,
    /// It has ended and waits for its restart.
    Dead,
}

/// The state of a task for status pages.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    pub name: &'static str,
    pub state: TaskState,
    /// Time since it last did its work; `None` if it never has.
    pub seconds_since_success: Option<f64>,
    /// How often it was restarted.
    pub restarts: u64,
    /// Why it ended or failed last, unless it has succeeded since.
    pub problem: Option<String>,
}

/// A task's handle to report its progress.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Task>);

#[derive(Debug, Clone, Default)]
struct TaskMetrics {
    restarts: Family<TaskLabels, Counter>,
    last_success: Family<TaskLabels, Gauge<f64, AtomicU64>>,
}

type TaskLabels = [(&'static str, &'static str); 1];

impl Tasks {
    /// Registers the metrics of all tasks.
    pub fn register(&self, registry: &mut Registry) {
        let TaskMetrics { restarts, last_success } = self.metrics.clone();
        registry.register("task_restarts", "Restarts of tasks that had ended", restarts);
        registry.register(
            "task_last_success_timestamp_seconds",
            "When a task last did its work; 0 if never",
            last_success,
        );
    }

    /// Adds a task that the process can't do without. It counts as stuck after `timeout` without progress.
    pub fn add(&self, name: &'static str, timeout: Duration) -> Arc<Task> {
        self.insert(name, timeout, true)
    }

    /// Adds a task whose failure doesn't make [`Tasks::unhealthy_essential`] fail, since a restart of the process
    /// wouldn't help.
    pub fn add_optional(&self, name: &'static str, timeout: Duration) -> Arc<Task> {
        self.insert(name, timeout, false)
    }

    fn insert(&self, name: &'static str, timeout: Duration, is_essential: bool) -> Arc<Task> {
        // Alerts need the series before the first restart.
        self.metrics.restarts.get_or_create_owned(&[("task", name)]);
        self.metrics.last_success.get_or_create_owned(&[("task", name)]);
        let task = Arc::new(Task {
            name,
            is_essential,
            timeout,
            metrics: self.metrics.clone(),
            record: Mutex::new(Record {
                is_running: true,
                last_progress: Instant::now(),
                last_success: None,
                restarts: 0,
                problem: None,
            }),
        });
        self.lock().insert(name, Arc::clone(&task));
        task
    }

    /// Removes the tasks, which have ended and aren't restarted.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The tasks that are dead or stuck.
    pub fn unhealthy(&self) -> Vec<(&'static str, TaskState)> {
        self.unhealthy_where(|_| true)
    }

    /// The essential tasks that are dead or stuck.
    pub fn unhealthy_essential(&self) -> Vec<(&'static str, TaskState)> {
        self.unhealthy_where(|task| task.is_essential)
    }

    fn unhealthy_where(&self, filter: impl Fn(&Task) -> bool) -> Vec<(&'static str, TaskState)> {
        let tasks = self.lock();
        let states = tasks.values().filter(|task| filter(task));
        let states = states.map(|task| (task.name, task.record().state(task.timeout)));
        states.filter(|(_, state)| *state != TaskState::Running).collect()
    }

    /// The status of every task, by name.
    pub fn status(&self) -> Vec<TaskStatus> {
        self.lock().values().map(|task| task.status()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Arc<Task>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    fn labels(&self) -> TaskLabels {
        [("task", self.name)]
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> TaskStatus {
        let record = self.record();
        TaskStatus {
            name: self.name,
            state: record.state(self.timeout),
            seconds_since_success: record.last_success.map(|at| at.elapsed().as_secs_f64()),
            restarts: record.restarts,
            problem: record.problem.clone(),
        }
    }
}

impl Record {
    fn ended(&mut self, problem: String) {
        self.is_running = false;
        self.restarts += 1;
        self.problem = Some(problem);
    }

    fn state(&self, timeout: Duration) -> TaskState {
        if !self.is_running {
            TaskState::Dead
        } else if self.last_progress.elapsed() > timeout {
            TaskState::Stuck
        } else {
            TaskState::Running
        }
    }
}

impl Progress {
    /// The progress of a task that isn't supervised.
    pub fn unsupervised(name: &'static str) -> Self {
        Self(Tasks::default().add(name, Duration::MAX))
    }

    /// Reports that the task isn't stuck.
    pub fn alive(&self) {
        self.0.record().last_progress = Instant::now();
    }

    /// Reports that the task has done its work.
    pub fn succeeded(&self) {
        let mut record = self.0.record();
        record.last_progress = Instant::now();
        record.last_success = Some(record.last_progress);
        record.problem = None;
        drop(record);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.metrics.last_success.get_or_create(&self.0.labels()).set(now.as_secs_f64());
    }

    /// Reports that the task is alive and that an attempt at its work has failed.
    pub fn failed(&self, problem: &impl fmt::Display) {
        let mut record = self.0.record();
        record.last_progress = Instant::now();
        record.problem = Some(problem.to_string());
    }
}

/// Runs a task and restarts it with a backoff whenever it ends or panics.
pub async fn supervise<F, Fut>(task: Arc<Task>, start: F) -> Infallible
where
    F: Fn(Progress) -> Fut,
    Fut: Future<Output = Result<Infallible, TaskError>> + Send + 'static,
{
    let mut backoff = Backoff::new(RESTART);
    loop {
        let started = Instant::now();
        let progress = Progress(Arc::clone(&task));
        progress.alive();
        task.record().is_running = true;
        // A spawned task contains panics; the set aborts it together with this supervisor.
        let mut set = JoinSet::new();
        set.spawn(start(progress));
        let problem = match set.join_next().await {
            Some(Ok(Err(error))) => error.to_string(),
            Some(Ok(Ok(never))) => match never {},
            Some(Err(panic)) => panic.to_string(),
            None => "the task was not spawned".to_owned(),
        };
        task.metrics.restarts.get_or_create(&task.labels()).inc();
        task.record().ended(problem.clone());
        if started.elapsed() > RESTART.max {
            backoff.reset();
        }
        let delay = backoff.next_delay(None);
        error!(task = task.name, problem, ?delay, "task ended, restarting it");
        sleep(delay).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_is_reported_and_restarted() {
        let tasks = Tasks::default();
        let mut registry = Registry::with_prefix("x");
        tasks.register(&mut registry);
        let starts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&starts);
        let task = tasks.add("source", Duration::from_mins(1));
        let supervisor = tokio::spawn(supervise(task, move |progress| {
            let start = count.fetch_add(1, Relaxed);
            async move {
                match start {
                    0 => Err(TaskError("the source has ended".to_owned())),
                    1 => panic!("a fault"),
                    _ => loop {
                        progress.succeeded();
                        sleep(Duration::from_secs(1)).await;
                    },
                }
            }
        }));
        sleep(Duration::from_millis(100)).await;
        assert_eq!(tasks.unhealthy(), [("source", TaskState::Dead)]);
        assert_eq!(tasks.status()[0].problem.as_deref(), Some("the source has ended"));
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &registry).expect("encodes");
        assert!(text.contains("x_task_restarts_total{task=\"source\"} 1"), "{text}");
        sleep(Duration::from_secs(20)).await;
        assert_eq!(tasks.unhealthy(), []);
        assert_eq!(starts.load(Relaxed), 3);
        assert_eq!(tasks.status()[0].restarts, 2);
        supervisor.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_without_progress_is_stuck() {
        let tasks = Tasks::default();
        let task = tasks.add_optional("check", Duration::from_mins(1));
        let supervisor = tokio::spawn(supervise(task, |_| std::future::pending()));
        sleep(Duration::from_secs(59)).await;
        assert_eq!(tasks.unhealthy(), []);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(tasks.unhealthy(), [("check", TaskState::Stuck)]);
        assert_eq!(tasks.unhealthy_essential(), []);
        supervisor.abort();
    }
}

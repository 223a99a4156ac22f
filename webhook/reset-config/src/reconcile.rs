//! The reconciliation of one job.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use kube::api::{Api, PostParams};
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::{Client, Resource as _, ResourceExt as _};
use swansong_api::annotations::INJECT;
use swansong_clusterd::reset_config::name_for;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::FIELD_MANAGER;
use crate::config_map::{self, Found, check, is_labelled};
use crate::decide::{Decision, Policy, decide};
use crate::events::{self, CREATED, NOT_CREATED};
use crate::job::{Job, JobKind, JobMetadata, JobObject};
use crate::metrics::{JobState, Metrics, Operation};
use crate::record::Record;
use crate::request::{RequestError, request};

/// Interval of reconciles where no watch reports a change: a ConfigMap without the label, the label of a namespace.
const RESYNC: Duration = Duration::from_mins(10);

/// First and longest delay while a ConfigMap is being deleted.
const DELETION_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// First and longest delay after a failure or a creation that the API server denies.
const FAILURE_BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));

/// Shared by all reconciles of one kind of job.
pub(crate) struct Context {
    pub(crate) kind: JobKind,
    pub(crate) client: Client,
    pub(crate) policy: Policy,
    pub(crate) metrics: Metrics,
    /// By UID of the job.
    records: Mutex<HashMap<String, Record>>,
}

impl Context {
    pub(crate) fn new(kind: JobKind, client: Client, policy: Policy, metrics: Metrics) -> Self {
        Self { kind, client, policy, metrics, records: Mutex::default() }
    }

    /// Adds a job. Returns whether it is new.
    pub(crate) fn add(&self, uid: &str) -> bool {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !records.contains_key(uid);
        if is_new {
            records.insert(uid.to_owned(), Record::new(&self.metrics));
        }
        is_new
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// Removes all jobs but these.
    pub(crate) fn retain(&self, uids: &HashSet<&str>) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// The result of `access` to a job's record; `None` if the job was deleted meanwhile.
    fn record<T>(&self, job: &JobMetadata, access: impl FnOnce(&mut Record) -> T) -> Option<T> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.get_mut(job.meta().uid.as_deref()?).map(access)
    }

    async fn request<T, F>(&self, operation: Operation, send: impl FnMut() -> F) -> Result<T, RequestError>
    where
        F: Future<Output = kube::Result<T>>,
    {
        request(&self.metrics, operation, send).await
    }

    /// Records the state of a job and ends a series of attempts.
    fn settle(&self, job: &JobMetadata, state: JobState) {
        self.record(job, |record| {
            record.set_state(state, &self.metrics);
            record.reset_attempts();
        });
    }

    /// Records the state of a job and returns the delay until the next attempt.
    fn retry_later(
        &self,
        job: &JobMetadata,
        state: JobState,
        (first, max): (Duration, Duration),
    ) -> Duration {
        let attempts = self.record(job, |record| {
            record.set_state(state, &self.metrics);
            record.count_attempt()
        });
        jittered(first.saturating_mul(1 << attempts.unwrap_or_default().min(16)).min(max))
    }

    /// Publishes an Event unless it is too early to repeat it. A failure is logged and doesn't affect the reconcile.
    async fn publish(&self, job: &JobMetadata, reason: &str, message: &str) -> bool {
        let now = Instant::now();
        let Some(preceding) = self.record(job, |record| record.admit_event(message, now)).flatten() else {
            return false;
        };
        let event = events::event(self.kind, job.meta(), reason, message, preceding);
        let events: Api<Event> = self.api(job);
        let create = self.request(Operation::CreateEvent, || create_new(&events, &event));
        match create.await {
            Err(error) if error.status().is_some_and(is_namespace_terminating) => {}
            Err(error) => warn!(job = self.display(job), %error, "Event not created"),
            Ok(_) => {}
        }
        true
    }

    fn api<K>(&self, job: &JobMetadata) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &job.namespace().unwrap_or_default())
    }

    fn display(&self, job: &JobMetadata) -> String {
        format!("{} {}/{}", self.kind, job.namespace().unwrap_or_default(), job.name_any())
    }
}

/// Creates the ConfigMap of a job if it has been missing for the grace period.
///
/// The watched metadata may be out of date, so the ConfigMap, the job and its namespace are read before a decision.
pub(crate) async fn reconcile(
    watched: Arc<JobMetadata>,
    context: Arc<Context>,
) -> Result<Action, RequestError> {
    match context.record(&watched, |record| record.start(Instant::now())) {
        None => return Ok(Action::await_change()),
        Some(Err(delay)) => return Ok(Action::requeue(delay)),
        Some(Ok(())) => {}
    }
    let name = name_for(&watched.name_any());
    let config_maps: Api<ConfigMap> = context.api(&watched);
    let config_map = context.request(Operation::GetConfigMap, || config_maps.get_opt(&name)).await?;
    let job = Job { kind: context.kind, metadata: watched.meta(), is_finished: false };
    let found = check(config_map.as_ref(), &job);
    let now = Instant::now();
    let is_missing = found == Found::Missing;
    let missing_for = context.record(&watched, |record| record.observe_missing(is_missing, now));
    if found == Found::Usable {
        context.settle(&watched, JobState::Ready);
        let is_watched = config_map.as_ref().is_some_and(is_labelled);
        return Ok(if is_watched { Action::await_change() } else { resync() });
    }
    let grace_left = context.policy.grace_period.saturating_sub(missing_for.unwrap_or_default());
    if is_missing && !grace_left.is_zero() {
        context.settle(&watched, JobState::Pending);
        return Ok(Action::requeue(grace_left));
    }
    let Some(current) = read_job(&context, &watched).await? else { return Ok(Action::await_change()) };
    let is_finished = current.status.as_ref().is_some_and(|status| context.kind.is_finished(status));
    let job = Job { kind: context.kind, metadata: &current.metadata, is_finished };
    let takes_part = takes_part(&context, &watched).await?;
    match decide(&job, &context.policy.triggers, takes_part, found) {
        Decision::Create => create(&context, &watched, &job).await,
        Decision::Keep => Ok(Action::await_change()),
        Decision::AwaitDeletion => {
            Ok(Action::requeue(context.retry_later(&watched, JobState::Pending, DELETION_BACKOFF)))
        }
        Decision::SkipJob => {
            context.settle(&watched, JobState::Skipped);
            Ok(Action::await_change())
        }
        Decision::SkipNamespace => {
            context.settle(&watched, JobState::Skipped);
            Ok(resync())
        }
        Decision::Report { reason, message } => {
            context.settle(&watched, JobState::Unusable);
            if context.publish(&watched, reason, &message).await {
                warn!(job = context.display(&watched), problem = message, "reset ConfigMap unusable");
            }
            Ok(resync())
        }
    }
}

/// The delay after a reconcile that failed.
pub(crate) fn on_error(job: &JobMetadata, error: &RequestError, context: &Context) -> Action {
    let delay = context.retry_later(job, JobState::Pending, FAILURE_BACKOFF);
    warn!(job = context.display(job), %error, ?delay, "reconcile failed");
    Action::requeue(delay.max(error.retry_after()))
}

async fn create(context: &Context, watched: &JobMetadata, job: &Job<'_>) -> Result<Action, RequestError> {
    let config_map = config_map::new(job);
    let config_maps: Api<ConfigMap> = context.api(watched);
    let result = context.request(Operation::CreateConfigMap, || create_new(&config_maps, &config_map)).await;
    let error = match result {
        Ok(true) => {
            context.settle(watched, JobState::Ready);
            context.metrics.created.inc();
            info!(job = context.display(watched), "reset ConfigMap created");
            let message =
                "created the ConfigMap in which ClusterD records lost ranks, without which it saves nothing";
            context.publish(watched, CREATED, message).await;
            return Ok(Action::await_change());
        }
        // By another replica or a user. The next reconcile checks it.
        Ok(false) => {
            return Ok(Action::requeue(context.retry_later(watched, JobState::Pending, DELETION_BACKOFF)));
        }
        Err(error) => error,
    };
    match error.status() {
        Some(status) if is_namespace_terminating(status) || status.code == 404 => {
            context.settle(watched, JobState::Skipped);
            Ok(resync())
        }
        Some(status) if !error.is_transient() => {
            let message =
                format!("{}. Without the ConfigMap ClusterD saves nothing at a fault", status.message);
            let delay = context.retry_later(watched, JobState::Denied, FAILURE_BACKOFF);
            if context.publish(watched, NOT_CREATED, &message).await {
                warn!(job = context.display(watched), %error, "reset ConfigMap denied");
            }
            Ok(Action::requeue(delay.max(error.retry_after())))
        }
        _ => Err(error),
    }
}

/// The job as it is now; `None` if it was deleted or replaced.
async fn read_job(context: &Context, watched: &JobMetadata) -> Result<Option<JobObject>, RequestError> {
    let namespace = watched.namespace().unwrap_or_default();
    let jobs: Api<JobObject> =
        Api::namespaced_with(context.client.clone(), &namespace, &context.kind.resource());
    let name = watched.name_any();
    let job = context.request(Operation::GetJob, || jobs.get_opt(&name)).await?;
    Ok(job.filter(|job| job.metadata.uid == watched.metadata.uid))
}

/// Whether the job's namespace isn't being deleted and has no label `swansong.dev/inject: "false"`.
async fn takes_part(context: &Context, watched: &JobMetadata) -> Result<bool, RequestError> {
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let name = watched.namespace().unwrap_or_default();
    let namespace = context.request(Operation::GetNamespace, || namespaces.get_opt(&name)).await?;
    Ok(namespace.is_some_and(|namespace| {
        let is_opted_out = namespace.labels().get(INJECT).is_some_and(|value| value == "false");
        namespace.metadata.deletion_timestamp.is_none() && !is_opted_out
    }))
}

/// Creates an object. Returns whether it is new: another replica may have created it.
async fn create_new<K>(api: &Api<K>, object: &K) -> kube::Result<bool>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&parameters, object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        result => result.map(|_| true),
    }
}

fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

fn resync() -> Action {
    Action::requeue(jittered(RESYNC))
}

/// Spreads replicas and jobs.
fn jittered(delay: Duration) -> Duration {
    delay + delay.mul_f64(fastrand::f64() / 4.0)
}

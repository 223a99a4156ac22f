//! The self-managed certificate: keeps Secret, resolver and `caBundle` consistent.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::Client;
use swansong_runtime::backoff::{API_SERVER, Backoff};
use tokio::time::{Instant, sleep, timeout};

use crate::apply::{Outcome, apply};
use crate::ca_bundle::CaBundle;
use crate::clock::{Clock, ClockSkew};
use crate::decide::{Decision, decide};
use crate::error::ManagerError;
use crate::event::{Event, EventKind, Observer, Source};
use crate::renewal_limiter::RenewalLimiter;
use crate::resolver::Resolver;
use crate::rotation::RotationState;
use crate::secret_data::{RotationRequest, SecretData, TrustedCas, VerifiedSecret};
use crate::secret_store::{SecretStore, WriteOutcome};
use crate::settings::Settings;

/// The default interval between checks of Secret and `caBundle`.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Conflicts with other writers that are retried within one round.
const ATTEMPTS: usize = 5;

/// Timeout of each half of a round, Secret and `caBundle`. kube's own timeout is minutes.
const API_TIMEOUT: Duration = Duration::from_secs(15);

/// The objects that the manager maintains.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ManagedObjects {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret; `swansong-webhook-tls` in the manifests.
    pub secret: String,
    /// Name of the MutatingWebhookConfiguration.
    pub webhook_configuration: String,
}

/// Maintains Secret and `caBundle`, and publishes the pair to serve. Every replica runs one; there is no leader.
///
/// It requires `get` and `update` of the Secret, `create` of Secrets in its namespace, and `get` and `patch` of the
/// MutatingWebhookConfiguration.
pub struct Manager {
    store: SecretStore,
    bundle: CaBundle,
    settings: Settings,
    resolver: Arc<Resolver>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    failing: Vec<Source>,
    state: RotationState,
    limiter: RenewalLimiter,
    /// Set while this machine's clock differs from the API server's by more than the tolerance.
    skew: Option<ClockSkew>,
    /// The last event of each kind that describes a state.
    reported: HashMap<EventKind, Event>,
    started: Instant,
}

impl Manager {
    /// Creates a manager, which sends no requests before its first round.
    pub fn new(
        client: Client,
        objects: &ManagedObjects,
        settings: Settings,
        resolver: Arc<Resolver>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            store: SecretStore::new(client.clone(), &objects.namespace, &objects.secret),
            bundle: CaBundle::new(client, &objects.webhook_configuration),
            state: RotationState::default(),
            limiter: RenewalLimiter::new(settings.leaf_validity),
            settings,
            resolver,
            clock,
            observer,
            failing: Vec::new(),
            skew: None,
            reported: HashMap::new(),
            started: Instant::now(),
        }
    }

    /// Runs one round: the Secret is valid, the `caBundle` contains its CAs, and the pair is served.
    ///
    /// A new leaf is served when the API servers have had time to read its CA, or if there is no other valid leaf. A
    /// rotation advances by at most one step.
    pub async fn reconcile(&mut self) -> Result<(), ManagerError> {
        let outcome = self.round().await;
        if let Err(error) = &outcome {
            let source = error.source_of();
            if !self.failing.contains(&source) {
                self.failing.push(source);
            }
            self.observer.observe(&Event::Failed { source, error: error.to_string() });
        }
        outcome
    }

    /// Runs rounds without end, every `interval` with a jitter of a tenth. A failed round is retried with a backoff.
    pub async fn run(mut self, interval: Duration) -> Infallible {
        let mut backoff = Backoff::new(API_SERVER);
        loop {
            let delay = if self.reconcile().await.is_ok() {
                backoff.reset();
                interval.mul_f64(0.9 + 0.2 * fastrand::f64())
            } else {
                backoff.next_delay(None)
            };
            sleep(delay).await;
        }
    }

    async fn round(&mut self) -> Result<(), ManagerError> {
        let verified = with_timeout(Source::Secret, self.ensure_secret()).await?;
        self.recovered(Source::Secret);
        self.report_cas(&verified.cas);
        let bundle = self.ensure_bundle(&verified.cas).await;
        let has_valid_leaf = self.resolver.current().is_some_and(|pair| pair.not_after() >= self.now());
        let ca = verified.cas.current.id();
        if !has_valid_leaf || (bundle.is_ok() && self.state.may_serve(ca, self.tick(), &self.settings)) {
            self.serve(&verified);
        } else if bundle.is_ok() {
            let serial = verified.pair.serial().to_owned();
            self.report_change(Event::WaitingForCaBundle { serial, ca: ca.clone() });
        }
        bundle
    }

    async fn ensure_secret(&mut self) -> Result<VerifiedSecret, ManagerError> {
        let name = self.store.object().to_owned();
        let mut response = String::new();
        for _ in 0..ATTEMPTS {
            let read = self.store.read().await?;
            let now = self.update_skew(read.server_time);
            let data = read.stored.as_ref().map(|stored| &stored.data);
            if let Some(RotationRequest::Unknown(value)) = data.and_then(|data| data.request.as_ref()) {
                self.report_change(Event::UnknownRotationRequest { value: value.clone() });
            }
            let decision = self.decide(&name, data, now).await;
            let renewal = decision.renewal_reason();
            if let Some(reason) = &renewal
                && let Some((renewals, window)) = self.limiter.exceeded(self.tick())
            {
                let reason = reason.clone();
                return Err(ManagerError::RenewedTooOften { object: name, renewals, window, reason });
            }
            let update = match apply(decision, &name, data, now, &self.settings)? {
                Outcome::Unchanged(verified) => return Ok(*verified),
                Outcome::Changed(update) => update,
            };
            match self.store.write(read.stored, &update.data).await? {
                WriteOutcome::Stored => {
                    if renewal.is_some() {
                        let tick = self.tick();
                        self.limiter.record(tick);
                    }
                    update.events.iter().for_each(|event| self.observer.observe(event));
                    return Ok(update.verified);
                }
                WriteOutcome::Conflict(status) => response = status,
            }
        }
        Err(ManagerError::Conflict { source_of: Source::Secret, object: name, attempts: ATTEMPTS, response })
    }

    async fn decide(&self, name: &str, data: Option<&SecretData>, now: SystemTime) -> Decision {
        let decision = decide(name, data, now, &self.settings);
        let (Decision::Keep(verified), Some(data)) = (&decision, data) else { return decision };
        let Some(step) = self.state.next_step(verified, name, data, now, self.tick(), &self.settings) else {
            return decision;
        };
        if let Decision::Promote { next, .. } = &step {
            // The last observation may be old. The update of the bundle reports a failure of this request.
            let contains = self.bundle.contains(next.ca_certificate().id(), &verified.cas).await;
            if !contains.unwrap_or_default() {
                return decision;
            }
        }
        step
    }

    async fn ensure_bundle(&mut self, cas: &TrustedCas) -> Result<(), ManagerError> {
        let ensured = with_timeout(Source::CaBundle, self.bundle.ensure(cas, self.now())).await?;
        let tick = self.tick();
        // The bundle as found is recorded first: the settle time of a CA that was missing starts again.
        self.state.record_bundle(ensured.found, tick);
        if let Some((webhooks, after)) = ensured.updated {
            self.state.record_bundle(after, tick);
            let configuration = self.bundle.name().to_owned();
            self.observer.observe(&Event::CaBundleUpdated { configuration, webhooks });
        }
        self.recovered(Source::CaBundle);
        Ok(())
    }

    fn serve(&mut self, verified: &VerifiedSecret) {
        let pair = &verified.pair;
        self.state.record_serving(verified.cas.current.id());
        if self.resolver.current().is_some_and(|current| current.same_chain(pair)) {
            return;
        }
        self.resolver.publish(pair.clone());
        self.observer.observe(&Event::Loaded {
            source: Source::Secret,
            serial: pair.serial().to_owned(),
            not_after: pair.not_after(),
        });
    }

    /// Monotonic time, for waiting.
    fn tick(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time by which certificates are judged: this machine's, corrected by the skew.
    fn now(&self) -> SystemTime {
        let own = self.clock.now();
        self.skew.map_or(own, |skew| skew.correct(own))
    }

    /// API servers judge the leaf by their clock. Replicas that use it too don't replace each other's certificates when
    /// their own clocks differ.
    fn update_skew(&mut self, server_time: Option<SystemTime>) -> SystemTime {
        if let Some(server_time) = server_time {
            let skew = ClockSkew::between(self.clock.now(), server_time);
            let skew = (skew.by > self.settings.clock_tolerance).then_some(skew);
            match (self.skew, skew) {
                (None, Some(skew)) => self.observer.observe(&Event::ClockSkewDetected { skew }),
                (Some(_), None) => self.observer.observe(&Event::ClockSkewResolved),
                _ => {}
            }
            self.skew = skew;
        }
        self.now()
    }

    fn report_cas(&mut self, cas: &TrustedCas) {
        self.report_change(Event::CasChanged {
            current: cas.current.id().clone(),
            not_after: cas.current.not_after(),
            trusted: cas.desired(self.now()).count(),
            next_pending: cas.next.is_some(),
        });
    }

    /// Reports a state unless it is the last one of its kind that was reported.
    fn report_change(&mut self, event: Event) {
        if self.reported.get(&event.kind()) != Some(&event) {
            self.observer.observe(&event);
            self.reported.insert(event.kind(), event);
        }
    }

    fn recovered(&mut self, source: Source) {
        if let Some(position) = self.failing.iter().position(|failing| *failing == source) {
            self.failing.swap_remove(position);
            self.observer.observe(&Event::Recovered { source });
        }
    }
}

async fn with_timeout<T>(
    source_of: Source,
    work: impl Future<Output = Result<T, ManagerError>>,
) -> Result<T, ManagerError> {
    timeout(API_TIMEOUT, work).await.unwrap_or(Err(ManagerError::Timeout { source_of, after: API_TIMEOUT }))
}

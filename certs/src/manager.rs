//! The self-managed certificate: keeps Secret, resolver and `caBundle` consistent.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::Client;
use swansong_runtime::backoff::{API_SERVER, Backoff};
use tokio::time::{Instant, sleep, timeout};

use crate::apply::apply;
use crate::ca::Settings;
use crate::ca_bundle::CaBundle;
use crate::certificate::timestamp;
use crate::decide::{Decision, decide};
use crate::error::Error;
use crate::event::{Clock, ClockSkew, Event, EventKind, Observer, Source};
use crate::resolver::Resolver;
use crate::rotation::RotationState;
use crate::secret_data::{RotationRequest, SecretData, TrustedCas, VerifiedSecret};
use crate::secret_store::{ATTEMPTS, SecretStore};

/// The default interval between checks of Secret and `caBundle`.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of each half of a round, Secret and `caBundle`. kube's own timeout is minutes.
const API_TIMEOUT: Duration = Duration::from_secs(15);

/// The most renewals within [`RENEWAL_WINDOW`], enough for a first install and a rotation by hand soon after.
///
/// Without a limit, two Deployments with different names on one Secret, or a tool that restores an old Secret, would cause
/// a new certificate at every check.
const MAX_RENEWALS: usize = 3;

const RENEWAL_WINDOW: Duration = Duration::from_mins(10);

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
    clock: Clock,
    observer: Observer,
    failing: Vec<Source>,
    state: RotationState,
    /// When this replica renewed something within the window.
    renewals: VecDeque<Duration>,
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
        clock: Clock,
        observer: Observer,
    ) -> Self {
        Self {
            store: SecretStore::new(client.clone(), &objects.namespace, &objects.secret),
            bundle: CaBundle::new(client, &objects.webhook_configuration),
            settings,
            resolver,
            clock,
            observer,
            failing: Vec::new(),
            state: RotationState::default(),
            renewals: VecDeque::new(),
            skew: None,
            reported: HashMap::new(),
            started: Instant::now(),
        }
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

    /// Runs one round: the Secret is valid, the `caBundle` contains its CAs, and the pair is served.
    ///
    /// A new leaf is served when the API servers have had time to read its CA, or if there is no other valid leaf. A
    /// rotation advances by at most one step.
    pub async fn reconcile(&mut self) -> Result<(), Error> {
        let verified = with_timeout(self.ensure_secret()).await;
        let verified = self.report_outcome(Source::Secret, verified)?;
        self.report_cas(&verified.cas);
        let bundle = with_timeout(self.ensure_bundle(&verified.cas)).await;
        let bundle = self.report_outcome(Source::CaBundle, bundle);
        let has_valid_leaf = self.resolver.current().is_some_and(|pair| !pair.leaf.has_expired(self.now()));
        let ca = &verified.cas.current.id;
        if !has_valid_leaf || (bundle.is_ok() && self.state.may_serve(ca, self.tick(), &self.settings)) {
            self.serve(&verified);
        } else if bundle.is_ok() {
            let serial = verified.pair.leaf.serial.clone();
            self.report_change(Event::WaitingForCaBundle { serial, ca: ca.clone() });
        }
        bundle
    }

    async fn ensure_secret(&mut self) -> Result<VerifiedSecret, Error> {
        let name = self.store.object.clone();
        let mut response = String::new();
        for _ in 0..ATTEMPTS {
            let stored = self.store.read().await?;
            let now = self.update_skew();
            let data = stored.as_ref().map(|stored| &stored.data);
            if let Some(RotationRequest::Unknown(value)) = data.and_then(|data| data.request.as_ref()) {
                self.report_change(Event::UnknownRotationRequest { value: value.clone() });
            }
            let decision = match self.decide(&name, data, now).await {
                Decision::Keep(verified) => return Ok(*verified),
                decision => decision,
            };
            let is_renewal = decision.renewal_reason().is_some();
            if let Some(reason) = decision.renewal_reason() {
                self.check_renewals(&name, reason)?;
            }
            let update = apply(decision, &name, data, now, &self.settings)?;
            match self.store.write(stored, &update.data).await? {
                Ok(()) => {
                    if is_renewal {
                        self.renewals.push_back(self.tick());
                    }
                    update.events.iter().for_each(|event| (self.observer)(event));
                    return Ok(update.verified);
                }
                Err(status) => response = status,
            }
        }
        Err(Error::conflict(&name, ATTEMPTS, &response))
    }

    async fn decide(&self, name: &str, data: Option<&SecretData>, now: SystemTime) -> Decision {
        let decision = decide(name, data, now, &self.settings);
        let Decision::Keep(verified) = &decision else { return decision };
        let cas = &verified.cas;
        let Some(step) = self.state.next_step(cas, now, self.tick(), &self.settings) else {
            return decision;
        };
        if let (Decision::Promote(_), Some(next)) = (&step, &cas.next) {
            // The last observation may be old. The update of the bundle reports a failure of this request.
            if !self.bundle.contains(&next.id, cas).await.unwrap_or_default() {
                return decision;
            }
        }
        step
    }

    /// Returns an error if this replica has renewed certificates too often, since another writer reverts what it stores.
    fn check_renewals(&mut self, name: &str, reason: &str) -> Result<(), Error> {
        // Leaves that are valid for minutes may be renewed more often.
        let window = RENEWAL_WINDOW.min(self.settings.leaf_validity / 2);
        let tick = self.tick();
        self.renewals.retain(|at| tick.saturating_sub(*at) < window);
        if self.renewals.len() < MAX_RENEWALS {
            return Ok(());
        }
        Err(Error::new(format!(
            "this replica renewed {name} {MAX_RENEWALS} times within {} s and it is due again ({reason}); see the audit log \
             for other writers, and compare their clocks and --service names",
            window.as_secs()
        )))
    }

    async fn ensure_bundle(&mut self, cas: &TrustedCas) -> Result<(), Error> {
        let (found, updated) = self.bundle.ensure(cas, self.now()).await?;
        let tick = self.tick();
        // The bundle as found is recorded first: the settle time of a CA that was missing starts again.
        self.state.record_bundle(found, tick);
        if let Some((webhooks, after)) = updated {
            self.state.record_bundle(after, tick);
            let configuration = self.bundle.name.clone();
            (self.observer)(&Event::CaBundleUpdated { configuration, webhooks: webhooks.join(", ") });
        }
        Ok(())
    }

    fn serve(&mut self, verified: &VerifiedSecret) {
        let pair = &verified.pair;
        self.state.serving = Some(verified.cas.current.id.clone());
        if self.resolver.current().is_some_and(|current| current.certified.cert == pair.certified.cert) {
            return;
        }
        self.resolver.publish(pair.clone());
        (self.observer)(&Event::Loaded {
            source: Source::Secret,
            serial: pair.leaf.serial.clone(),
            not_after: timestamp(pair.leaf.not_after),
        });
    }

    /// Monotonic time, for waiting.
    fn tick(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time by which certificates are judged: this machine's, corrected by the skew.
    fn now(&self) -> SystemTime {
        let (own, skew) = ((self.clock)(), self.skew.map_or(0, |skew| skew.0));
        let by = Duration::from_secs(skew.unsigned_abs());
        let corrected = if skew > 0 { own.checked_sub(by) } else { own.checked_add(by) };
        corrected.unwrap_or(own)
    }

    /// API servers judge the leaf by their clock. Replicas that use it too don't replace each other's certificates when
    /// their own clocks differ.
    fn update_skew(&mut self) -> SystemTime {
        if let Some(server_time) = self.store.server_time {
            let seconds = timestamp((self.clock)()).as_second() - timestamp(server_time).as_second();
            let is_skewed = seconds.unsigned_abs() > self.settings.clock_tolerance.as_secs();
            let skew = is_skewed.then_some(ClockSkew(seconds));
            match (self.skew, skew) {
                (None, Some(skew)) => (self.observer)(&Event::ClockSkewDetected { skew }),
                (Some(_), None) => (self.observer)(&Event::ClockSkewResolved),
                _ => {}
            }
            self.skew = skew;
        }
        self.now()
    }

    fn report_cas(&mut self, cas: &TrustedCas) {
        self.report_change(Event::CasChanged {
            current: cas.current.id.clone(),
            not_after: timestamp(cas.current.not_after),
            trusted: cas.desired(self.now()).count(),
            next_pending: cas.next.is_some(),
        });
    }

    /// Reports a state unless it is the last one of its kind that was reported.
    fn report_change(&mut self, event: Event) {
        let kind = EventKind::from(&event);
        if self.reported.get(&kind) != Some(&event) {
            (self.observer)(&event);
            self.reported.insert(kind, event);
        }
    }

    /// Reports each failure, and the first success after one.
    fn report_outcome<T>(&mut self, source: Source, outcome: Result<T, Error>) -> Result<T, Error> {
        let failing = self.failing.iter().position(|failing| *failing == source);
        match (&outcome, failing) {
            (Ok(_), None) => {}
            (Ok(_), Some(position)) => {
                self.failing.swap_remove(position);
                (self.observer)(&Event::Recovered { source });
            }
            (Err(error), position) => {
                if position.is_none() {
                    self.failing.push(source);
                }
                (self.observer)(&Event::Failed { source, error: error.to_string() });
            }
        }
        outcome
    }
}

async fn with_timeout<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(API_TIMEOUT, work).await.unwrap_or_else(|_| {
        let seconds = API_TIMEOUT.as_secs();
        Err(Error::new(format!(
            "the API server didn't respond within {seconds} s; check whether this pod can reach it"
        )))
    })
}

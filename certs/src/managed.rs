//! The self-managed certificate: Secret, resolver and `caBundle` brought into line, again and again.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backon::{BackoffBuilder, ExponentialBuilder};
use kube::Client;
use tokio::time::{Instant, sleep, timeout};

use crate::api::ManageError;
use crate::ca_bundle::CaBundle;
use crate::clock::{Clock, Skew};
use crate::content::{Held, Request, SecretData};
use crate::decide::{Decision, decide};
use crate::event::{Event, Observer, Source};
use crate::issue::{Outcome, carry_out, take_step};
use crate::resolver::Resolver;
use crate::restraint::Restraint;
use crate::rotation::{Memory, Step};
use crate::secret::{SecretStore, Written};
use crate::settings::Settings;
use crate::told::Told;

/// How often Secret and `caBundle` are looked at unless told otherwise.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// How often another writer may come in between before the round gives up until the next.
const ATTEMPTS: usize = 5;

/// The longest that one side, Secret or `caBundle`, may take in a round. kube's own limit is minutes.
const API_TIMEOUT: Duration = Duration::from_secs(15);

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_mins(1);

/// The objects that are kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Objects {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret; by the manifests `swansong-webhook-tls`.
    pub secret: String,
    /// Name of the MutatingWebhookConfiguration.
    pub webhook_configuration: String,
}

/// Keeps Secret and `caBundle`, and gives the resolver what to serve. Every replica runs one; none leads.
///
/// It needs `get` and `update` of the one Secret, `create` of Secrets in its namespace, and `get` and `patch` of the one
/// MutatingWebhookConfiguration. A change of authority needs nothing beyond that.
pub struct Manager {
    store: SecretStore,
    bundle: CaBundle,
    settings: Settings,
    resolver: Arc<Resolver>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    failing: Vec<Source>,
    memory: Memory,
    restraint: Restraint,
    /// How far this machine's clock is off the API server's, when that is too far.
    skew: Option<Skew>,
    told: Told,
    /// The beginning of the time that nobody sets.
    began: Instant,
}

impl Manager {
    /// A manager that has done nothing yet.
    pub fn new(
        client: Client,
        objects: &Objects,
        settings: Settings,
        resolver: Arc<Resolver>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            store: SecretStore::new(client.clone(), &objects.namespace, &objects.secret),
            bundle: CaBundle::new(client, &objects.webhook_configuration),
            memory: Memory::new(&format!("replica-{:08x}", fastrand::u32(..))),
            restraint: Restraint::new(settings.leaf_validity),
            settings,
            resolver,
            clock,
            told: Told::new(Arc::clone(&observer)),
            observer,
            failing: Vec::new(),
            skew: None,
            began: Instant::now(),
        }
    }

    /// The same under the name of its pod, which is how it then shows in the annotation [`SERVING`](crate::SERVING).
    /// Without it the name is random. No two replicas may have the same.
    #[must_use]
    pub fn named(mut self, replica: &str) -> Self {
        self.memory = Memory::new(replica);
        self
    }

    /// One round: a sound Secret, a `caBundle` that trusts it, the pair served.
    ///
    /// A new leaf is served when the API servers have had time to learn of its authority, unless there is nothing
    /// better to serve. A change of authority goes on by at most one step.
    pub async fn ensure(&mut self) -> Result<(), ManageError> {
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

    /// Rounds for ever, one at once and then every `interval`, give or take a tenth so that replicas spread out.
    /// After a failure the next is sooner, and later with each further one.
    pub async fn run(mut self, interval: Duration) -> Infallible {
        let mut retries = None;
        loop {
            let pause = if self.ensure().await.is_ok() {
                retries = None;
                interval.mul_f64(0.9 + 0.2 * fastrand::f64())
            } else {
                retries.get_or_insert_with(|| backoff().build()).next().unwrap_or(LAST_RETRY)
            };
            sleep(pause).await;
        }
    }

    async fn round(&mut self) -> Result<(), ManageError> {
        let held = within(Source::Secret, self.ensure_secret()).await?;
        self.recovered(Source::Secret);
        self.told.authorities(&held.trust, self.now());
        let nothing_better = self.resolver.current().is_none_or(|pair| pair.not_after() < self.now());
        if nothing_better {
            self.serve(&held);
        }
        let ensured = within(Source::CaBundle, self.bundle.ensure(&held.trust, self.now())).await?;
        let tick = self.tick();
        // First what was found: for what was missing the waiting begins anew.
        self.memory.bundle_seen(ensured.found, tick);
        if let Some((set, after)) = ensured.set {
            self.memory.bundle_seen(after, tick);
            let configuration = self.bundle.name().to_owned();
            self.observer.observe(&Event::CaBundleSet { configuration, webhooks: set });
        }
        self.recovered(Source::CaBundle);
        let authority = held.trust.current.id();
        if self.memory.may_serve(authority, tick, &self.settings) {
            self.serve(&held);
        } else {
            self.told.held_back(held.pair.serial(), authority);
        }
        Ok(())
    }

    async fn ensure_secret(&mut self) -> Result<Held, ManageError> {
        let name = self.store.object().to_owned();
        let mut answer = String::new();
        for _ in 0..ATTEMPTS {
            let reading = self.store.read().await?;
            let now = self.agree(reading.server_time);
            let stored = reading.stored;
            let data = stored.as_ref().map(|stored| &stored.data);
            if let Some(Request::Unknown(value)) = data.and_then(|data| data.request.as_ref()) {
                self.told.ignored(value);
            }
            let decision = decide(&name, data, now, &self.settings);
            let renews = decision.renews();
            if let Some(reason) = &renews
                && let Some((times, within)) = self.restraint.exceeded(self.tick())
            {
                return Err(ManageError::Undone { object: name, times, within, reason: reason.clone() });
            }
            let fresh = match self.carry_out(decision, &name, data, now).await? {
                Outcome::Kept(held) => return Ok(*held),
                Outcome::Fresh(fresh) => fresh,
            };
            match self.store.write(stored, &fresh.data).await? {
                Written::Ours => {
                    if renews.is_some() {
                        let tick = self.tick();
                        self.restraint.renewed(tick);
                    }
                    for event in &fresh.events {
                        self.observer.observe(event);
                    }
                    return Ok(fresh.held);
                }
                Written::Overtaken(status) => answer = status,
            }
        }
        Err(ManageError::Contended { source_of: Source::Secret, object: name, attempts: ATTEMPTS, answer })
    }

    async fn carry_out(
        &mut self,
        decision: Decision,
        name: &str,
        data: Option<&SecretData>,
        now: SystemTime,
    ) -> Result<Outcome, ManageError> {
        let (Decision::Keep(held), Some(data)) = (&decision, data) else {
            return Ok(carry_out(decision, name, data, now, &self.settings)?);
        };
        let tick = self.tick();
        let step = self.memory.next_step(held, data, now, tick, &self.settings);
        if let (Step::Promote, Some(next)) = (&step, &held.trust.next) {
            // Looked at anew, since the last look may be long ago. A failure is met again, and told, when the bundle's
            // turn comes.
            let holds = self.bundle.holds(next.id(), &held.trust).await;
            if !holds.unwrap_or_default() {
                return Ok(Outcome::Kept(held.clone()));
            }
        }
        Ok(take_step(step, name, Held::clone(held), data, now, &self.settings)?)
    }

    fn serve(&mut self, held: &Held) {
        let pair = &held.pair;
        self.memory.serves(held.trust.current.id());
        let known = self.resolver.current().is_some_and(|current| current.same_chain(pair));
        if !known {
            self.resolver.publish(pair.clone());
            self.observer.observe(&Event::Loaded {
                source: Source::Secret,
                serial: pair.serial().to_owned(),
                not_after: pair.not_after(),
            });
        }
    }

    /// Time that nobody sets, for waiting.
    fn tick(&self) -> Duration {
        self.began.elapsed()
    }

    /// The time by which certificates are judged: this machine's, unless it is too far off the API server's.
    fn now(&self) -> SystemTime {
        let own = self.clock.now();
        self.skew.map_or(own, |skew| skew.correct(own))
    }

    /// The API server judges the leaf by its own clock, and all replicas ask the same API servers. Going by that clock
    /// keeps replicas whose clocks differ from replacing each other's certificates.
    fn agree(&mut self, server_time: Option<SystemTime>) -> SystemTime {
        if let Some(server_time) = server_time {
            let skew = Skew::between(self.clock.now(), server_time);
            let off = (skew.by > self.settings.skew_tolerance).then_some(skew);
            match (self.skew, off) {
                (None, Some(skew)) => self.observer.observe(&Event::ClockOff { skew }),
                (Some(_), None) => self.observer.observe(&Event::ClockRight),
                _ => {}
            }
            self.skew = off;
        }
        self.now()
    }

    fn recovered(&mut self, source: Source) {
        if let Some(position) = self.failing.iter().position(|failing| *failing == source) {
            self.failing.swap_remove(position);
            self.observer.observe(&Event::Recovered { source });
        }
    }
}

fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(FIRST_RETRY)
        .with_max_delay(LAST_RETRY)
        .without_max_times()
        .with_jitter()
}

async fn within<T>(
    source_of: Source,
    work: impl Future<Output = Result<T, ManageError>>,
) -> Result<T, ManageError> {
    timeout(API_TIMEOUT, work).await.unwrap_or(Err(ManageError::TimedOut { source_of, after: API_TIMEOUT }))
}

//! The self-managed certificate: Secret, resolver and `caBundle` brought into line, again and again.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use kube::Client;
use tokio::time::{sleep, timeout};

use crate::api::ManageError;
use crate::ca_bundle::CaBundle;
use crate::clock::Clock;
use crate::decide::{Held, Settings, decide};
use crate::event::{Event, Observer, Source};
use crate::issue::{Outcome, carry_out};
use crate::pair::Pair;
use crate::resolver::Resolver;
use crate::secret::{SecretStore, Written};

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
pub struct Manager {
    store: SecretStore,
    bundle: CaBundle,
    settings: Settings,
    resolver: Arc<Resolver>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    failing: Vec<Source>,
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
            settings,
            resolver,
            clock,
            observer,
            failing: Vec::new(),
        }
    }

    /// One round: a sound Secret, a `caBundle` that trusts it, the pair served.
    ///
    /// A new leaf is served after the bundle trusts its authority, unless there is nothing better to serve.
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
        let nothing_better = self.resolver.current().is_none_or(|pair| pair.not_after() < self.clock.now());
        if nothing_better {
            self.serve(&held.pair);
        }
        let set = self.bundle.ensure(&held.authority, self.clock.now());
        let set = within(Source::CaBundle, set).await?;
        if !set.is_empty() {
            let configuration = self.bundle.name().to_owned();
            self.observer.observe(&Event::CaBundleSet { configuration, webhooks: set });
        }
        self.recovered(Source::CaBundle);
        self.serve(&held.pair);
        Ok(())
    }

    async fn ensure_secret(&self) -> Result<Held, ManageError> {
        let name = self.store.object();
        let mut answer = String::new();
        for _ in 0..ATTEMPTS {
            let now = self.clock.now();
            let stored = self.store.read().await?;
            let data = stored.as_ref().map(|stored| &stored.data);
            let decision = decide(name, data, now, &self.settings);
            let fresh = match carry_out(decision, name, data, now, &self.settings)? {
                Outcome::Kept(held) => return Ok(*held),
                Outcome::Fresh(fresh) => fresh,
            };
            match self.store.write(stored, &fresh.data).await? {
                Written::Ours => {
                    for event in &fresh.events {
                        self.observer.observe(event);
                    }
                    return Ok(fresh.held);
                }
                Written::Overtaken(status) => answer = status,
            }
        }
        Err(ManageError::Contended {
            source_of: Source::Secret,
            object: name.to_owned(),
            attempts: ATTEMPTS,
            answer,
        })
    }

    fn serve(&self, pair: &Pair) {
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

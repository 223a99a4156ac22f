//! Random sequences of events: every API server trusts every leaf that is served, however late it reads the `caBundle`.
//!
//! The replicas are real, the API server is in memory, and time is paused. An API server may use any `caBundle` of the
//! past settle time. A replica that is cut off serves its leaf until it expires.

use std::time::Duration;

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use serde_json::json;
use swansong_certs::{Event, MAX_PREVIOUS, Pair, ROTATE, Settings, TRUSTED_UNTIL};
use swansong_fake_apiserver::FakeApiServer;
use tokio::time::{Instant, advance, timeout};

use crate::replica::{CONFIGURATION, Replica, SECRET, api_server, bundles_of, sizes, stored};
use crate::support::{TestClock, start};

const ROUND: Duration = Duration::from_secs(10);
const SETTLE_TIME: Duration = Duration::from_secs(30);

fn settings() -> Settings {
    Settings {
        ca_validity: Duration::from_hours(2),
        leaf_validity: Duration::from_mins(20),
        settle_time: SETTLE_TIME,
        clock_tolerance: Duration::from_mins(1),
        ..crate::support::settings()
    }
}

const PARTS: [&str; 7] =
    ["ca.crt", "ca.key", "tls.crt", "tls.key", "next-ca.crt", "next-ca.key", "previous-ca.crt"];

#[derive(Clone, Debug)]
enum Action {
    /// All replicas check this often, ten seconds apart.
    Pass(u8),
    Check(Index),
    /// Two replicas check concurrently, with interleaved requests.
    CheckConcurrently(Index, Index, Vec<u8>),
    /// A replica dies during a check, before or after its last request is served, and starts again.
    Die {
        which: Index,
        requests: u8,
        served: bool,
    },
    Restart(Index),
    /// Whether a replica is cut off from the API server.
    CutOff(Index, bool),
    SetClock(Index, i16),
    Request(&'static str),
    DeleteSecret,
    Corrupt(Index, Vec<u8>),
    ResetBundle(Index),
}

fn ordinary() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (1_u8..12).prop_map(Action::Pass),
        4 => any::<Index>().prop_map(Action::Check),
        3 => (any::<Index>(), any::<Index>(), proptest::collection::vec(0_u8..4, 12))
            .prop_map(|(one, two, yields)| Action::CheckConcurrently(one, two, yields)),
        3 => (any::<Index>(), 0_u8..5, any::<bool>())
            .prop_map(|(which, requests, served)| Action::Die { which, requests, served }),
        2 => any::<Index>().prop_map(Action::Restart),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(which, off)| Action::CutOff(which, off)),
        2 => (any::<Index>(), any::<i16>()).prop_map(|(which, minutes)| Action::SetClock(which, minutes)),
        3 => prop_oneof![Just("ca"), Just("ca"), Just("leaf"), Just("?")].prop_map(Action::Request),
    ]
}

fn damage() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => Just(Action::DeleteSecret),
        3 => (any::<Index>(), proptest::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(part, bytes)| Action::Corrupt(part, bytes)),
        1 => any::<Index>().prop_map(Action::ResetBundle),
    ]
}

struct Member {
    replica: Replica,
    cut_off: bool,
    /// It serves a leaf that is not trusted yet, since it had no other.
    excused: bool,
}

struct Simulation {
    api: FakeApiServer,
    members: Vec<Member>,
    time: TestClock,
    /// Until then a reset `caBundle` may be in use.
    reset_until: Instant,
}

impl Simulation {
    async fn new(size: usize) -> Self {
        let api = api_server();
        api.set_time(start());
        let now = Instant::now();
        let mut simulation =
            Self { api, members: Vec::new(), time: TestClock::new(), reset_until: now + SETTLE_TIME + ROUND };
        for _ in 0..size {
            let member = simulation.member();
            simulation.members.push(member);
        }
        for _ in 0..5 {
            simulation.pass().await;
        }
        simulation
    }

    fn member(&self) -> Member {
        let replica = Replica::with(&self.api, settings());
        replica.clock.set(self.time.now());
        Member { replica, cut_off: false, excused: false }
    }

    async fn check_member(&mut self, which: usize) {
        let member = &mut self.members[which];
        if member.cut_off {
            return;
        }
        let bundles = bundles_of(&self.api.get(CONFIGURATION).unwrap());
        let has_no_trusted_leaf = member
            .replica
            .resolver
            .current()
            .is_none_or(|pair| !bundles.iter().all(|bundle| trusts(bundle, &pair)));
        // Errors are allowed as long as the invariants hold.
        let _ = member.replica.manager.reconcile().await;
        member.excused |= has_no_trusted_leaf;
        self.assert_trusted();
    }

    async fn pass(&mut self) {
        advance(ROUND).await;
        self.time.pass(ROUND);
        self.api.set_time(self.time.now());
        for which in 0..self.members.len() {
            self.members[which].replica.clock.pass(ROUND);
            self.check_member(which).await;
        }
        self.assert_trusted();
    }

    fn assert_trusted(&mut self) {
        let now = Instant::now();
        let most = 2 + MAX_PREVIOUS + 1;
        assert!(sizes(&self.api).iter().all(|size| *size <= most), "{:?}", sizes(&self.api));
        if sizes(&self.api).contains(&0) {
            self.reset_until = now + 2 * SETTLE_TIME + 2 * ROUND;
        }
        let versions = self.versions(now);
        // Beyond the maximum, the oldest CA is dropped before its leaves have expired.
        let dropped = |event: &Event| matches!(event, Event::CaRetired { reason, .. } if reason == "there were too many");
        let any_dropped = self.members.iter().any(|member| member.replica.events.count(dropped) > 0);
        for member in &mut self.members {
            let Some(pair) = member.replica.resolver.current() else { continue };
            let trusted = versions.iter().all(|bundles| bundles.iter().all(|bundle| trusts(bundle, &pair)));
            if trusted {
                member.excused = false;
                continue;
            }
            let has_expired = pair.leaf.not_after < self.time.now();
            assert!(
                member.excused || any_dropped || has_expired || now < self.reset_until,
                "{} isn't trusted",
                pair.leaf.serial
            );
        }
    }

    /// The bundles that an API server may use.
    fn versions(&self, now: Instant) -> Vec<Vec<Vec<u8>>> {
        let mut versions = Vec::new();
        let mut until = now;
        for (since, configuration) in self.api.history(CONFIGURATION).iter().rev() {
            if now - until >= SETTLE_TIME {
                break;
            }
            // A version that was replaced at the same instant was never in use.
            if let Some(configuration) = configuration
                && (*since < until || versions.is_empty())
            {
                versions.push(bundles_of(configuration));
            }
            until = *since;
        }
        versions
    }

    async fn perform(&mut self, action: Action) {
        let size = self.members.len();
        match action {
            Action::Pass(rounds) => {
                for _ in 0..rounds {
                    self.pass().await;
                }
            }
            Action::Check(which) => self.check_member(which.index(size)).await,
            Action::CheckConcurrently(one, two, yields) => {
                let (one, two) = (one.index(size), two.index(size));
                if one == two || self.members[one].cut_off || self.members[two].cut_off {
                    return;
                }
                let (low, high) = self.members.split_at_mut(one.max(two));
                let (a, b) = (&mut low[one.min(two)], &mut high[0]);
                self.api.interleave(&yields);
                let _ = tokio::join!(a.replica.manager.reconcile(), b.replica.manager.reconcile());
                self.assert_trusted();
            }
            Action::Die { which, requests, served } => {
                let which = which.index(size);
                self.members[which].replica.lifetime.end_after(requests.into(), served);
                let check = self.members[which].replica.manager.reconcile();
                let _ = timeout(Duration::from_millis(1), check).await;
                self.assert_trusted();
                self.members[which] = self.member();
                self.check_member(which).await;
            }
            Action::Restart(which) => {
                let which = which.index(size);
                self.members[which] = self.member();
                self.check_member(which).await;
            }
            Action::CutOff(which, off) => self.members[which.index(size)].cut_off = off,
            Action::SetClock(which, minutes) => {
                let right = self.time.now();
                let off = Duration::from_secs(u64::from(minutes.unsigned_abs()) * 60);
                let set = if minutes < 0 { right - off } else { right + off };
                self.members[which.index(size)].replica.clock.set(set);
            }
            Action::Request(value) => {
                if self.api.get(SECRET).is_some() {
                    self.api.edit(SECRET, |secret| secret["metadata"]["annotations"][ROTATE] = json!(value));
                }
            }
            Action::DeleteSecret => self.api.delete(SECRET),
            Action::Corrupt(part, bytes) => self.corrupt(part, &bytes),
            Action::ResetBundle(which) => {
                let which = which.index(2);
                self.api.edit(CONFIGURATION, |object| {
                    object["webhooks"][which]["clientConfig"]["caBundle"] = json!("Cg==");
                });
                self.reset_until = Instant::now() + 2 * SETTLE_TIME + 2 * ROUND;
            }
        }
    }

    fn corrupt(&self, part: Index, bytes: &[u8]) {
        let Some(mut secret) = self.api.get(SECRET) else { return };
        match part.index(PARTS.len() + 1) {
            part if part < PARTS.len() => {
                let bytes = k8s_openapi::ByteString(bytes.to_vec());
                secret["data"][PARTS[part]] = serde_json::to_value(bytes).unwrap();
            }
            _ => secret["metadata"]["annotations"][TRUSTED_UNTIL] = json!(String::from_utf8_lossy(bytes)),
        }
        self.api.put(SECRET, secret);
    }

    /// Without further events all replicas serve one leaf of one CA.
    async fn assert_comes_to_rest(&mut self) {
        let right = self.time.now();
        for member in &mut self.members {
            member.cut_off = false;
            member.replica.clock.set(right);
        }
        for _ in 0..400 {
            self.pass().await;
            // A replica that renewed too often waits.
            if self.api.get(SECRET).is_none() {
                continue;
            }
            let secret = stored(&self.api);
            let mut serials: Vec<_> = self.members.iter().map(|member| member.replica.serial()).collect();
            serials.dedup();
            let at_rest = sizes(&self.api) == [1, 1] && serials.len() == 1 && secret.next_ca.is_empty();
            if at_rest {
                return;
            }
        }
        panic!("no rest: {:?}, {:?}", sizes(&self.api), stored(&self.api));
    }
}

pub(crate) fn trusts(bundle: &[u8], pair: &Pair) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok));
    // Expiry is checked elsewhere.
    let time = pair.leaf.not_before + Duration::from_secs(1);
    let time = time.duration_since(std::time::UNIX_EPOCH).unwrap();
    let algorithms = default_provider().signature_verification_algorithms.all;
    let leaf = ParsedCertificate::try_from(&pair.certified.cert[0]).unwrap();
    verify_server_cert_signed_by_trust_anchor(
        &leaf,
        &roots,
        &[],
        UnixTime::since_unix_epoch(time),
        algorithms,
    )
    .is_ok()
}

fn simulate(size: usize, actions: Vec<Action>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut simulation = Simulation::new(size).await;
        for action in actions {
            Box::pin(simulation.perform(action)).await;
        }
        simulation.assert_comes_to_rest().await;
    });
}

/// Few cases by default; `PROPTEST_CASES` sets more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 12 };
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 300, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_served_leaf_is_trusted(
        size in 1_usize..4,
        actions in proptest::collection::vec(ordinary(), 1..30),
    ) {
        simulate(size, actions);
    }

    #[test]
    fn every_served_leaf_is_trusted_after_damage(
        size in 1_usize..4,
        actions in proptest::collection::vec(prop_oneof![5 => ordinary(), 1 => damage()], 1..30),
    ) {
        simulate(size, actions);
    }
}

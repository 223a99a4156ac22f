//! Whatever happens in whatever order: what is served is trusted, by every API server, however late it learns.
//!
//! The replicas are the real ones; the API server is the one in memory; time is tokio's paused one. An API server may
//! go by any `caBundle` that was in force within the settle time before.

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
use swansong_certs::{MAX_PREVIOUS, Pair, ROTATE, SERVING, Settings};
use tokio::time::{Instant, advance, timeout};

use crate::fake_api::{CONFIGURATION, FakeApi, SECRET};
use crate::replica::{Replica, bundles_of, sizes, stored};
use crate::support::{Hands, start};

const ROUND: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(30);
const EXPIRY: Duration = Duration::from_mins(2);

fn settings() -> Settings {
    Settings {
        authority_validity: Duration::from_hours(2),
        leaf_validity: Duration::from_mins(20),
        settle: SETTLE,
        replica_expiry: EXPIRY,
        ..crate::support::settings()
    }
}

const PARTS: [&str; 7] =
    ["ca.crt", "ca.key", "tls.crt", "tls.key", "next-ca.crt", "next-ca.key", "previous-ca.crt"];

#[derive(Clone, Debug)]
enum Act {
    /// So many looks of everyone, ten seconds apart.
    Pass(u8),
    Look(Index),
    /// Two look at the same time, their requests mixed.
    LookTogether(Index, Index, Vec<u8>),
    /// Dies in the middle of a look, before or after its last request is carried out, and starts anew.
    Die {
        who: Index,
        requests: u8,
        carried_out: bool,
    },
    Restart(Index),
    /// Is cut off from the API server, or no longer.
    CutOff(Index, bool),
    SetClock(Index, i16),
    Request(&'static str),
    // And what must not happen, but does.
    DeleteSecret,
    Corrupt(Index, Vec<u8>),
    ResetBundle(Index),
}

fn ordinary() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1_u8..12).prop_map(Act::Pass),
        4 => any::<Index>().prop_map(Act::Look),
        3 => (any::<Index>(), any::<Index>(), proptest::collection::vec(0_u8..4, 12))
            .prop_map(|(one, two, pauses)| Act::LookTogether(one, two, pauses)),
        3 => (any::<Index>(), 0_u8..5, any::<bool>())
            .prop_map(|(who, requests, carried_out)| Act::Die { who, requests, carried_out }),
        2 => any::<Index>().prop_map(Act::Restart),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(who, off)| Act::CutOff(who, off)),
        2 => (any::<Index>(), any::<i16>()).prop_map(|(who, minutes)| Act::SetClock(who, minutes)),
        3 => prop_oneof![Just("ca"), Just("ca"), Just("leaf"), Just("?")].prop_map(Act::Request),
    ]
}

fn disaster() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::DeleteSecret),
        3 => (any::<Index>(), proptest::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(part, bytes)| Act::Corrupt(part, bytes)),
        1 => any::<Index>().prop_map(Act::ResetBundle),
    ]
}

struct Member {
    replica: Replica,
    cut_off: bool,
    last_look: Instant,
    /// It took what is not trusted yet, since it had nothing better.
    excused: bool,
    /// It was cut off for long, and its first look is just over.
    back: bool,
}

struct World {
    api: FakeApi,
    crew: Vec<Member>,
    time: Hands,
    /// Until then no `caBundle` can be relied on.
    reset_until: Instant,
    born: u32,
}

impl World {
    async fn new(size: usize) -> Self {
        let api = FakeApi::new();
        api.set_time(start());
        let now = Instant::now();
        let mut world =
            Self { api, crew: Vec::new(), time: Hands::new(), reset_until: now + SETTLE + ROUND, born: 0 };
        for _ in 0..size {
            let member = world.member();
            world.crew.push(member);
        }
        for _ in 0..5 {
            world.pass().await;
        }
        world
    }

    fn member(&mut self) -> Member {
        self.born += 1;
        let replica = Replica::with(&self.api, settings(), &format!("pod-{}", self.born));
        replica.clock.set(swansong_certs::Clock::now(&self.time));
        Member { replica, cut_off: false, last_look: Instant::now(), excused: false, back: false }
    }

    async fn look(&mut self, who: usize) {
        let member = &mut self.crew[who];
        if member.cut_off {
            return;
        }
        let bundles = bundles_of(&self.api.get(CONFIGURATION).unwrap());
        let nothing_better = member
            .replica
            .resolver
            .current()
            .is_none_or(|pair| !bundles.iter().all(|bundle| trusts(bundle, &pair)));
        // It may fail, and then has to do so without harm.
        if member.replica.manager.ensure().await.is_ok() {
            member.back = member.last_look.elapsed() > EXPIRY / 2;
            member.last_look = Instant::now();
        }
        member.excused |= nothing_better;
        self.check();
    }

    async fn pass(&mut self) {
        advance(ROUND).await;
        self.time.pass(ROUND);
        self.api.set_time(swansong_certs::Clock::now(&self.time));
        for who in 0..self.crew.len() {
            self.crew[who].replica.clock.pass(ROUND);
            self.look(who).await;
        }
        self.check();
    }

    fn check(&mut self) {
        let now = Instant::now();
        let most = 2 + MAX_PREVIOUS + 1;
        assert!(sizes(&self.api).iter().all(|size| *size <= most), "{:?}", sizes(&self.api));
        if sizes(&self.api).contains(&0) {
            self.reset_until = now + 2 * SETTLE + 2 * ROUND;
        }
        let versions = self.versions(now);
        for member in &mut self.crew {
            let Some(pair) = member.replica.resolver.current() else { continue };
            let trusted = versions.iter().all(|bundles| bundles.iter().all(|bundle| trusts(bundle, &pair)));
            if trusted {
                member.excused = false;
                continue;
            }
            // A node that the API server doesn't hear of either is taken out of the Service's endpoints long before.
            let out_of_touch = member.back || now - member.last_look > EXPIRY / 2;
            let ended = pair.not_after() < swansong_certs::Clock::now(&self.time);
            assert!(
                member.excused || out_of_touch || ended || now < self.reset_until,
                "{} isn't trusted",
                pair.serial()
            );
        }
    }

    /// The bundles that an API server may go by.
    fn versions(&self, now: Instant) -> Vec<Vec<Vec<u8>>> {
        let mut versions = Vec::new();
        let mut until = now;
        for (since, configuration) in self.api.history().iter().rev() {
            if now - until >= SETTLE {
                break;
            }
            // What stood for no time at all nobody saw.
            if *since < until || versions.is_empty() {
                versions.push(bundles_of(configuration));
            }
            until = *since;
        }
        versions
    }

    async fn act(&mut self, act: Act) {
        let size = self.crew.len();
        match act {
            Act::Pass(rounds) => {
                for _ in 0..rounds {
                    self.pass().await;
                }
            }
            Act::Look(who) => self.look(who.index(size)).await,
            Act::LookTogether(one, two, pauses) => {
                let (one, two) = (one.index(size), two.index(size));
                if one == two || self.crew[one].cut_off || self.crew[two].cut_off {
                    return;
                }
                let (low, high) = self.crew.split_at_mut(one.max(two));
                let (a, b) = (&mut low[one.min(two)], &mut high[0]);
                self.api.interleave(&pauses);
                let outcome = tokio::join!(a.replica.manager.ensure(), b.replica.manager.ensure());
                for (member, outcome) in [(a, outcome.0), (b, outcome.1)] {
                    if outcome.is_ok() {
                        member.back = member.last_look.elapsed() > EXPIRY / 2;
                        member.last_look = Instant::now();
                    }
                }
                self.check();
            }
            Act::Die { who, requests, carried_out } => {
                let who = who.index(size);
                self.crew[who].replica.life.ends_after(requests.into(), carried_out);
                let look = self.crew[who].replica.manager.ensure();
                let _ = timeout(Duration::from_millis(1), look).await;
                self.check();
                self.crew[who] = self.member();
                self.look(who).await;
            }
            Act::Restart(who) => {
                let who = who.index(size);
                self.crew[who] = self.member();
                self.look(who).await;
            }
            Act::CutOff(who, off) => self.crew[who.index(size)].cut_off = off,
            Act::SetClock(who, minutes) => {
                let right = swansong_certs::Clock::now(&self.time);
                let off = Duration::from_secs(u64::from(minutes.unsigned_abs()) * 60);
                let set = if minutes < 0 { right - off } else { right + off };
                self.crew[who.index(size)].replica.clock.set(set);
            }
            Act::Request(value) => {
                if self.api.get(SECRET).is_some() {
                    self.api.edit(SECRET, |secret| secret["metadata"]["annotations"][ROTATE] = json!(value));
                }
            }
            Act::DeleteSecret => self.api.delete(SECRET),
            Act::Corrupt(part, bytes) => self.corrupt(part, &bytes),
            Act::ResetBundle(which) => {
                let which = which.index(2);
                self.api.edit(CONFIGURATION, |object| {
                    object["webhooks"][which]["clientConfig"]["caBundle"] = json!("Cg==");
                });
                self.reset_until = Instant::now() + 2 * SETTLE + 2 * ROUND;
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
            _ => secret["metadata"]["annotations"][SERVING] = json!(String::from_utf8_lossy(bytes)),
        }
        self.api.put(SECRET, secret);
    }

    /// With everyone well, all ends in one authority and one leaf.
    async fn end(&mut self) {
        let right = swansong_certs::Clock::now(&self.time);
        for member in &mut self.crew {
            member.cut_off = false;
            member.replica.clock.set(right);
        }
        for _ in 0..200 {
            self.pass().await;
            // Whoever had to renew it too often waits a while.
            if self.api.get(SECRET).is_none() {
                continue;
            }
            let secret = stored(&self.api);
            let mut serials: Vec<_> = self.crew.iter().map(|member| member.replica.serial()).collect();
            serials.dedup();
            let calm = sizes(&self.api) == [1, 1]
                && serials.len() == 1
                && secret.next_certificate.is_empty()
                && secret.previous.is_empty()
                && secret.ledger.is_empty();
            if calm {
                return;
            }
        }
        panic!("it never came to rest: {:?}, {:?}", sizes(&self.api), stored(&self.api));
    }
}

fn trusts(bundle: &[u8], pair: &Pair) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok));
    // Whose leaf it is, is the question here, and not the time.
    let time = pair.not_before() + Duration::from_secs(1);
    let time = time.duration_since(std::time::UNIX_EPOCH).unwrap();
    let algorithms = default_provider().signature_verification_algorithms.all;
    let leaf = ParsedCertificate::try_from(&pair.chain()[0]).unwrap();
    verify_server_cert_signed_by_trust_anchor(
        &leaf,
        &roots,
        &[],
        UnixTime::since_unix_epoch(time),
        algorithms,
    )
    .is_ok()
}

fn play(size: usize, acts: Vec<Act>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(size).await;
        for act in acts {
            Box::pin(world.act(act)).await;
        }
        world.end().await;
    });
}

/// Enough for every day; `PROPTEST_CASES` for more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 12 };
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 300, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn in_the_course_of_things_every_leaf_is_trusted(
        size in 1_usize..4,
        acts in proptest::collection::vec(ordinary(), 1..30),
    ) {
        play(size, acts);
    }

    #[test]
    fn disasters_are_got_over_and_who_runs_stays_trusted(
        size in 1_usize..4,
        acts in proptest::collection::vec(prop_oneof![5 => ordinary(), 1 => disaster()], 1..30),
    ) {
        play(size, acts);
    }
}

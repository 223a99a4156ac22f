//! What the tests share: a clock that stands, a recorder of events, pairs to order.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swansong_certs::{
    Authority, Clock, Decision, Event, Fresh, Issued, Observer, Outcome, Pair, PemPair, SecretData, Settings,
    carry_out, decide,
};

pub(crate) const DAY: Duration = Duration::from_hours(24);
pub(crate) const NAME: &str = "Secret swansong/swansong-webhook-tls";
pub(crate) const DNS: &str = "swansong.swansong.svc";

/// A fixed moment; no test depends on when it runs.
pub(crate) fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_000_000)
}

pub(crate) fn settings() -> Settings {
    Settings::new(swansong_certs::service_names("swansong", "swansong"))
}

#[derive(Clone)]
pub(crate) struct Hands(Arc<Mutex<SystemTime>>);

impl Hands {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(start())))
    }

    pub(crate) fn set(&self, time: SystemTime) {
        *self.0.lock().unwrap() = time;
    }

    pub(crate) fn pass(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Clock for Hands {
    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }
}

#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(crate) fn seen(&self, what: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| what(event)).count()
    }
}

impl Observer for Recorder {
    fn observe(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

pub(crate) fn authority_of(issued: &Issued, now: SystemTime) -> Authority {
    let pem = PemPair {
        certificate_name: "ca.crt",
        certificate: issued.certificate.as_bytes(),
        key_name: "ca.key",
        key: issued.key.as_bytes(),
    };
    Authority::from_pem(&pem, now).unwrap()
}

/// A leaf for [`DNS`] of an authority of its own.
pub(crate) fn leaf() -> Issued {
    leaf_until(90 * DAY)
}

pub(crate) fn leaf_until(validity: Duration) -> Issued {
    let authority = authority_of(&Authority::create(start(), 3650 * DAY).unwrap(), start());
    authority.issue(&[DNS.to_owned()], start(), validity).unwrap()
}

pub(crate) fn pair_of(
    certificate: &[u8],
    key: &[u8],
    now: SystemTime,
) -> Result<Pair, swansong_certs::PairError> {
    Pair::from_pem(&PemPair { certificate_name: "tls.crt", certificate, key_name: "tls.key", key }, now)
}

/// What a first replica stores.
pub(crate) fn fresh(settings: &Settings, now: SystemTime) -> Fresh {
    carry_out_fresh(decide(NAME, None, now, settings), None, now, settings)
}

pub(crate) fn carry_out_fresh(
    decision: Decision,
    stored: Option<&SecretData>,
    now: SystemTime,
    settings: &Settings,
) -> Fresh {
    match carry_out(decision, NAME, stored, now, settings).unwrap() {
        Outcome::Fresh(fresh) => *fresh,
        Outcome::Kept(_) => panic!("nothing was made"),
    }
}

/// Lets other tasks run until the condition holds; the time that passes is tokio's paused one.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

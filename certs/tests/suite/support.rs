//! A clock to set, a recorder of events, and certificates.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swansong_certs::{
    CertificateAuthority, Clock, Decision, Event, IssuedCertificate, Observer, Outcome, Pair, PemPair,
    SecretData, SecretUpdate, Settings, apply, decide,
};

pub(crate) const DAY: Duration = Duration::from_hours(24);
pub(crate) const NAME: &str = "Secret swansong/swansong-webhook-tls";
pub(crate) const DNS: &str = "swansong.swansong.svc";

/// A fixed time, so that no test depends on when it runs.
pub(crate) fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_000_000)
}

pub(crate) fn settings() -> Settings {
    Settings::new(swansong_certs::service_names("swansong", "swansong"))
}

#[derive(Clone)]
pub(crate) struct TestClock(Arc<Mutex<SystemTime>>);

impl TestClock {
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

impl Clock for TestClock {
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

    pub(crate) fn count(&self, is_counted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| is_counted(event)).count()
    }
}

impl Observer for Recorder {
    fn observe(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

pub(crate) fn ca_of(issued: &IssuedCertificate, now: SystemTime) -> CertificateAuthority {
    let pem = PemPair {
        certificate_name: "ca.crt",
        certificate: issued.certificate.as_bytes(),
        key_name: "ca.key",
        key: issued.key.as_bytes(),
    };
    CertificateAuthority::from_pem(&pem, now).unwrap()
}

/// A leaf for [`DNS`] of a new CA.
pub(crate) fn leaf() -> IssuedCertificate {
    leaf_until(90 * DAY)
}

pub(crate) fn leaf_until(validity: Duration) -> IssuedCertificate {
    let ca = ca_of(&CertificateAuthority::create(start(), 3650 * DAY).unwrap(), start());
    ca.issue(&[DNS.to_owned()], start(), validity).unwrap()
}

pub(crate) fn pair_of(
    certificate: &[u8],
    key: &[u8],
    now: SystemTime,
) -> Result<Pair, swansong_certs::PairError> {
    Pair::from_pem(&PemPair { certificate_name: "tls.crt", certificate, key_name: "tls.key", key }, now)
}

/// The content that the first replica stores.
pub(crate) fn fresh(settings: &Settings, now: SystemTime) -> SecretUpdate {
    apply_changed(decide(NAME, None, now, settings), None, now, settings)
}

pub(crate) fn apply_changed(
    decision: Decision,
    stored: Option<&SecretData>,
    now: SystemTime,
    settings: &Settings,
) -> SecretUpdate {
    match apply(decision, NAME, stored, now, settings).unwrap() {
        Outcome::Changed(update) => *update,
        Outcome::Unchanged(_) => panic!("unchanged"),
    }
}

/// Lets other tasks run until the condition holds, in tokio's paused time.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

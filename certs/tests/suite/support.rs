//! A clock to set, a recorder of events, and certificates.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swansong_certs::{
    CertificateAuthority, Clock, Decision, Event, Observer, Pair, PemPair, SecretData, SecretUpdate,
    Settings, apply, decide,
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

    pub(crate) fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }

    pub(crate) fn as_clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }

    pub(crate) fn pass(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(crate) fn observer(&self) -> Observer {
        let events = Arc::clone(&self.0);
        Arc::new(move |event| events.lock().unwrap().push(event.clone()))
    }

    pub(crate) fn count(&self, is_counted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| is_counted(event)).count()
    }
}

/// A new certificate and its key as text.
pub(crate) struct IssuedCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl From<PemPair> for IssuedCertificate {
    fn from(pem: PemPair) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { certificate: text(pem.certificate), key: text(pem.key) }
    }
}

pub(crate) fn create_ca(now: SystemTime, validity: Duration) -> IssuedCertificate {
    CertificateAuthority::create(now, validity).unwrap().into()
}

pub(crate) fn ca_of(issued: &IssuedCertificate, now: SystemTime) -> CertificateAuthority {
    let pem = PemPair { certificate: issued.certificate.clone().into(), key: issued.key.clone().into() };
    CertificateAuthority::from_pem(&pem, "ca.crt", "ca.key", now).unwrap()
}

/// A leaf for [`DNS`] of a new CA.
pub(crate) fn leaf() -> IssuedCertificate {
    leaf_until(90 * DAY)
}

pub(crate) fn leaf_until(validity: Duration) -> IssuedCertificate {
    let ca = ca_of(&create_ca(start(), 3650 * DAY), start());
    ca.issue(&[DNS.to_owned()], start(), validity).unwrap().into()
}

pub(crate) fn pair_of(
    certificate: &[u8],
    key: &[u8],
    now: SystemTime,
) -> Result<Pair, swansong_certs::Error> {
    let pem = PemPair { certificate: certificate.to_vec(), key: key.to_vec() };
    Pair::from_pem(&pem, "tls.crt", "tls.key", now)
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
    assert!(!matches!(decision, Decision::Keep(_)), "unchanged");
    apply(decision, NAME, stored, now, settings).unwrap()
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

use std::io;
use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::{Error as TlsError, PeerIncompatible};
use strum::VariantArray;

use crate::metrics::registered;

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Closed {
    /// No request arrived for long.
    Idle,
    /// The head of a request took too long.
    SlowHead,
    /// A request took too long.
    SlowRequest,
    /// The client didn't read its response.
    SlowReader,
    /// The connection was idle, and a new one needed its slot.
    Evicted,
    /// The connection got no slot.
    Limit,
}

/// Why a TLS handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum HandshakeFailure {
    /// It took too long.
    Timeout,
    /// The client closed the connection.
    Closed,
    /// The client supports only versions that are too old.
    TlsVersion,
    /// The client showed no certificate, or one that isn't trusted.
    ClientCertificate,
    /// The client rejected the handshake, as when it doesn't trust the server's certificate.
    RejectedByClient,
    /// Any other error.
    Other,
}

impl HandshakeFailure {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(TlsError::PeerIncompatible(
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SupportedVersionsExtensionRequired,
            )) => Self::TlsVersion,
            Some(TlsError::NoCertificatesPresented | TlsError::InvalidCertificate(_)) => {
                Self::ClientCertificate
            }
            Some(TlsError::AlertReceived(_)) => Self::RejectedByClient,
            Some(_) => Self::Other,
            None => Self::Closed,
        }
    }
}

/// Metrics of a server's connections.
#[derive(Debug, Clone, Default)]
pub struct ConnectionMetrics {
    pub(super) open: Gauge<i64, AtomicI64>,
    pub(super) accepted: Counter,
    pub(super) handshakes: Gauge<i64, AtomicI64>,
    closed: Family<CauseLabel, Counter>,
    handshake_failures: Family<CauseLabel, Counter>,
}

type CauseLabel = [(&'static str, &'static str); 1];

impl ConnectionMetrics {
    /// Registers the metrics. A server whose connections need no metrics uses the default.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            open: registered(registry, "connections", "Open connections"),
            accepted: registered(registry, "connections_accepted", "Accepted connections"),
            handshakes: registered(registry, "tls_handshakes_in_progress", "TLS handshakes in progress"),
            closed: registered(
                registry,
                "connections_closed",
                "Connections that the server closed, by cause",
            ),
            handshake_failures: registered(
                registry,
                "tls_handshake_failures",
                "TLS handshakes that failed, by cause",
            ),
        };
        // Alerts need the series before the first event.
        create_series::<Closed>(&metrics.closed);
        create_series::<HandshakeFailure>(&metrics.handshake_failures);
        metrics
    }

    pub(super) fn closed(&self, cause: Closed) {
        self.closed.get_or_create(&[("cause", cause.into())]).inc();
    }

    pub(super) fn handshake_failed(&self, cause: HandshakeFailure) {
        self.handshake_failures.get_or_create(&[("cause", cause.into())]).inc();
    }
}

fn create_series<C: VariantArray + Copy + Into<&'static str>>(family: &Family<CauseLabel, Counter>) {
    for cause in C::VARIANTS {
        family.get_or_create_owned(&[("cause", (*cause).into())]);
    }
}

/// Keeps a gauge one higher until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard<'m>(&'m Gauge<i64, AtomicI64>);

impl<'m> GaugeGuard<'m> {
    /// Increments the gauge.
    pub fn new(gauge: &'m Gauge<i64, AtomicI64>) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

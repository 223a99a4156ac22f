//! Client certificates: the CAs that sign them, from a file that may change while the server runs.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error as RustlsError, SignatureScheme};
use swansong_runtime::config::poll;

use crate::event::{Event, Observer, Source};
use crate::read_error::remedy;
use crate::tls::{ClientCas, TlsError, client_verifier};

/// Verifies client certificates by the current CAs. A handshake reads one pointer and never waits.
///
/// [`server_config_with_clients`](crate::server_config_with_clients) takes it once, and [`ClientVerifier::replace`] sets
/// new CAs. Open connections remain open.
#[derive(Debug)]
pub struct ClientVerifier {
    rules: ArcSwap<Rules>,
    pem: Mutex<Vec<u8>>,
}

/// A verifier, and the keys of session tickets, which spare clients a second verification.
#[derive(Debug)]
struct Rules {
    verifier: Arc<dyn ClientCertVerifier>,
    tickets: Arc<dyn ProducesTickets>,
}

impl Rules {
    fn new(cas: &ClientCas) -> Result<Self, TlsError> {
        Ok(Self { verifier: client_verifier(cas)?, tickets: Ticketer::new()? })
    }
}

impl ClientVerifier {
    /// Creates a verifier with these CAs.
    pub fn new(cas: &ClientCas) -> Result<Arc<Self>, TlsError> {
        let rules = ArcSwap::from_pointee(Rules::new(cas)?);
        Ok(Arc::new(Self { rules, pem: Mutex::new(cas.pem.clone()) }))
    }

    /// Verifies by these CAs from the next handshake on. Returns whether they differ from the previous ones. Invalid CAs
    /// change nothing.
    pub fn replace(&self, cas: &ClientCas) -> Result<bool, TlsError> {
        let mut pem = self.pem.lock().unwrap_or_else(PoisonError::into_inner);
        if *pem == cas.pem {
            return Ok(false);
        }
        self.rules.store(Arc::new(Rules::new(cas)?));
        pem.clone_from(&cas.pem);
        Ok(true)
    }
}

impl ClientCertVerifier for ClientVerifier {
    /// Empty: hints would have to be borrowed from CAs that may be replaced, and an API server, which has one
    /// certificate, needs none.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, RustlsError> {
        self.rules.load().verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.rules.load().verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.rules.load().verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.rules.load().verifier.supported_verify_schemes()
    }
}

impl ProducesTickets for ClientVerifier {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.rules.load().tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.rules.load().tickets.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.rules.load().tickets.decrypt(cipher)
    }
}

/// Why the file contains no valid CAs. The last valid ones stay in use.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// The file can't be read.
    #[error("{path} can't be read: {}", remedy(problem))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        problem: io::Error,
    },
    /// The content is invalid.
    #[error(transparent)]
    Invalid(#[from] TlsError),
}

/// Updates a [`ClientVerifier`] from a PEM file of CAs, which is read every few seconds and compared by content.
pub struct ClientCaWatcher {
    path: PathBuf,
    verifier: Arc<ClientVerifier>,
    observer: Arc<dyn Observer>,
    failing: Option<String>,
}

impl ClientCaWatcher {
    /// Reads the file for the first time. The server ends with the error, so that a wrong mount is noticed.
    pub fn open(path: impl AsRef<Path>, observer: Arc<dyn Observer>) -> Result<Self, ClientCaError> {
        let path = path.as_ref().to_owned();
        let cas = read(&path)?;
        let watcher = Self { verifier: ClientVerifier::new(&cas)?, path, observer, failing: None };
        watcher.report_loaded(&cas);
        Ok(watcher)
    }

    /// Returns the verifier.
    pub const fn verifier(&self) -> &Arc<ClientVerifier> {
        &self.verifier
    }

    /// Reads the file once. A failure is reported when it begins or changes, and its end as `Recovered`.
    pub fn poll(&mut self) -> Result<(), ClientCaError> {
        let cas = read(&self.path);
        self.process(cas)
    }

    /// Reads the file every `every` without end.
    pub async fn run(mut self, every: Duration) -> Infallible {
        let path = self.path.clone();
        // `process` reports failures, and the next poll retries.
        poll(every, move || read(&path), |cas| drop(self.process(cas))).await
    }

    fn process(&mut self, cas: Result<ClientCas, ClientCaError>) -> Result<(), ClientCaError> {
        let outcome = cas.and_then(|cas| {
            let new = self.verifier.replace(&cas)?;
            Ok(new.then_some(cas))
        });
        match outcome {
            Ok(new) => {
                if self.failing.take().is_some() {
                    self.observer.observe(&Event::Recovered { source: Source::ClientCa });
                }
                if let Some(cas) = new {
                    self.report_loaded(&cas);
                }
                Ok(())
            }
            Err(error) => {
                let text = error.to_string();
                if self.failing.as_ref() != Some(&text) {
                    self.observer.observe(&Event::Failed { source: Source::ClientCa, error: text.clone() });
                    self.failing = Some(text);
                }
                Err(error)
            }
        }
    }

    fn report_loaded(&self, cas: &ClientCas) {
        self.observer.observe(&Event::ClientCaLoaded { cas: cas.count() });
    }
}

fn read(path: &Path) -> Result<ClientCas, ClientCaError> {
    match fs::read(path) {
        Ok(pem) => Ok(ClientCas { name: path.display().to_string(), pem }),
        Err(problem) => Err(ClientCaError::Read { path: path.to_owned(), problem }),
    }
}

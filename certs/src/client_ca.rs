//! Client certificates: the CAs that sign them, from a file that may change while the server runs.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error as RustlsError, RootCertStore, SignatureScheme,
};
use swansong_runtime::config::poll;

use crate::event::{Event, FailureReporter, Observer, Source};
use crate::pair::read_chain;
use crate::read_error::{ReadError, read_file};
use crate::tls_error::TlsError;

/// Verifies client certificates by the current CAs. A handshake reads one pointer and never waits.
///
/// [`server_config`](crate::server_config) takes it once, and [`ClientVerifier::replace`] sets new CAs. Open connections
/// remain open.
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
    cas: usize,
}

impl Rules {
    /// One invalid certificate is an error: leaving it out would lock out its clients without an explanation.
    fn new(name: &str, pem: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_chain(name, pem)? {
            let failed =
                |error: RustlsError| TlsError::ClientCa { name: name.to_owned(), problem: error.to_string() };
            roots.add(certificate).map_err(failed)?;
        }
        let cas = roots.len();
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { verifier, tickets: Ticketer::new()?, cas })
    }
}

impl ClientVerifier {
    /// Creates a verifier with the CAs of a PEM text. `name` is its name in errors, for example the file path.
    pub fn new(name: &str, pem: &[u8]) -> Result<Arc<Self>, TlsError> {
        let rules = ArcSwap::from_pointee(Rules::new(name, pem)?);
        Ok(Arc::new(Self { rules, pem: Mutex::new(pem.to_owned()) }))
    }

    /// Verifies by these CAs from the next handshake on. Returns whether they differ from the previous ones. Invalid CAs
    /// change nothing.
    pub fn replace(&self, name: &str, pem: &[u8]) -> Result<bool, TlsError> {
        let mut current = self.pem.lock().unwrap_or_else(PoisonError::into_inner);
        if *current == pem {
            return Ok(false);
        }
        self.rules.store(Arc::new(Rules::new(name, pem)?));
        pem.clone_into(&mut current);
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
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The content is invalid.
    #[error(transparent)]
    Invalid(#[from] TlsError),
}

/// Updates a [`ClientVerifier`] from a PEM file of CAs, which is read every few seconds and compared by content.
pub struct ClientCaWatcher {
    path: PathBuf,
    verifier: Arc<ClientVerifier>,
    observer: Arc<dyn Observer>,
    failures: FailureReporter,
}

impl ClientCaWatcher {
    /// Reads the file for the first time. The server ends with the error, so that a wrong mount is noticed.
    pub fn open(path: impl AsRef<Path>, observer: Arc<dyn Observer>) -> Result<Self, ClientCaError> {
        let path = path.as_ref().to_owned();
        let pem = read_file(&path)?;
        let verifier = ClientVerifier::new(&path.display().to_string(), &pem)?;
        let failures = FailureReporter::new(Source::ClientCa, Arc::clone(&observer));
        let watcher = Self { path, verifier, observer, failures };
        watcher.report_loaded();
        Ok(watcher)
    }

    /// Returns the verifier.
    pub const fn verifier(&self) -> &Arc<ClientVerifier> {
        &self.verifier
    }

    /// Reads the file once. A failure is reported when it begins or changes, and its end as `Recovered`.
    pub fn poll(&mut self) -> Result<(), ClientCaError> {
        let pem = read_file(&self.path);
        self.process(pem)
    }

    /// Reads the file every `every` without end.
    pub async fn run(mut self, every: Duration) -> Infallible {
        let path = self.path.clone();
        // `process` reports failures, and the next poll retries.
        poll(every, move || read_file(&path), |pem| drop(self.process(pem))).await
    }

    fn process(&mut self, pem: Result<Vec<u8>, ReadError>) -> Result<(), ClientCaError> {
        let name = self.path.display().to_string();
        let replaced = pem
            .map_err(ClientCaError::from)
            .and_then(|pem| self.verifier.replace(&name, &pem).map_err(ClientCaError::from));
        match &replaced {
            Ok(replaced) => {
                self.failures.recovered();
                if *replaced {
                    self.report_loaded();
                }
            }
            Err(error) => self.failures.failed(error),
        }
        replaced.map(drop)
    }

    fn report_loaded(&self) {
        self.observer.observe(&Event::ClientCaLoaded { cas: self.verifier.rules.load().cas });
    }
}

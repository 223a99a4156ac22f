//! Which clients are let in, by a file of authorities that may change while the server runs.

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
use crate::tls::{ClientRoots, TlsError, client_verifier};
use crate::unreadable::remedy;

/// Judges clients by the roots of the moment; a handshake reads one pointer and waits for nobody.
///
/// Give it to [`server_config_with_clients`](crate::server_config_with_clients) once, and new roots to
/// [`ClientTrust::replace`] as they come. Connections that are open stay open.
#[derive(Debug)]
pub struct ClientTrust {
    rules: ArcSwap<Rules>,
    pem: Mutex<Vec<u8>>,
}

/// What goes together: who is let in, and the keys of the tickets that spare them being judged again.
#[derive(Debug)]
struct Rules {
    verifier: Arc<dyn ClientCertVerifier>,
    tickets: Arc<dyn ProducesTickets>,
}

impl Rules {
    fn new(roots: &ClientRoots) -> Result<Self, TlsError> {
        Ok(Self { verifier: client_verifier(roots)?, tickets: Ticketer::new()? })
    }
}

impl ClientTrust {
    /// Begins with these roots.
    pub fn new(roots: &ClientRoots) -> Result<Arc<Self>, TlsError> {
        let rules = ArcSwap::from_pointee(Rules::new(roots)?);
        Ok(Arc::new(Self { rules, pem: Mutex::new(roots.pem.clone()) }))
    }

    /// Judges by these roots from the next handshake on, and says whether they are others than before. When they are
    /// unsound nothing changes.
    pub fn replace(&self, roots: &ClientRoots) -> Result<bool, TlsError> {
        let mut pem = self.pem.lock().unwrap_or_else(PoisonError::into_inner);
        if *pem == roots.pem {
            return Ok(false);
        }
        self.rules.store(Arc::new(Rules::new(roots)?));
        pem.clone_from(&roots.pem);
        Ok(true)
    }
}

impl ClientCertVerifier for ClientTrust {
    /// No hints: they would have to be borrowed from roots that may be replaced meanwhile, and an API server has one
    /// certificate to show and needs none.
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

impl ProducesTickets for ClientTrust {
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

/// Why the file holds no roots to judge clients by. The last good ones stay in use.
#[derive(Debug, thiserror::Error)]
pub enum ClientRootsError {
    /// The file can't be read.
    #[error("{path} can't be read: {}", remedy(problem))]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        problem: io::Error,
    },
    /// What was read is of no use.
    #[error(transparent)]
    Roots(#[from] TlsError),
}

/// Keeps a [`ClientTrust`] as its file says: one or more authorities as PEM.
///
/// Like a pair's files it is read again every few seconds and compared by content, which works for every way in which
/// files are changed. What is no good leaves the last good roots in use.
pub struct ClientRootsWatcher {
    path: PathBuf,
    trust: Arc<ClientTrust>,
    observer: Arc<dyn Observer>,
    failing: Option<String>,
}

impl ClientRootsWatcher {
    /// Reads the file for the first time. With an error the server ends, so that a wrong mount is seen at once.
    pub fn open(path: impl AsRef<Path>, observer: Arc<dyn Observer>) -> Result<Self, ClientRootsError> {
        let path = path.as_ref().to_owned();
        let roots = read(&path)?;
        let watcher = Self { trust: ClientTrust::new(&roots)?, path, observer, failing: None };
        watcher.tell_loaded(&roots);
        Ok(watcher)
    }

    /// What it keeps.
    pub const fn trust(&self) -> &Arc<ClientTrust> {
        &self.trust
    }

    /// Looks once. A failure is told when it begins or changes, not at every look; its end is told as `Recovered`.
    pub fn poll(&mut self) -> Result<(), ClientRootsError> {
        let roots = read(&self.path);
        self.consider(roots)
    }

    /// Looks every `every`, for ever.
    pub async fn run(mut self, every: Duration) -> Infallible {
        let path = self.path.clone();
        // A failure is told to the observer, and met again at the next look.
        poll(every, move || read(&path), |roots| drop(self.consider(roots))).await
    }

    fn consider(&mut self, roots: Result<ClientRoots, ClientRootsError>) -> Result<(), ClientRootsError> {
        let outcome = roots.and_then(|roots| {
            let new = self.trust.replace(&roots)?;
            Ok(new.then_some(roots))
        });
        match outcome {
            Ok(new) => {
                if self.failing.take().is_some() {
                    self.observer.observe(&Event::Recovered { source: Source::ClientRoots });
                }
                if let Some(roots) = new {
                    self.tell_loaded(&roots);
                }
                Ok(())
            }
            Err(error) => {
                let text = error.to_string();
                if self.failing.as_ref() != Some(&text) {
                    self.observer
                        .observe(&Event::Failed { source: Source::ClientRoots, error: text.clone() });
                    self.failing = Some(text);
                }
                Err(error)
            }
        }
    }

    fn tell_loaded(&self, roots: &ClientRoots) {
        self.observer.observe(&Event::ClientRootsLoaded { authorities: roots.count() });
    }
}

fn read(path: &Path) -> Result<ClientRoots, ClientRootsError> {
    match fs::read(path) {
        Ok(pem) => Ok(ClientRoots { name: path.display().to_string(), pem }),
        Err(problem) => Err(ClientRootsError::Read { path: path.to_owned(), problem }),
    }
}

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::{ServerConfig, SupportedProtocolVersion};
use swansong_runtime::config::poll;

use crate::error::{Error, read_file};
use crate::event::{Event, FailureReporter, Observer, Source};
use crate::resolver::Resolver;
use crate::tls::{build, client_cas};

/// The TLS configuration of a server whose clients need a certificate, by a PEM file of CAs that is read every few seconds
/// and compared by content.
///
/// New CAs replace the whole configuration, with the keys of its session tickets, since a client that resumes a session
/// presents no certificate. Open connections remain open.
pub struct ClientCaWatcher {
    path: PathBuf,
    pem: Vec<u8>,
    resolver: Arc<Resolver>,
    versions: Vec<&'static SupportedProtocolVersion>,
    config: Arc<ArcSwap<ServerConfig>>,
    observer: Observer,
    failures: FailureReporter,
}

impl ClientCaWatcher {
    /// Reads the file for the first time. The server ends with the error, so that a wrong mount is noticed.
    pub fn open(
        path: impl AsRef<Path>,
        resolver: Arc<Resolver>,
        versions: &[&'static SupportedProtocolVersion],
        observer: Observer,
    ) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let pem = read_file(&path)?;
        let cas = client_cas(&path.display().to_string(), &pem)?;
        observer(&Event::ClientCaLoaded { cas: cas.len() });
        let config = build(Arc::clone(&resolver), versions, Some(cas))?;
        let config = Arc::new(ArcSwap::from_pointee(config));
        let failures = FailureReporter::new(Source::ClientCa, Arc::clone(&observer));
        Ok(Self { path, pem, resolver, versions: versions.to_vec(), config, observer, failures })
    }

    /// Returns the configuration for new connections, which changes with the file.
    pub const fn config(&self) -> &Arc<ArcSwap<ServerConfig>> {
        &self.config
    }

    /// Reads the file once. A failure is reported when it begins or changes, and its end as `Recovered`.
    pub fn poll(&mut self) -> Result<(), Error> {
        self.process(read_file(&self.path))
    }

    /// Reads the file every `every` without end.
    pub async fn run(mut self, every: Duration) -> Infallible {
        let path = self.path.clone();
        // `process` reports failures, and the next poll retries.
        poll(every, move || read_file(&path), |pem| drop(self.process(pem))).await
    }

    fn process(&mut self, pem: Result<Vec<u8>, Error>) -> Result<(), Error> {
        let loaded = pem.and_then(|pem| self.load(pem));
        match &loaded {
            Ok(None) => self.failures.recovered(),
            Ok(Some(cas)) => {
                self.failures.recovered();
                (self.observer)(&Event::ClientCaLoaded { cas: *cas });
            }
            Err(error) => self.failures.failed(error),
        }
        loaded.map(drop)
    }

    /// Returns the number of CAs if they changed. The last valid ones stay in use after an error.
    fn load(&mut self, pem: Vec<u8>) -> Result<Option<usize>, Error> {
        if self.pem == pem {
            return Ok(None);
        }
        let cas = client_cas(&self.path.display().to_string(), &pem)?;
        let count = cas.len();
        self.config.store(Arc::new(build(Arc::clone(&self.resolver), &self.versions, Some(cas))?));
        self.pem = pem;
        Ok(Some(count))
    }
}

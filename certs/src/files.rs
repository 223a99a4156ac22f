//! A pair in files that cert-manager, a mounted Secret or a user maintains.
//!
//! The files are read every few seconds and compared by content, see [`poll`]. The last valid pair stays in use until
//! the files contain another valid one.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use swansong_runtime::config::poll;

use crate::certificate::{Certificate, PemPair, timestamp};
use crate::error::{Error, read_file};
use crate::event::{Clock, Event, FailureReporter, Observer, Source};
use crate::pair::Pair;
use crate::resolver::Resolver;

/// The default interval between reads. The kubelet takes up to a minute to update a mounted Secret.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Attempts to read a certificate that doesn't change meanwhile.
const READ_ATTEMPTS: usize = 3;

/// The paths of the two files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FilePair {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl FilePair {
    /// The files of a mounted TLS Secret: `tls.crt` and `tls.key`.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        Self { certificate: directory.join("tls.crt"), key: directory.join("tls.key") }
    }

    /// Reads both files.
    ///
    /// The certificate is read before and after the key. If it is equal, the files weren't swapped in between.
    fn read(&self) -> Result<PemPair, Error> {
        let mut certificate = read_file(&self.certificate)?;
        let mut key = read_file(&self.key)?;
        for _ in 1..READ_ATTEMPTS {
            let again = read_file(&self.certificate)?;
            if again == certificate {
                break;
            }
            certificate = again;
            key = read_file(&self.key)?;
        }
        Ok(PemPair { certificate, key })
    }
}

/// Publishes the pair in the files to the resolver whenever it changes.
pub struct FileWatcher {
    files: FilePair,
    resolver: Arc<Resolver>,
    clock: Clock,
    observer: Observer,
    /// The content of the last valid files.
    loaded: PemPair,
    failures: FailureReporter,
    expiry_reported: bool,
}

impl FileWatcher {
    /// Creates a watcher, which reads the files with the first poll.
    pub fn new(files: FilePair, resolver: Arc<Resolver>, clock: Clock, observer: Observer) -> Self {
        let failures = FailureReporter::new(Source::Files, Arc::clone(&observer));
        Self {
            files,
            resolver,
            clock,
            observer,
            loaded: PemPair::default(),
            failures,
            expiry_reported: false,
        }
    }

    /// Reads the files once. At start the server ends with the error, so that a wrong mount is noticed.
    ///
    /// A failure is reported when it begins or changes, and its end as `Recovered`.
    pub fn poll(&mut self) -> Result<(), Error> {
        self.process(self.files.read())
    }

    /// Reads the files every `every` without end.
    pub async fn run(mut self, every: Duration) -> Infallible {
        let files = self.files.clone();
        // `process` reports failures, and the next poll retries.
        poll(every, move || files.read(), |pem| drop(self.process(pem))).await
    }

    fn process(&mut self, pem: Result<PemPair, Error>) -> Result<(), Error> {
        let loaded = pem.and_then(|pem| self.load(pem));
        if let Err(error) = &loaded {
            self.failures.failed(error);
        }
        loaded
    }

    fn load(&mut self, pem: PemPair) -> Result<(), Error> {
        let now = (self.clock)();
        let name = self.files.certificate.display().to_string();
        if self.loaded == pem && !self.failures.is_failing() {
            let Some(pair) = self.resolver.current() else { return Ok(()) };
            pair.leaf.check_validity(&name, now)?;
            self.report_expiry(&pair.leaf, now);
            return Ok(());
        }
        let pair = Pair::from_pem(&pem, &name, &self.files.key.display().to_string(), now)?;
        self.failures.recovered();
        let leaf = pair.leaf.clone();
        if self.loaded != pem {
            self.loaded = pem;
            self.resolver.publish(pair);
            (self.observer)(&Event::Loaded {
                source: Source::Files,
                serial: leaf.serial.clone(),
                not_after: timestamp(leaf.not_after),
            });
            self.expiry_reported = false;
        }
        self.report_expiry(&leaf, now);
        Ok(())
    }

    /// Files are renewed, as a rule, when a third of the validity is left. With half of that gone, the renewal failed.
    fn report_expiry(&mut self, leaf: &Certificate, now: SystemTime) {
        let validity = leaf.not_after.duration_since(leaf.not_before).unwrap_or_default();
        let remaining = leaf.not_after.duration_since(now).unwrap_or_default();
        if remaining < validity / 6 && !self.expiry_reported {
            self.expiry_reported = true;
            (self.observer)(&Event::ExpiresSoon {
                source: Source::Files,
                serial: leaf.serial.clone(),
                not_after: timestamp(leaf.not_after),
            });
        }
    }
}

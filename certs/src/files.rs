//! A pair in files that cert-manager, a mounted Secret or a user maintains.
//!
//! The files are read every few seconds and compared by content, see [`poll`]. The last valid pair stays in use until
//! the files contain another valid one.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use swansong_runtime::config::poll;

use crate::clock::Clock;
use crate::event::{Event, FailureReporter, Observer, Source};
use crate::pair::{Pair, PairError, PemPair};
use crate::read_error::{ReadError, read_file};
use crate::resolver::Resolver;

/// The default interval between reads. The kubelet takes up to a minute to update a mounted Secret.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Attempts to read a certificate that doesn't change meanwhile.
const READ_ATTEMPTS: usize = 3;

/// Why the files contain no pair that can be served.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The content is no valid pair.
    #[error(transparent)]
    Pair(#[from] PairError),
}

/// The paths of the two files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FilePair {
    certificate: PathBuf,
    key: PathBuf,
}

impl FilePair {
    /// A certificate file and a key file.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into() }
    }

    /// The files of a mounted TLS Secret: `tls.crt` and `tls.key`.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        Self::new(directory.join("tls.crt"), directory.join("tls.key"))
    }

    /// Reads both files.
    ///
    /// The certificate is read before and after the key. If it is equal, the files weren't swapped in between.
    fn read(&self) -> Result<PairText, ReadError> {
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
        Ok(PairText { certificate, key })
    }
}

/// The content of both files. It contains the key, so it has no `Debug`.
struct PairText {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Publishes the pair in the files to the resolver whenever it changes.
pub struct FileWatcher {
    files: FilePair,
    resolver: Arc<Resolver>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    /// Keyed with random numbers of this process, so that the digest of a key in memory is useless elsewhere.
    hasher: RandomState,
    fingerprint: Option<u64>,
    failures: FailureReporter,
    expiry_reported: bool,
}

impl FileWatcher {
    /// Creates a watcher, which reads the files with the first poll.
    pub fn new(
        files: FilePair,
        resolver: Arc<Resolver>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            files,
            resolver,
            clock,
            failures: FailureReporter::new(Source::Files, Arc::clone(&observer)),
            observer,
            hasher: RandomState::new(),
            fingerprint: None,
            expiry_reported: false,
        }
    }

    /// Reads the files once. At start the server ends with the error, so that a wrong mount is noticed.
    ///
    /// A failure is reported when it begins or changes, and its end as `Recovered`.
    pub fn poll(&mut self) -> Result<(), FilesError> {
        let text = self.files.read();
        self.process(text)
    }

    /// Reads the files every `every` without end.
    pub async fn run(mut self, every: Duration) -> Infallible {
        let files = self.files.clone();
        // `process` reports failures, and the next poll retries.
        poll(every, move || files.read(), |text| drop(self.process(text))).await
    }

    fn process(&mut self, text: Result<PairText, ReadError>) -> Result<(), FilesError> {
        let loaded = text.map_err(FilesError::from).and_then(|text| self.load(&text));
        if let Err(error) = &loaded {
            self.failures.failed(error);
        }
        loaded
    }

    fn load(&mut self, text: &PairText) -> Result<(), FilesError> {
        let now = self.clock.now();
        let name = self.files.certificate.display().to_string();
        let fingerprint = self.hasher.hash_one((&text.certificate, &text.key));
        if self.fingerprint == Some(fingerprint) && !self.failures.is_failing() {
            let Some(pair) = self.resolver.current() else { return Ok(()) };
            pair.check_expiry(&name, now)?;
            self.report_expiry(&pair, now);
            return Ok(());
        }

        let pem = PemPair {
            certificate_name: &name,
            certificate: &text.certificate,
            key_name: &self.files.key.display().to_string(),
            key: &text.key,
        };
        let pair = Pair::from_pem(&pem, now)?;
        self.failures.recovered();
        if self.fingerprint.replace(fingerprint) != Some(fingerprint) {
            let loaded = Event::Loaded {
                source: Source::Files,
                serial: pair.serial().to_owned(),
                not_after: pair.not_after(),
            };
            self.resolver.publish(pair.clone());
            self.observer.observe(&loaded);
            self.expiry_reported = false;
        }
        self.report_expiry(&pair, now);
        Ok(())
    }

    /// Files are renewed, as a rule, when a third of the validity is left. With half of that gone, the renewal failed.
    fn report_expiry(&mut self, pair: &Pair, now: SystemTime) {
        let validity = pair.not_after().duration_since(pair.not_before()).unwrap_or_default();
        let remaining = pair.not_after().duration_since(now).unwrap_or_default();
        if remaining < validity / 6 && !self.expiry_reported {
            self.expiry_reported = true;
            self.observer.observe(&Event::ExpiresSoon {
                source: Source::Files,
                serial: pair.serial().to_owned(),
                not_after: pair.not_after(),
            });
        }
    }
}

//! A pair kept in files by someone else: cert-manager, a mounted Secret, an operator's hand.
//!
//! The files are read again every few seconds and compared by content, see [`poll`]. Whatever is found, the last good pair stays in use until a better one is there.

use std::convert::Infallible;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use swansong_runtime::config::poll;

use crate::clock::Clock;
use crate::event::{Event, Observer, Source};
use crate::pair::{Pair, PairError, PemPair};
use crate::resolver::Resolver;
use crate::unreadable::remedy;

/// How often files are looked at unless told otherwise. The kubelet itself takes up to a minute.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Reads in a row that may find the certificate changed under them before the pair is taken as it is.
const STEADY_READS: usize = 3;

/// Why the files hold no pair that can be served.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file can't be read.
    #[error("{path} can't be read: {}", remedy(problem))]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        problem: io::Error,
    },
    /// What was read is no sound pair.
    #[error(transparent)]
    Pair(#[from] PairError),
}

/// Where the two files are.
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

    /// A directory in the shape of a mounted TLS Secret: `tls.crt` and `tls.key`.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        Self::new(directory.join("tls.crt"), directory.join("tls.key"))
    }

    /// Reads both files.
    ///
    /// The certificate is read on both sides of the key: when it is the same twice, no swap fell between the reads.
    fn read(&self) -> Result<Text, FilesError> {
        let mut certificate = read(&self.certificate)?;
        let mut key = read(&self.key)?;
        for _ in 1..STEADY_READS {
            let again = read(&self.certificate)?;
            if again == certificate {
                break;
            }
            certificate = again;
            key = read(&self.key)?;
        }
        Ok(Text { certificate, key })
    }
}

/// The content of both files. Without `Debug`, as it holds the key.
struct Text {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

fn read(path: &Path) -> Result<Vec<u8>, FilesError> {
    fs::read(path).map_err(|problem| FilesError::Read { path: path.to_owned(), problem })
}

/// Brings the pair in the files to the resolver, now and whenever it changes.
pub struct FileWatcher {
    files: FilePair,
    resolver: Arc<Resolver>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    /// Keyed with random numbers of this process: contents are only compared with one another, and no digest of the
    /// key is left in memory that means anything elsewhere.
    hasher: RandomState,
    in_use: Option<u64>,
    failing: Option<String>,
    told_to_expire: bool,
}

impl FileWatcher {
    /// A watcher that has looked at nothing yet.
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
            observer,
            hasher: RandomState::new(),
            in_use: None,
            failing: None,
            told_to_expire: false,
        }
    }

    /// Looks once. At start the server calls this first and ends with the error, so that a wrong mount is seen at once.
    ///
    /// A failure is told to the observer when it begins or changes, not at every look; its end is told as `Recovered`.
    pub fn poll(&mut self) -> Result<(), FilesError> {
        let text = self.files.read();
        self.consider(text)
    }

    /// Looks every `every`, for ever.
    pub async fn run(mut self, every: Duration) -> Infallible {
        let files = self.files.clone();
        // A failure is told to the observer, and met again at the next look.
        poll(every, move || files.read(), |text| drop(self.consider(text))).await
    }

    fn consider(&mut self, text: Result<Text, FilesError>) -> Result<(), FilesError> {
        let outcome = text.and_then(|text| self.take(&text));
        if let Err(error) = &outcome {
            let error = error.to_string();
            if self.failing.as_ref() != Some(&error) {
                self.observer.observe(&Event::Failed { source: Source::Files, error: error.clone() });
                self.failing = Some(error);
            }
        }
        outcome
    }

    fn take(&mut self, text: &Text) -> Result<(), FilesError> {
        let now = self.clock.now();
        let name = self.files.certificate.display().to_string();
        let fingerprint = self.hasher.hash_one((&text.certificate, &text.key));
        if self.in_use == Some(fingerprint) && self.failing.is_none() {
            // Nothing new in the files, but time goes on.
            let Some(pair) = self.resolver.current() else { return Ok(()) };
            if let Some(error) = pair.expired(&name, now) {
                return Err(error.into());
            }
            self.tell_expiry(&pair, now);
            return Ok(());
        }

        let pem = PemPair {
            certificate_name: &name,
            certificate: &text.certificate,
            key_name: &self.files.key.display().to_string(),
            key: &text.key,
        };
        let pair = Pair::from_pem(&pem, now)?;
        if self.failing.take().is_some() {
            self.observer.observe(&Event::Recovered { source: Source::Files });
        }
        if self.in_use.replace(fingerprint) != Some(fingerprint) {
            let loaded = Event::Loaded {
                source: Source::Files,
                serial: pair.serial().to_owned(),
                not_after: pair.not_after(),
            };
            self.resolver.publish(pair.clone());
            self.observer.observe(&loaded);
            self.told_to_expire = false;
        }
        self.tell_expiry(&pair, now);
        Ok(())
    }

    /// Whoever keeps the files renews them, as a rule when a third of the life is left; with half of that gone
    /// something is amiss.
    fn tell_expiry(&mut self, pair: &Pair, now: SystemTime) {
        let life = pair.not_after().duration_since(pair.not_before()).unwrap_or_default();
        let left = pair.not_after().duration_since(now).unwrap_or_default();
        if left < life / 6 && !self.told_to_expire {
            self.told_to_expire = true;
            self.observer.observe(&Event::ExpiresSoon {
                source: Source::Files,
                serial: pair.serial().to_owned(),
                not_after: pair.not_after(),
            });
        }
    }
}

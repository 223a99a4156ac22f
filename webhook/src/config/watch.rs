//! Hot reload: the file is read again every few seconds and compared by content, see [`poll`].
//!
//! Whatever is found, the last good configuration stays in use until a better
//! one is there.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use swansong_runtime::{poll, read};

use super::{Config, ConfigError};

/// What a look at the file brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigEvent {
    /// A new configuration is in use from now on.
    Reloaded,
    /// The file can't be used; the last good configuration stays in use. Told once for each new fault.
    Failed(String),
    /// The file is again what is in use.
    Recovered,
}

/// Brings what is in the file into use whenever it changes.
#[derive(Debug)]
pub struct ConfigWatcher {
    path: PathBuf,
    current: Arc<ArcSwap<Config>>,
    in_use: String,
    failing: Option<String>,
}

impl ConfigWatcher {
    /// Reads the file for the first time.
    ///
    /// # Errors
    ///
    /// As [`Config::load`]: at start a wrong file is to be seen at once.
    pub fn start(path: PathBuf) -> Result<Self, ConfigError> {
        let text = match read(&path) {
            Ok(text) => text,
            Err(problem) => return Err(ConfigError::Read { path, problem }),
        };
        match Config::parse(&text) {
            Ok(config) => {
                let current = Arc::new(ArcSwap::from_pointee(config));
                Ok(Self { path, current, in_use: text, failing: None })
            }
            Err(faults) => Err(ConfigError::Invalid { path, faults }),
        }
    }

    /// What is in use, now and later.
    pub fn current(&self) -> Arc<ArcSwap<Config>> {
        Arc::clone(&self.current)
    }

    /// Looks once.
    pub fn poll(&mut self) -> Option<ConfigEvent> {
        self.consider(read(&self.path))
    }

    /// Looks every `every`, for ever.
    pub async fn run(mut self, every: Duration, mut observe: impl FnMut(&ConfigEvent)) -> Infallible {
        let path = self.path.clone();
        let take = |text| {
            if let Some(event) = self.consider(text) {
                observe(&event);
            }
        };
        poll(every, move || read(&path), take).await
    }

    fn consider(&mut self, text: io::Result<String>) -> Option<ConfigEvent> {
        let text = match text {
            Ok(text) => text,
            Err(problem) => {
                return self.failed(&ConfigError::Read { path: self.path.clone(), problem });
            }
        };
        if text == self.in_use {
            return self.failing.take().map(|_| ConfigEvent::Recovered);
        }
        match Config::parse(&text) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                self.in_use = text;
                self.failing = None;
                Some(ConfigEvent::Reloaded)
            }
            Err(faults) => self.failed(&ConfigError::Invalid { path: self.path.clone(), faults }),
        }
    }

    fn failed(&mut self, error: &ConfigError) -> Option<ConfigEvent> {
        let error = error.to_string();
        if self.failing.as_ref() == Some(&error) {
            return None;
        }
        self.failing = Some(error.clone());
        Some(ConfigEvent::Failed(error))
    }
}

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use swansong_runtime::config::{poll, read};

use super::{Config, ConfigError};

/// What a poll of the configuration file found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigEvent {
    /// A new configuration is in use.
    Reloaded,
    /// The file can't be used, and the last good configuration stays in use. Reported once for each error.
    Failed(String),
    /// The file holds again what is in use.
    Recovered,
}

/// Reloads the configuration when its file changes. An unusable file leaves the last good configuration in use.
#[derive(Debug)]
pub struct ConfigWatcher {
    path: PathBuf,
    current: Arc<ArcSwap<Config>>,
    text_in_use: String,
    error: Option<String>,
}

impl ConfigWatcher {
    /// Reads the file for the first time.
    ///
    /// # Errors
    ///
    /// When the file can't be read or isn't a valid configuration.
    pub fn start(path: PathBuf) -> Result<Self, ConfigError> {
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) => return Err(ConfigError::Read { path, error }),
        };
        match Config::parse(&text) {
            Ok(config) => {
                let current = Arc::new(ArcSwap::from_pointee(config));
                Ok(Self { path, current, text_in_use: text, error: None })
            }
            Err(problems) => Err(ConfigError::Invalid { path, problems }),
        }
    }

    /// The configuration in use; later reloads replace the content.
    pub fn current(&self) -> Arc<ArcSwap<Config>> {
        Arc::clone(&self.current)
    }

    /// Checks the file once.
    pub fn poll(&mut self) -> Option<ConfigEvent> {
        self.update(read(&self.path))
    }

    /// Checks the file every `interval`.
    pub async fn run(mut self, interval: Duration, mut observe: impl FnMut(&ConfigEvent)) -> Infallible {
        let path = self.path.clone();
        let handle = |text| {
            if let Some(event) = self.update(text) {
                observe(&event);
            }
        };
        poll(interval, move || read(&path), handle).await
    }

    fn update(&mut self, text: io::Result<String>) -> Option<ConfigEvent> {
        let path = || self.path.clone();
        let text = match text {
            Ok(text) => text,
            Err(error) => return self.failed(&ConfigError::Read { path: path(), error }),
        };
        if text == self.text_in_use {
            return self.error.take().map(|_| ConfigEvent::Recovered);
        }
        match Config::parse(&text) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                self.text_in_use = text;
                self.error = None;
                Some(ConfigEvent::Reloaded)
            }
            Err(problems) => self.failed(&ConfigError::Invalid { path: path(), problems }),
        }
    }

    fn failed(&mut self, error: &ConfigError) -> Option<ConfigEvent> {
        let error = error.to_string();
        if self.error.as_ref() == Some(&error) {
            return None;
        }
        self.error = Some(error.clone());
        Some(ConfigEvent::Failed(error))
    }
}

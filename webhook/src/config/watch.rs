use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use swansong_runtime::config::{load, poll, read};
use tokio::sync::watch;

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
    current: watch::Sender<Config>,
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
        let mut text_in_use = String::new();
        let config = load(&path, |text| {
            text.clone_into(&mut text_in_use);
            Config::parse(text)
        })?;
        Ok(Self { path, current: watch::Sender::new(config), text_in_use, error: None })
    }

    /// The configuration in use, now and after reloads.
    pub fn subscribe(&self) -> watch::Receiver<Config> {
        self.current.subscribe()
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
                self.current.send_replace(config);
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

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{ConfigError, Problems, load, poll, read};

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

/// Reloads a configuration when its file changes. An unusable file leaves the last good configuration in use.
pub struct ConfigWatcher<T> {
    path: PathBuf,
    parse: Box<Parse<T>>,
    current: watch::Sender<T>,
    text_in_use: String,
    error: Option<String>,
}

type Parse<T> = dyn Fn(&str) -> Result<T, Problems> + Send;

/// Metrics of a configuration file.
#[derive(Debug, Clone, Default)]
pub struct ConfigMetrics {
    failures: Counter,
    loaded: Gauge<i64, AtomicI64>,
}

impl ConfigMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "config_reload_failures",
            "Times that the configuration file was unusable",
            self.failures.clone(),
        );
        registry.register(
            "config_loaded_timestamp_seconds",
            "When the configuration in use was loaded",
            self.loaded.clone(),
        );
    }

    /// Notes that a configuration is in use from now on.
    pub fn record_load(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.loaded.set(i64::try_from(since).unwrap_or(i64::MAX));
    }

    fn record(&self, event: &ConfigEvent) {
        match event {
            ConfigEvent::Reloaded => {
                self.record_load();
                info!("configuration reloaded");
            }
            ConfigEvent::Failed(error) => {
                self.failures.inc();
                warn!(error, "configuration can't be used, the last good one remains in use");
            }
            ConfigEvent::Recovered => info!("the configuration file matches the configuration in use again"),
        }
    }
}

impl<T> fmt::Debug for ConfigWatcher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigWatcher").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<T> ConfigWatcher<T> {
    /// Reads the file for the first time.
    ///
    /// # Errors
    ///
    /// When the file can't be read or `parse` refuses it.
    pub fn start(
        path: &Path,
        parse: impl Fn(&str) -> Result<T, Problems> + Send + 'static,
    ) -> Result<Self, ConfigError> {
        let mut text_in_use = String::new();
        let config = load(path, |text| {
            text.clone_into(&mut text_in_use);
            parse(text)
        })?;
        let current = watch::Sender::new(config);
        Ok(Self { path: path.to_owned(), parse: Box::new(parse), current, text_in_use, error: None })
    }

    /// The configuration in use, now and after reloads.
    pub fn subscribe(&self) -> watch::Receiver<T> {
        self.current.subscribe()
    }

    /// Checks the file once.
    pub fn poll(&mut self) -> Option<ConfigEvent> {
        self.update(read(&self.path))
    }

    /// Checks the file every `interval`, and logs and counts what it finds.
    pub async fn run(mut self, interval: Duration, metrics: ConfigMetrics) -> Infallible {
        let path = self.path.clone();
        let handle = |text| {
            if let Some(event) = self.update(text) {
                metrics.record(&event);
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
        match (self.parse)(&text) {
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

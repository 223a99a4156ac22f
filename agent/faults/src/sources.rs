//! The sources of faults.
//!
//! Each source is a separate task, which the supervisor restarts when it ends. The faults that it reported remain active
//! until it reports otherwise.

mod dcmi;
mod dcmi_process;
mod device_plugin;

use std::convert::Infallible;
use std::sync::Arc;

use swansong_fault_model::SourceUpdate;
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::sync::mpsc;

pub use self::dcmi::{Dcmi, DcmiSettings, FindLibrary, Library};
pub use self::device_plugin::DevicePluginWatch;

/// The queue from the sources, each under its [`Source::NAME`]. Sending waits while it is full: sources drop nothing.
pub type Updates = mpsc::Sender<(&'static str, SourceUpdate)>;

/// A source of faults.
pub trait Source: Send + Sync + 'static {
    /// Its name in tasks, metrics and logs.
    const NAME: &'static str;

    /// Reports until it fails. It begins with a [`SourceUpdate::Snapshot`] of everything that it can inspect, and reports
    /// everything as [`SourceUpdate::Unavailable`] before it ends.
    ///
    /// # Errors
    ///
    /// It always ends with one. The caller starts it again with a backoff.
    fn run(
        self: Arc<Self>,
        updates: Updates,
        progress: Progress,
    ) -> impl Future<Output = Result<Infallible, TaskError>> + Send + 'static;
}

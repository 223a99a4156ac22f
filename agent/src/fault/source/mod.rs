//! Where faults are seen: the driver, the device nodes, what the device plugin publishes.
//!
//! Each source is a task of its own. It may end, and is then started anew; what it said before stands until it says
//! otherwise.

mod child;
mod dcmi;
mod device_plugin;
mod devices;

use std::convert::Infallible;
use std::sync::Arc;

use swansong_fault_model::SourceUpdate;
use tokio::sync::mpsc;

pub use self::dcmi::{Dcmi, Settings as DcmiSettings};
pub use self::device_plugin::DevicePluginWatch;
pub use self::devices::DeviceNodes;
pub use swansong_runtime::supervisor::{Progress, TaskError};

/// Where sources tell what they see, each under its [`Source::NAME`]. Sending waits while nobody takes it: a source
/// drops nothing by itself.
pub type Out = mpsc::Sender<(&'static str, SourceUpdate)>;

/// Something that sees faults.
pub trait Source: Send + Sync + 'static {
    /// What it is called in tasks, metrics and logs.
    const NAME: &'static str;

    /// Looks until it can't any more.
    ///
    /// It begins with [`SourceUpdate::Snapshot`] for everything that it sees, and says [`SourceUpdate::Unavailable`] of all that it can't see any
    /// more before it ends. `progress` is told of every sign of life.
    ///
    /// # Errors
    ///
    /// It always ends with one: why it can't look any more. The caller starts it anew after a pause.
    fn run(
        self: Arc<Self>,
        out: Out,
        progress: Progress,
    ) -> impl Future<Output = Result<Infallible, TaskError>> + Send + 'static;
}

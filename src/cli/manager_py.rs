//! `swansong manager-py`: prints a manager.py for start scripts.

use std::process::ExitCode;

use swansong_inject::manager::PROGRAM;

use super::files::print;

/// Print a manager.py, which starts the TaskD Manager without numbers to fill in
///
/// For images and start scripts that start it themselves; the sidecar of `swansong.dev/manager: sidecar` runs the same
/// text. Save it as manager.py beside the start script, which starts it on rank 0: `python manager.py &`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManagerPy {}

impl ManagerPy {
    /// Prints the program.
    pub(crate) fn run() -> anyhow::Result<ExitCode> {
        print(PROGRAM)?;
        Ok(ExitCode::SUCCESS)
    }
}

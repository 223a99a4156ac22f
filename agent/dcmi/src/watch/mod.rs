//! The process that watches devices through the library.
//!
//! Three threads: one calls the library and receives events, one writes heartbeats while the first makes progress, and the
//! main thread waits for the end of stdin, which means that the agent is gone. A library that hangs or crashes affects only
//! this process.

mod device_faults;
mod driver_event;
mod line;
mod output;
mod schedule;
mod timing;
mod watcher;

use std::io::{self, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

pub use self::line::{Counts, Line, Mode, State};
use self::output::Output;
pub use self::timing::Timing;
use self::watcher::DeviceWatcher;
use crate::ffi::exit_at_once;
use crate::library::{Dcmi, Library, Listed};
use crate::queue::Events;

/// The longest wait of the library thread without a record of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Watches devices through the library at `path` and writes [`Line`]s to `output`, until stdin ends or watching fails.
///
/// `output` must not be stdout or stderr, to which the library may print.
pub fn run(path: &Path, timing: Timing, output: impl io::Write + Send + 'static) -> ! {
    let output = Arc::new(Output::new(output));
    {
        let (path, output) = (path.to_owned(), Arc::clone(&output));
        thread::spawn(move || {
            let watched = catch_unwind(AssertUnwindSafe(|| watch(&path, &timing, &output)));
            let why = watched.unwrap_or_else(|_| "it panicked; please report this".to_owned());
            output.write_line(&Line::Ended(why));
            exit_at_once(1);
        });
    }
    thread::spawn(move || {
        loop {
            sleep(timing.alive);
            output.write_heartbeat();
        }
    });
    let mut ignored = [0; 512];
    loop {
        match io::stdin().read(&mut ignored) {
            Ok(0) => exit_at_once(0),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => exit_at_once(0),
            _ => {}
        }
    }
}

/// Watches and returns why it ended.
fn watch(path: &Path, timing: &Timing, output: &Output) -> String {
    let library = match Library::open(path) {
        Ok(library) => library,
        Err(error) => return error.to_string(),
    };
    let Some(events) = Events::take() else { return "this process is watching already".to_owned() };
    let (dcmi, listed) = match initialize(&library, timing, output) {
        Ok(initialized) => initialized,
        Err(problem) => return problem,
    };
    DeviceWatcher::new(dcmi, &library, listed, events, *timing, output).run()
}

/// Initializes the API and lists the devices, with retries until the timeout.
fn initialize<'l>(
    library: &'l Library,
    timing: &Timing,
    output: &Output,
) -> Result<(Dcmi<'l>, Listed), String> {
    let start = Instant::now();
    loop {
        output.record_progress();
        let problem = match library.init() {
            Err(error) => error.to_string(),
            Ok(dcmi) => match dcmi.devices() {
                Ok(listed) if !listed.devices.is_empty() => return Ok((dcmi, listed)),
                Ok(Listed { unnamed, .. }) if unnamed.is_empty() => "the driver lists no NPU".to_owned(),
                Ok(listed) => format!("the driver names no NPU: {}", listed.unnamed.join("; ")),
                Err(error) => format!("the driver lists no NPU: {error}"),
            },
        };
        output.write_line(&Line::Trouble(problem.clone()));
        let next = Instant::now() + timing.init_interval;
        if next.duration_since(start) > timing.init_timeout {
            return Err(problem);
        }
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            output.record_progress();
            sleep(left.min(PROGRESS_INTERVAL));
        }
    }
}

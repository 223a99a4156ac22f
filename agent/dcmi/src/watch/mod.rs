//! The process that watches devices through the library.
//!
//! Three threads: one calls the library and takes events, one says that the first moves, and the first of the process
//! waits for the end of stdin, which comes when the agent is gone. What a library may hang or crash is this process.

mod known;
mod line;
mod meaning;
mod output;
mod schedule;
mod watcher;

use std::io::{self, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

pub use self::line::{Counts, Line, Mode, State};
use self::output::Output;
use self::schedule::Paces;
use self::watcher::Watcher;
use crate::ffi::exit_at_once;
use crate::library::{Dcmi, Library, Listed};
use crate::queue::Events;

/// The thread that calls the library says at least so often that it moves.
const MOVES: Duration = Duration::from_millis(500);

/// How patient it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two tries to start the API.
    pub init_interval: Duration,
    /// The process ends if the API hasn't started after so long.
    pub init_patience: Duration,
    /// Between two tries to subscribe.
    pub subscribe_interval: Duration,
    /// How often devices are asked that tell no events, or that have faults.
    pub poll: Duration,
    /// How often all others are asked.
    pub repoll: Duration,
    /// How often it says that it moves.
    pub alive: Duration,
}

/// As MindCluster's device plugin, `ascend-common/devmanager/devmanager_common.go` for the start.
impl Default for Timing {
    fn default() -> Self {
        Self {
            init_interval: Duration::from_secs(10),
            init_patience: Duration::from_mins(10),
            subscribe_interval: Duration::from_secs(1),
            poll: Duration::from_secs(5),
            repoll: Duration::from_mins(5),
            alive: Duration::from_secs(1),
        }
    }
}

/// Watches through the library at `path` and writes [`Line`]s to `output`, until stdin ends or it can't go on.
///
/// `output` should be a pipe of its own: the library may print.
pub fn run(path: &Path, timing: Timing, output: impl io::Write + Send + 'static) -> ! {
    let output = Arc::new(Output::new(output));
    {
        let (path, output) = (path.to_owned(), Arc::clone(&output));
        thread::spawn(move || {
            let watched = catch_unwind(AssertUnwindSafe(|| watch(&path, &timing, &output)));
            let why = watched.unwrap_or_else(|_| "it panicked; please report this".to_owned());
            output.tell(&Line::Ended(why));
            exit_at_once(1);
        });
    }
    thread::spawn(move || {
        loop {
            sleep(timing.alive);
            output.alive();
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

/// Watches, and says why it ended.
fn watch(path: &Path, timing: &Timing, output: &Output) -> String {
    let library = match Library::open(path) {
        Ok(library) => library,
        Err(error) => return error.to_string(),
    };
    let Some(events) = Events::take() else { return "this process watches already".to_owned() };
    let (dcmi, listed) = match begin(&library, timing, output) {
        Ok(begun) => begun,
        Err(problem) => return problem,
    };
    let paces = Paces { subscribe: timing.subscribe_interval, poll: timing.poll, repoll: timing.repoll };
    Watcher::new(dcmi, &library, listed, events, paces, output).run()
}

/// Starts the API and lists the devices, as often as it takes.
fn begin<'l>(library: &'l Library, timing: &Timing, output: &Output) -> Result<(Dcmi<'l>, Listed), String> {
    let begun = Instant::now();
    loop {
        output.moved();
        let problem = match library.init() {
            Err(error) => error.to_string(),
            Ok(dcmi) => match dcmi.devices() {
                Ok(listed) if !listed.devices.is_empty() => return Ok((dcmi, listed)),
                Ok(Listed { unnamed, .. }) if unnamed.is_empty() => "the driver lists no NPU".to_owned(),
                Ok(listed) => format!("the driver names no NPU: {}", listed.unnamed.join("; ")),
                Err(error) => format!("the driver lists no NPU: {error}"),
            },
        };
        output.tell(&Line::Trouble(problem.clone()));
        let again = Instant::now() + timing.init_interval;
        if again.duration_since(begun) > timing.init_patience {
            return Err(problem);
        }
        while let Some(left) = again.checked_duration_since(Instant::now()) {
            output.moved();
            sleep(left.min(MOVES));
        }
    }
}

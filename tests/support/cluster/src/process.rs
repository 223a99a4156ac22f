//! Programs of a cluster: they never outlive the supervisor, not even when it is killed.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use tokio::process::Child;

use crate::Error;

/// How much of a log an error quotes.
const TAIL_LINES: usize = 15;

/// The running program, also when its file has been replaced by a newer build meanwhile.
pub(crate) const MYSELF: &str = "/proc/self/exe";

/// A command that is killed by the kernel when this process ends.
///
/// The death signal has to be asked for by the child itself, between fork and exec, where safe
/// Rust can't run. So the child is this binary once more, which asks and then becomes the program.
pub(crate) fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(MYSELF);
    command.arg("become").arg(std::process::id().to_string()).arg(program);
    // Ctrl-C in a terminal must reach the supervisor alone: it ends the others in order.
    command.process_group(0);
    command
}

/// What `testcluster become PARENT PROGRAM ARGS…` does. Returns only when it failed.
pub fn r#become(parent: i32, program: &OsStr, arguments: &[std::ffi::OsString]) -> io::Error {
    if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return errno.into();
    }
    // The parent may have ended before the line above; then no signal will come.
    if getppid() != Pid::from_raw(parent) {
        return io::Error::other("the supervisor is gone");
    }
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("{}: {error}", program.display()))
}

/// A running program with its log.
pub(crate) struct Program {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Program {
    /// Starts a program with all of its output going to a log of its name.
    ///
    /// It must be called from the main thread: death signals follow the thread that forked.
    pub(crate) fn start(name: &str, command: Command, logs: &Path) -> Result<Self, Error> {
        let log = logs.join(format!("{name}.log"));
        let output = File::create(&log).map_err(Error::file("create", &log))?;
        let errors = output.try_clone().map_err(Error::file("open", &log))?;
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::null()).stdout(output).stderr(errors).kill_on_drop(true);
        let child = command.spawn().map_err(Error::io(format!("start {name}")))?;
        Ok(Self { name: name.to_owned(), log, child })
    }

    /// Wraps a program whose streams the caller has arranged.
    pub(crate) fn from_child(name: &str, child: Child, log: PathBuf) -> Self {
        Self { name: name.to_owned(), log, child }
    }

    /// Waits until the program ends by itself, which none of them should.
    pub(crate) async fn ended(&mut self) -> Error {
        match self.child.wait().await {
            Ok(status) => self.describe(status),
            Err(source) => Error::Io { what: format!("wait for {}", self.name), source },
        }
    }

    /// Kills it and waits until it has ended. State is deleted with the cluster, so nothing
    /// is given time to save any.
    pub(crate) async fn kill(mut self) {
        // It fails only if the program is gone already.
        let _ = self.child.kill().await;
    }

    /// Waits for a program that has been asked to end, and kills it if it doesn't.
    pub(crate) async fn finish(mut self, timeout: Duration) {
        if tokio::time::timeout(timeout, self.child.wait()).await.is_err() {
            self.kill().await;
        }
    }

    fn describe(&self, status: ExitStatus) -> Error {
        Error::Ended {
            program: self.name.clone(),
            status: status.to_string(),
            log: self.log.clone(),
            tail: tail(&self.log),
        }
    }
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// A command that is found even where the PATH lacks `sbin`, as that of `su` does.
pub(crate) fn system_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(Into::into));
    if let Ok(path) = env::join_paths(folders) {
        command.env("PATH", path);
    }
    command
}

/// Runs a short command to its end and returns its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let shown = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    };
    let shown = shown();
    let output = command.stdin(Stdio::null()).output().map_err(Error::io(format!("run `{shown}`")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = if output.stderr.is_empty() { output.stdout } else { output.stderr };
    Err(Error::Command { command: shown, output: String::from_utf8_lossy(&said).trim().to_owned() })
}

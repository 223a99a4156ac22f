//! The process that uses the driver's library. It writes lines.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// A device has at most 128 faults, each with a name of at most 256 bytes.
const LONGEST: u64 = 256 * 1024;

/// A killed process ends within this time, unless a driver holds it.
const GONE: Duration = Duration::from_secs(5);

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoLine {
    #[error("no output for {0:?}: a call into the driver's library hangs")]
    Silent(Duration),
    #[error("it wrote a line of more than {LONGEST} bytes")]
    TooLong,
    #[error("it has ended")]
    End,
    #[error("its output can't be read: {0}")]
    Read(#[from] io::Error),
}

/// The process. It is killed when this is dropped, and ends by itself when this process does, however that ends: this
/// holds its stdin.
#[derive(Debug)]
pub(super) struct DcmiProcess {
    process: Process,
    _stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl DcmiProcess {
    pub(super) fn start<'a>(
        program: &Path,
        arguments: impl IntoIterator<Item = &'a OsStr>,
        library_path: &OsStr,
    ) -> io::Result<Self> {
        let mut process = Command::new(program)
            .args(arguments)
            .env("LD_LIBRARY_PATH", library_path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| io::Error::other("it has no stdout"))?;
        let stdin = process.stdin.take();
        Ok(Self { process, _stdin: stdin, lines: BufReader::new(stdout), line: Vec::new() })
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// The next line, without its end.
    pub(super) async fn line(&mut self, silence: Duration) -> Result<&[u8], NoLine> {
        self.line.clear();
        let mut bounded = (&mut self.lines).take(LONGEST);
        let read = bounded.read_until(b'\n', &mut self.line);
        timeout(silence, read).await.map_err(|_| NoLine::Silent(silence))??;
        match self.line.strip_suffix(b"\n") {
            Some(line) => Ok(line),
            None if self.line.len() as u64 == LONGEST => Err(NoLine::TooLong),
            // A killed process may have written a part of a line.
            None => Err(NoLine::End),
        }
    }

    /// Ends it. `None` if it doesn't end, as while a driver holds it in the kernel.
    pub(super) async fn end(mut self) -> Option<ExitStatus> {
        // A process that has ended keeps its status.
        let _ = self.process.start_kill();
        timeout(GONE, self.process.wait()).await.ok()?.ok()
    }
}

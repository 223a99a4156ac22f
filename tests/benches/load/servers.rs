//! Starting and stopping the servers under measurement.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use procfs::process::Process;

/// A running server, pinned to core 0; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    pub(crate) started: Instant,
}

/// How to start each server; the name is its row in the table.
pub(crate) fn command(name: &str, certificate: &Path, key: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]);
    if name == "swansong" {
        command
            .arg(env!("CARGO_BIN_EXE_swansong"))
            .args(["webhook", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"])
            .args(["--workers", "1", "--log-format", "json", "--tls-cert"])
            .arg(certificate)
            .arg("--tls-key")
            .arg(key);
    } else {
        command.arg(std::env::current_exe()?).arg(name).arg(certificate).arg(key);
    }
    Ok(command)
}

impl Server {
    /// Starts a server and waits for the line with its address.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let started = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("can't start taskset: install util-linux")?;
        let (sender, lines) = std::sync::mpsc::channel();
        for pipe in [
            child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>),
            child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>),
        ] {
            let sender = sender.clone();
            // Reads on after the address was found, so that the server never blocks on a full pipe.
            std::thread::spawn(move || {
                for line in
                    BufReader::new(pipe.into_iter().next().unwrap_or_else(|| Box::new(std::io::empty())))
                        .lines()
                {
                    let Ok(line) = line else { return };
                    let _ = sender.send(line);
                }
            });
        }
        drop(sender);
        let deadline = Duration::from_secs(20);
        let mut seen = Vec::new();
        while let Ok(line) = lines.recv_timeout(deadline) {
            if let Some(address) = address(&line) {
                return Ok(Self { child, address, started });
            }
            seen.push(line);
        }
        let _ = child.kill();
        anyhow::bail!("the server logged no address:\n{}", seen.join("\n"))
    }

    /// CPU time so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = self.process()?.stat()?;
        let ticks = stat.utime + stat.stime;
        Ok(Duration::from_secs(1) * u32::try_from(ticks)? / u32::try_from(procfs::ticks_per_second())?)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        Ok(self.process()?.status()?.vmrss.context("no VmRSS")? * 1024)
    }

    fn process(&self) -> anyhow::Result<Process> {
        Ok(Process::new(i32::try_from(self.child.id())?)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The HTTPS address in a log line: `"address"` of a peer, or of the webhook's `serving reviews`.
fn address(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    fields.get("address")?.as_str().map(str::to_owned)
}

//! The fake ClusterD that orders dumps.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use swansong_testcluster::Error;

use crate::install::repository;
use crate::io_error;

/// The fake ClusterD that orders dumps, as a process of this machine.
pub struct Leader {
    process: Child,
    commands: Mutex<ChildStdin>,
    jobs: Arc<Mutex<BTreeMap<String, Option<String>>>>,
    pub(super) address: SocketAddr,
    pub(super) time_factor: f32,
}

/// Its first line of output.
#[derive(Deserialize)]
struct Listening {
    port: u16,
}

/// A line for each job, and another one for the result of its dump.
#[derive(Deserialize)]
struct Registered {
    job: String,
    status: Option<String>,
}

impl Leader {
    /// Times of the fakes are `time_factor` times those measured on the real programs.
    ///
    /// # Panics
    ///
    /// Never, since standard output is a pipe.
    pub fn start(host: IpAddr, time_factor: f32) -> Result<Self, Error> {
        let mut process = Command::new("python3")
            .args(["-B", "clusterd.py", &host.to_string()])
            .current_dir(repository().join("tests/support/fake-training"))
            .env("FAKE_TIME_FACTOR", time_factor.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(io_error("start the fake ClusterD with python3"))?;
        let output = process.stdout.take().expect("standard output is a pipe");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        let first: Listening = serde_json::from_str(&first)
            .map_err(|source| Error::Json { what: format!("the fake ClusterD's line {first:?}"), source })?;
        let jobs = Arc::new(Mutex::new(BTreeMap::new()));
        let known = Arc::clone(&jobs);
        std::thread::spawn(move || {
            for line in lines {
                if let Ok(Registered { job, status }) = serde_json::from_str(&line) {
                    known.lock().unwrap_or_else(PoisonError::into_inner).insert(job, status);
                }
            }
        });
        let commands = Mutex::new(process.stdin.take().expect("standard input is a pipe"));
        Ok(Self { process, commands, jobs, address: SocketAddr::from((host, first.port)), time_factor })
    }

    /// Sends a command, a line of JSON.
    pub fn send(&self, command: &Value) -> Result<(), Error> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(commands, "{command}").map_err(io_error("send a command to the fake ClusterD"))
    }

    pub(super) fn has_job(&self, uid: &str) -> bool {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).contains_key(uid)
    }

    /// The result of a job's dump.
    pub fn status(&self, uid: &str) -> Option<String> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned().flatten()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

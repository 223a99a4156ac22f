//! Starts `swansong dcmi` and reads its output.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use swansong_dcmi::watch::{Counts, Line, Mode, State};
use swansong_fake_dcmi::{SCRIPT_VARIABLE, Script, build, build_without};
use swansong_fault_model::{ActiveFault, Assertion, FaultEvent, SourceUpdate, Subject};
use tempfile::TempDir;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// The process, which is killed when this is dropped.
pub(crate) struct Watch {
    process: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Line>,
    pub(crate) script: Script,
    _folder: TempDir,
}

impl Watch {
    /// Starts it with a library that lacks some functions and the script that `write` makes.
    pub(crate) fn without(functions: &[&str], flags: &[&str], write: impl FnOnce(&Script)) -> Self {
        Self::with_stdin(functions, flags, Stdio::piped(), write)
    }

    /// Starts it with a library that has all functions.
    pub(crate) fn start(flags: &[&str], write: impl FnOnce(&Script)) -> Self {
        Self::without(&[], flags, write)
    }

    pub(crate) fn with_stdin(
        functions: &[&str],
        flags: &[&str],
        stdin: Stdio,
        write: impl FnOnce(&Script),
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let library =
            if functions.is_empty() { build(folder.path()) } else { build_without(folder.path(), functions) };
        let script = Script::at(folder.path().join("script"));
        write(&script);
        let mut process = Command::new(env!("CARGO_BIN_EXE_swansong"))
            .arg("dcmi")
            .arg("--library")
            .arg(&library)
            .args(["--alive", "20ms"])
            .args(flags)
            .env(SCRIPT_VARIABLE, script.path())
            .stdin(stdin)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().expect("its stdout"));
        // The channel has no capacity, so unread lines fill the pipe.
        let (sender, lines) = sync_channel(0);
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, stdin, lines, script, _folder: folder }
    }

    /// The next line; `None` after the last.
    pub(crate) fn line(&self) -> Option<Line> {
        self.lines.recv_timeout(TEST_TIMEOUT).ok()
    }

    /// The next line within `timeout`.
    pub(crate) fn line_within(&self, timeout: Duration) -> Option<Line> {
        self.lines.recv_timeout(timeout).ok()
    }

    /// The first line for which `wanted` returns a value.
    pub(crate) fn find<T>(&self, mut wanted: impl FnMut(Line) -> Option<T>) -> T {
        let begun = Instant::now();
        while begun.elapsed() < TEST_TIMEOUT {
            let Some(line) = self.line() else { break };
            if let Some(found) = wanted(line) {
                return found;
            }
        }
        panic!("no such line");
    }

    pub(crate) fn state(&self, wanted: impl Fn(&Mode) -> bool) -> State {
        self.find(|line| match line {
            Line::State(state) if wanted(&state.mode) => Some(state),
            _ => None,
        })
    }

    /// Waits until events are delivered and every device was polled afterwards.
    pub(crate) fn subscribed(&self) -> State {
        let state = self.state(|mode| *mode == Mode::Subscribed);
        for device in &state.devices {
            self.snapshot(device.physical, |_| true);
        }
        state
    }

    /// The first snapshot of an NPU that is as `wanted`.
    pub(crate) fn snapshot(&self, npu: u32, wanted: impl Fn(&[ActiveFault]) -> bool) -> Vec<ActiveFault> {
        self.find(|line| match line {
            Line::Update(SourceUpdate::Snapshot { subject, faults, .. })
                if subject == Subject::Npu(npu) && wanted(&faults) =>
            {
                Some(faults)
            }
            _ => None,
        })
    }

    pub(crate) fn unavailable(&self, npu: u32) -> String {
        self.find(|line| match line {
            Line::Update(SourceUpdate::Unavailable { subject, reason: why })
                if subject == Subject::Npu(npu) =>
            {
                Some(why)
            }
            _ => None,
        })
    }

    pub(crate) fn event(&self) -> FaultEvent {
        self.find(|line| match line {
            Line::Update(SourceUpdate::Event(event)) => Some(event),
            _ => None,
        })
    }

    pub(crate) fn counts(&self, wanted: impl Fn(Counts) -> bool) -> Counts {
        self.find(|line| match line {
            Line::Alive(counts) => wanted(counts).then_some(counts),
            _ => None,
        })
    }

    /// Applies all updates to a set of NPUs and active codes until it is as `done`.
    pub(crate) fn active_codes(&self, mut done: impl FnMut(&BTreeSet<(u32, u64)>, Counts) -> bool) {
        let (mut active, mut counts) = (BTreeSet::new(), Counts::default());
        self.find(|line| {
            match line {
                Line::Update(SourceUpdate::Snapshot { subject: Subject::Npu(npu), faults, .. }) => {
                    active.retain(|(other, _)| *other != npu);
                    active.extend(faults.iter().map(|fault| (npu, fault.code.number())));
                }
                Line::Update(SourceUpdate::Event(FaultEvent {
                    subject: Subject::Npu(npu),
                    code,
                    assertion,
                    ..
                })) => match assertion {
                    Assertion::Occur => drop(active.insert((npu, code.number()))),
                    Assertion::Recover => drop(active.remove(&(npu, code.number()))),
                    Assertion::Once => {}
                },
                Line::Alive(now) => counts = now,
                _ => {}
            }
            done(&active, counts).then_some(())
        });
    }

    /// The reason in its last line.
    pub(crate) fn end_reason(&self) -> String {
        self.find(|line| match line {
            Line::Ended(why) => Some(why),
            _ => None,
        })
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for its exit code, or the number of the signal that ended it.
    pub(crate) fn wait(&mut self) -> Result<i32, i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("waited for") {
                return status.code().ok_or_else(|| status.signal().expect("a signal"));
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "it doesn't end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn codes(faults: &[ActiveFault]) -> Vec<&str> {
    faults.iter().map(|fault| fault.code.as_str()).collect()
}

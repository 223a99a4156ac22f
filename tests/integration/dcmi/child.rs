//! `swansong dcmi`, started and read.

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

/// Far more than anything takes.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// The process, ended when it is dropped.
pub(crate) struct Watch {
    process: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Line>,
    pub(crate) script: Script,
    _folder: TempDir,
}

impl Watch {
    /// With a library that has all functions but some, after `write`.
    pub(crate) fn without(functions: &[&str], flags: &[&str], write: impl FnOnce(&Script)) -> Self {
        Self::held(functions, flags, Stdio::piped(), write)
    }

    /// With a library that has all functions.
    pub(crate) fn start(flags: &[&str], write: impl FnOnce(&Script)) -> Self {
        Self::without(&[], flags, write)
    }

    /// With somebody else at its stdin.
    pub(crate) fn held(
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
        // A line that isn't taken keeps the next in the pipe.
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

    /// The next line, if it comes soon.
    pub(crate) fn quick_line(&self, patience: Duration) -> Option<Line> {
        self.lines.recv_timeout(patience).ok()
    }

    /// The first line that `wanted` makes something of; others are passed over.
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

    /// Once events come, and every device was asked since.
    pub(crate) fn subscribed(&self) -> State {
        let state = self.state(|mode| *mode == Mode::Subscribed);
        for device in &state.devices {
            self.all(device.physical, |_| true);
        }
        state
    }

    /// All that stands at an NPU, once it is as `wanted`.
    pub(crate) fn all(&self, npu: u32, wanted: impl Fn(&[ActiveFault]) -> bool) -> Vec<ActiveFault> {
        self.find(|line| match line {
            Line::Update(SourceUpdate::Snapshot { subject, faults: standing, .. })
                if subject == Subject::Npu(npu) && wanted(&standing) =>
            {
                Some(standing)
            }
            _ => None,
        })
    }

    pub(crate) fn blind(&self, npu: u32) -> String {
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

    /// Everything that it says until `done`, put together: which codes stand at which NPU.
    pub(crate) fn view(&self, mut done: impl FnMut(&BTreeSet<(u32, u64)>, Counts) -> bool) {
        let (mut view, mut counts) = (BTreeSet::new(), Counts::default());
        self.find(|line| {
            match line {
                Line::Update(SourceUpdate::Snapshot {
                    subject: Subject::Npu(npu), faults: standing, ..
                }) => {
                    view.retain(|(other, _)| *other != npu);
                    view.extend(standing.iter().map(|fault| (npu, fault.code.number())));
                }
                Line::Update(SourceUpdate::Event(FaultEvent {
                    subject: Subject::Npu(npu),
                    code,
                    assertion,
                    ..
                })) => match assertion {
                    Assertion::Occur => drop(view.insert((npu, code.number()))),
                    Assertion::Recover => drop(view.remove(&(npu, code.number()))),
                    Assertion::Once => {}
                },
                Line::Alive(now) => counts = now,
                _ => {}
            }
            done(&view, counts).then_some(())
        });
    }

    /// What it says last.
    pub(crate) fn last_words(&self) -> String {
        self.find(|line| match line {
            Line::Ended(why) => Some(why),
            _ => None,
        })
    }

    /// Nobody holds its stdin any more.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// How it ends by itself: a code, or the number of a signal.
    pub(crate) fn end(&mut self) -> Result<i32, i32> {
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

pub(crate) fn codes(standing: &[ActiveFault]) -> Vec<&str> {
    standing.iter().map(|fault| fault.code.as_str()).collect()
}

//! The scenarios in `tests/support/fake-training/test_dump.py`, each in a separate network namespace.

use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::machine::{PYTHON, is_ready, repository};

/// Most of a scenario is waiting. More at once would delay heartbeats so that living ranks count as lost.
const AT_ONCE: usize = 8;
/// Times in the scenarios are this part of those measured on the real programs, unless FAKE_TIME_FACTOR is set.
const TIME_FACTOR: &str = "0.1";
const LIST: &str = "
import unittest
def names(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names(test)
        else:
            yield test.id()
print(*names(unittest.defaultTestLoader.loadTestsFromName('test_dump')), sep='\\n')
";

#[test]
fn each_loss_is_prevented_by_its_measure_and_happens_without_it() {
    if !is_ready() {
        return;
    }
    let listed = python().args(["-c", LIST]).output().unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    // The longest are the last in the file; they start first.
    let queue = Mutex::new(names.lines().collect::<Vec<_>>());
    assert!(queue.lock().unwrap().len() > 20, "{}", String::from_utf8_lossy(&listed.stderr));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(name) = { queue.lock().unwrap().pop() } {
            if let Err(output) = run(name) {
                failures.lock().unwrap().push(output);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} scenarios failed:\n{}", failures.len(), failures.join("\n"));
}

/// Runs one scenario, which may use any port; an error is what it printed.
fn run(name: &str) -> Result<(), String> {
    let factor = std::env::var("FAKE_TIME_FACTOR").unwrap_or_else(|_| TIME_FACTOR.to_owned());
    let script = format!("ip link set lo up && exec {PYTHON} -B -m unittest {name}");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script]).env("FAKE_TIME_FACTOR", factor);
    let output = command.current_dir(folder()).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    println!("{name}: {}", text.lines().rev().find(|line| line.starts_with("Ran ")).unwrap_or("didn't run"));
    if output.status.success() { Ok(()) } else { Err(text.into_owned()) }
}

fn python() -> Command {
    let mut command = Command::new(PYTHON);
    command.arg("-B").current_dir(folder());
    command
}

fn folder() -> std::path::PathBuf {
    repository().join("tests/support/fake-training")
}

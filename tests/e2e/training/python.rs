//! Runs tests that are written in Python, each in separate network and mount namespaces.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::machine::{PYTHON, is_ready};

/// Times in the scenarios are this part of those measured on the real programs, unless FAKE_TIME_FACTOR is set.
const TIME_FACTOR: &str = "0.1";
const LIST: &str = "
import sys, unittest
def names(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names(test)
        else:
            yield test.id()
print(*names(unittest.defaultTestLoader.loadTestsFromName(sys.argv[1])), sep='\\n')
";

/// Runs the tests of a module in `folder` with variables, `at_once` of them side by side; most of each is waiting.
pub(crate) fn test(folder: &Path, module: &str, at_once: usize, variables: &[(&str, &str)]) {
    if !is_ready() {
        return;
    }
    let mut list = Command::new(PYTHON);
    list.args(["-B", "-c", LIST, module]).current_dir(folder).envs(variables.iter().copied());
    let listed = list.output().unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    let queue = Mutex::new(names.lines().collect::<Vec<_>>());
    assert!(queue.lock().unwrap().len() > 5, "{names}{}", String::from_utf8_lossy(&listed.stderr));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(name) = { queue.lock().unwrap().pop() } {
            if let Err(output) = run(folder, name, variables) {
                failures.lock().unwrap().push(output);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} tests failed:\n{}", failures.len(), failures.join("\n"));
}

/// Runs one test, which may use any port and mount anything; an error is what it printed.
fn run(folder: &Path, name: &str, variables: &[(&str, &str)]) -> Result<(), String> {
    let factor = std::env::var("FAKE_TIME_FACTOR").unwrap_or_else(|_| TIME_FACTOR.to_owned());
    let script = format!("ip link set lo up && exec {PYTHON} -B -m unittest {name}");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", &script]).env("FAKE_TIME_FACTOR", factor);
    command.envs(variables.iter().copied());
    let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    println!("{name}: {}", text.lines().rev().find(|line| line.starts_with("Ran ")).unwrap_or("didn't run"));
    if output.status.success() { Ok(()) } else { Err(text.into_owned()) }
}

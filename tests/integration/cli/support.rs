//! Running the program, and comparing with expected files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The output of a run that has to succeed.
    pub(crate) fn output(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stdout
    }

    /// The output as JSON values, one behind the other.
    pub(crate) fn json(self) -> Vec<Value> {
        let output = self.output();
        let values = serde_json::Deserializer::from_str(&output).into_iter();
        values.collect::<Result<_, _>>().expect("JSON")
    }

    /// The one line of complaint of a run that has to fail without output.
    pub(crate) fn complaint(self) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (1, ""), "{}", self.stderr);
        self.stderr
    }
}

/// Runs the program with `input` on its standard input.
pub(crate) fn run(arguments: &[&str], input: impl AsRef<[u8]>) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_swansong"))
        .args(arguments)
        .current_dir(workloads())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // It may end without reading.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_ref());
    let output = child.wait_with_output().expect("it ends");
    Run {
        code: output.status.code().expect("it isn't killed"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// The folder of the workload files.
pub(crate) fn workloads() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fixtures/workloads")
}

/// The files of a folder, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// Compares with, or writes, an expected file.
pub(crate) fn expect(name: &str, actual: &str) {
    let path = workloads().join("expected").join(name);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        std::fs::write(&path, actual).expect("written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        actual == expected,
        "{} differs; UPDATE_EXPECTED=1 writes it anew if that is meant\n{actual}",
        path.display()
    );
}

//! Runs the program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use swansong_api::record::summary;
use swansong_inject::launcher_hook::MODULE;

use serde_json::Value;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The output of a successful run.
    pub(crate) fn output(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stdout
    }

    /// The output as a stream of JSON values.
    pub(crate) fn json(self) -> Vec<Value> {
        let output = self.output();
        let values = serde_json::Deserializer::from_str(&output).into_iter();
        values.collect::<Result<_, _>>().expect("JSON")
    }

    /// The error message of a run that fails without output.
    pub(crate) fn error(self) -> String {
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
    // The program may end without reading.
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

/// The output with a placeholder for the text of the launcher hook, in YAML blocks and in quotes.
fn without_hook(output: &str) -> String {
    let quoted = serde_json::to_string(MODULE).expect("a string");
    let output = output.replace(&quoted, "\"(the launcher hook)\"").replace(&summary(MODULE), "(its digest)");
    (2..40).fold(output, |output, indent| {
        let indent = " ".repeat(indent);
        let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") };
        output
            .replace(&MODULE.lines().map(line).collect::<String>(), &format!("{indent}(the launcher hook)\n"))
    })
}

/// Compares with the snapshot `name` of the fixtures.
pub(crate) fn assert_expected(name: &str, actual: &str) {
    let actual = without_hook(actual);
    insta::with_settings!({
        snapshot_path => workloads().join("expected"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, actual) });
}

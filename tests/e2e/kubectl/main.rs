//! Swansong reads a file as kubectl does, or refuses it with a line.
//!
//! Generated files are read by both. `SWANSONG_KUBECTL_CASES` sets their number.

mod files;

use std::cell::Cell;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::Value;
use swansong::manifest::objects::objects;
use swansong::manifest::source::Source;

/// The annotation that kubectl has to add, since it prints no file without a change.
const MARK: &str = "read-by-kubectl";

#[test]
fn reads_files_as_kubectl_does_or_refuses_them() {
    let kubectl = swansong_testcluster::programs::ensure_kubectl().expect("kubectl can be built");
    let cases = std::env::var("SWANSONG_KUBECTL_CASES").map_or(300, |it| it.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = match std::env::var("SWANSONG_KUBECTL_SEED") {
        Ok(seed) => TestRng::from_seed(RngAlgorithm::XorShift, &seed.repeat(16).as_bytes()[..16]),
        Err(_) => TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    };
    let read_by_both = Cell::new(0);
    let outcome = TestRunner::new_with_rng(config, random).run(&files::file(), |text| {
        let compared = compare(&kubectl, &text)?;
        read_by_both.set(read_by_both.get() + u32::from(compared));
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    // Refusing everything would be no difference either. Most generated files are invalid to both.
    let read_by_both = read_by_both.get();
    println!("of {cases} files, {read_by_both} were read by both");
    assert!(read_by_both >= cases / 8, "of {cases} files, only {read_by_both} were read by both");
}

/// Whether both read the file, which is then equal to both; an error if they differ.
fn compare(kubectl: &Path, text: &str) -> Result<bool, TestCaseError> {
    let Ok(ours) = read(text) else { return Ok(false) };
    match read_by_kubectl(kubectl, text) {
        Err(message) if REFUSED_BY_KUBECTL.iter().any(|it| message.contains(it)) => Ok(false),
        Err(message) => Err(TestCaseError::fail(format!("only kubectl refuses {text:?}: {message}"))),
        Ok(theirs) if equal(&ours, &theirs) => Ok(true),
        Ok(theirs) => Err(TestCaseError::fail(format!("{text:?}\nkubectl:  {theirs}\nswansong: {ours}"))),
    }
}

/// What kubectl refuses and Swansong may take, by kubectl's message. kubectl reports it before it sends the file.
const REFUSED_BY_KUBECTL: &[&str] = &[
    // YAML 1.2, such as surrogate pairs in double quotes or a tab after `-`; keys of more than 63 bits.
    "error converting YAML to JSON: ",
    // Swansong copies objects that it doesn't handle.
    "Object 'Kind' is missing",
];

/// The objects of a file as an array; an empty document has none.
fn read(text: &str) -> Result<Value, String> {
    let source = Source::new(text.to_owned());
    let mut all = Vec::new();
    for document in source.documents() {
        let document = document.map_err(|error| error.to_string())?;
        let objects = objects(&document).map_err(|error| error.to_string())?;
        all.extend(objects.iter().map(|object| with_mark(object.data.to_value())));
    }
    Ok(Value::Array(all))
}

/// The object with what `kubectl annotate` does to it.
fn with_mark(mut object: Value) -> Value {
    match &mut object["metadata"]["annotations"] {
        Value::Object(annotations) => {
            for value in annotations.values_mut().filter(|value| value.is_null()) {
                *value = "".into();
            }
        }
        Value::Null => {}
        _ => return object,
    }
    object["metadata"]["annotations"][MARK] = "true".into();
    object
}

fn read_by_kubectl(kubectl: &Path, text: &str) -> Result<Value, String> {
    let mark = format!("{MARK}=true");
    let mut command = Command::new(kubectl);
    command.args(["annotate", "--local", "--filename", "-", "--output", "json", &mark]);
    let mut child = command
        .env("KUBECONFIG", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut input = child.stdin.take().expect("a pipe");
    // kubectl may end before it has read everything.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    let output = child.wait_with_output().expect("kubectl ends");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    Ok(values.map(|value| value.expect("kubectl prints JSON")).collect())
}

/// Whether the objects are equal. 1 and 1.0 are; kubectl rounds integers of more than 64 bits, which Swansong keeps.
fn equal(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(ours), Value::Number(theirs)) => {
            ours == theirs || !(ours.is_i64() && theirs.is_i64()) && ours.as_f64() == theirs.as_f64()
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| equal(ours, theirs))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().all(|(key, ours)| theirs.get(key).is_some_and(|theirs| equal(ours, theirs)))
        }
        (ours, theirs) => ours == theirs,
    }
}

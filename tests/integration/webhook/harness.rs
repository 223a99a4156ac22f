//! Starts and stops the webhook, and reads its log.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, Response, plain_get};

/// No condition is waited for longer; a test that meets it has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A certificate for 127.0.0.1 and its key, as files in a directory.
pub(crate) struct Pair {
    directory: TempDir,
    pub(crate) certificate: CertificateDer<'static>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(shape: impl FnOnce(&mut CertificateParams)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        shape(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(directory.path().join("tls.crt"), certificate.pem()).expect("written");
        std::fs::write(directory.path().join("tls.key"), key.serialize_pem()).expect("written");
        Self { directory, certificate: certificate.der().clone() }
    }

    pub(crate) fn certificate_file(&self) -> PathBuf {
        self.directory.path().join("tls.crt")
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.directory.path().join("tls.key")
    }
}

/// A running webhook; killed when dropped.
pub(crate) struct Webhook {
    child: Child,
    lines: Receiver<String>,
    /// Every log line read so far.
    pub(crate) log: Vec<Value>,
    pub(crate) address: String,
    health_address: String,
    pub(crate) pair: Pair,
}

impl Webhook {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let pair = Pair::new();
        let (certificate, key) = (pair.certificate_file(), pair.key_file());
        Self::start_from(pair, &certificate, &key, arguments)
    }

    pub(crate) fn start_from(pair: Pair, certificate: &Path, key: &Path, arguments: &[&str]) -> Self {
        Self::spawn(pair, command(Some((certificate, key)), arguments))
    }

    /// Without certificate files; no client trusts it.
    pub(crate) fn self_managed(kubeconfig: &Path) -> Self {
        let mut command = command(None, &[]);
        command.env("KUBECONFIG", kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
        Self::spawn(Pair::new(), command)
    }

    fn spawn(pair: Pair, command: Command) -> Self {
        // Some tests open more connections than the usual soft limit allows.
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit may always be used");
        let (child, lines) = spawn(command);
        let mut webhook = Self {
            child,
            lines,
            log: Vec::new(),
            address: String::new(),
            health_address: String::new(),
            pair,
        };
        let line = webhook.logged("listening");
        let address = |field: &str| line[field].as_str().expect("an address").to_owned();
        webhook.address = address("address");
        webhook.health_address = address("health_address");
        webhook
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address, &self.pair.certificate)
    }

    pub(crate) fn review(&self, body: &Value) -> Response {
        self.client().post("/mutate", body.to_string().as_bytes())
    }

    pub(crate) fn health(&self, path: &str) -> (u16, String) {
        plain_get(&self.health_address, path)
    }

    /// The value of a metric, named as it is written.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let (status, text) = self.health("/metrics");
        assert_eq!(status, 200);
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().expect("a number"))
    }

    /// Waits until a metric has a value.
    pub(crate) fn metric_becomes(&self, series: &str, expected: f64) {
        self.metric_until(series, |value| value.total_cmp(&expected).is_eq());
    }

    /// Waits until a metric has at least a value.
    pub(crate) fn metric_reaches(&self, series: &str, least: f64) {
        self.metric_until(series, |value| value >= least);
    }

    fn metric_until(&self, series: &str, enough: impl Fn(f64) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.metric(series).is_some_and(&enough) {
            assert!(Instant::now() < deadline, "{series} stays {:?}", self.metric(series));
        }
    }

    pub(crate) fn open_files(&self) -> usize {
        let id = i32::try_from(self.child.id()).expect("an id");
        procfs::process::Process::new(id).and_then(|process| process.fd_count()).expect("running")
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, so: impl Fn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !so() {
            assert!(Instant::now() < deadline, "{what}: never as expected, {:#?}", self.log);
        }
    }

    /// Waits for a log line with this message.
    pub(crate) fn logged(&mut self, message: &str) -> Value {
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => {
                    let line: Value =
                        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                    self.log.push(line.clone());
                    if line["message"] == message {
                        return line;
                    }
                }
                Err(error) => panic!("{message:?} was never logged ({error}): {:#?}", self.log),
            }
        }
    }

    /// Waits for an event of the certificate whose text starts with `beginning`.
    pub(crate) fn certificate_event(&mut self, beginning: &str) {
        while !self.logged("certificate")["event"].as_str().is_some_and(|event| event.starts_with(beginning))
        {
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("an id");
        kill(Pid::from_raw(id), signal).expect("signalled");
    }

    /// Stops the process until SIGCONT, and waits until all of its threads have stopped.
    pub(crate) fn halt(&self) {
        self.signal(Signal::SIGSTOP);
        let id = i32::try_from(self.child.id()).expect("an id");
        let process = Process::new(id).expect("the process");
        let deadline = Instant::now() + TIMEOUT;
        while process
            .tasks()
            .expect("threads")
            .flatten()
            .any(|task| task.stat().expect("a state").state != 'T')
        {
            assert!(Instant::now() < deadline, "it doesn't stop");
            thread::yield_now();
        }
    }

    /// Waits for the end, reading the rest of the log.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => self.log.push(serde_json::from_str(&line).expect("JSON")),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().expect("ended"),
                Err(RecvTimeoutError::Timeout) => panic!("it doesn't end: {:#?}", self.log),
            }
        }
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(pair: Option<(&Path, &Path)>, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swansong"));
    command
        .args(["webhook", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"])
        .args(["--log-format", "json", "--drain-delay", "0s", "--reload-interval", "20ms"])
        .stdin(Stdio::null());
    if let Some((certificate, key)) = pair {
        command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
    }
    command.args(arguments);
    command
}

fn spawn(mut command: Command) -> (Child, Receiver<String>) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary starts");
    let stderr = child.stderr.take().expect("a pipe");
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    (child, lines)
}

/// Starts a webhook that is expected not to come up: its exit code and stderr.
pub(crate) fn fails(certificate: &Path, key: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(Some((certificate, key)), arguments).output().expect("the binary starts");
    assert_eq!(output.stdout, b"");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

/// Starts a webhook without certificate files outside of any cluster: its stderr.
pub(crate) fn no_cluster(kubeconfig: &Path) -> String {
    let mut command = command(None, &[]);
    command.env("KUBECONFIG", kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
    let output = command.output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).expect("text")
}

/// A review of a pod that asks for the dying checkpoint.
pub(crate) fn review() -> Value {
    review_of(&json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "p", "annotations": { "recover-strategy": "dump" } },
        "spec": { "containers": [{ "name": "ascend", "image": "x", "env": [
            { "name": "TOKEN", "value": "hunter2" },
        ] }] },
    }))
}

pub(crate) fn review_of(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0a1b",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "name": "p",
            "namespace": "ns",
            "operation": "CREATE",
            "userInfo": { "username": "me" },
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": null,
        },
    })
}

/// The same review as an API server writes it: the uid first, the object late.
pub(crate) fn ordered_review(uid: &str) -> String {
    let object = review()["request"]["object"].clone();
    let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
    format!(
        "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{{\"uid\":\"{uid}\",\
         \"kind\":{kind},\"name\":\"p\",\"namespace\":\"ns\",\"operation\":\"CREATE\",\
         \"userInfo\":{{\"username\":\"me\"}},\"object\":{object}}}}}"
    )
}

/// The series of connections that were closed for this cause.
pub(crate) fn closed(cause: &str) -> String {
    format!("swansong_connections_closed_total{{cause=\"{cause}\"}}")
}

/// The operations in an answer.
pub(crate) fn patch(answer: &Value) -> Vec<Value> {
    use base64::Engine;
    let response = &answer["response"];
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = response["patch"].as_str().expect("base64 text, not an array of numbers");
    let patch = base64::engine::general_purpose::STANDARD.decode(patch).expect("base64");
    serde_json::from_slice(&patch).expect("a list of operations")
}

//! A Prometheus that collects the processes under test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use swansong_testcluster::eventually;
use tempfile::TempDir;

use crate::support::{REPOSITORY, tied};

/// What to install where a program is missing.
pub(super) const REMEDY: &str =
    "prometheus and promtool are needed; on Debian: apt-get install -y --no-install-recommends prometheus";

/// Ends when this is dropped, or with the test process.
pub(super) struct Prometheus {
    address: String,
    shell: Child,
    folder: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// An address of metrics, with the labels that the PodMonitors set.
pub(super) fn target(address: &str, namespace: &str, instance: &str) -> Value {
    json!({"targets": [address], "labels": {"namespace": namespace, "instance": instance}})
}

impl Prometheus {
    /// Starts it with the rules of the manifests, and waits until it answers.
    pub(super) async fn start(scrape_configs: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [Path::new(REPOSITORY).join("manifests/monitoring/rules.yaml")],
            "scrape_configs": scrape_configs,
        });
        std::fs::write(folder.path().join("prometheus.yml"), config.to_string()).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let mut command = tied(&command);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let shell = command.stdout(Stdio::null()).stderr(log).spawn().expect("sh");
        let prometheus = Self { address, shell, folder };
        eventually("Prometheus is ready", Duration::from_mins(1), || async {
            match prometheus.get("/-/ready") {
                Ok(answer) if answer.contains("200 OK") => Ok(()),
                Ok(answer) => Err(answer),
                Err(error) => Err(format!("{error}: {}; {REMEDY}", prometheus.log())),
            }
        })
        .await
        .unwrap();
        prometheus
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A request of HTTP 1.0, since the answer to one isn't in chunks.
    fn get(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The `data` of an API's answer.
    pub(super) fn api(&self, path: &str) -> Value {
        let answer = self.get(&format!("/api/v1/{path}")).unwrap();
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let mut answer: Value = serde_json::from_str(body).unwrap();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].take()
    }

    /// The series that a query returns now.
    pub(super) fn query(&self, expression: &str) -> Vec<Value> {
        let encoded = expression.bytes().fold(String::new(), |encoded, byte| format!("{encoded}%{byte:02X}"));
        self.api(&format!("query?query={encoded}"))["result"].as_array().cloned().unwrap_or_default()
    }
}

//! Files that change underneath, the way the kubelet changes them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::client::Client;
use crate::harness::{Pair, Webhook, patch, review};

/// A mounted ConfigMap or Secret: the files are links through `..data`, which is swapped as a whole.
struct Mount {
    directory: TempDir,
    generation: u32,
}

impl Mount {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let mut mount = Self { directory: tempfile::tempdir().expect("a directory"), generation: 0 };
        mount.swap(files);
        for (name, _) in files {
            symlink(Path::new("..data").join(name), mount.path(name)).expect("linked");
        }
        mount
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn swap(&mut self, files: &[(&str, &[u8])]) {
        let former = self.path(&format!("..{}", self.generation));
        self.generation += 1;
        let name = format!("..{}", self.generation);
        std::fs::create_dir(self.path(&name)).expect("made");
        for (file, content) in files {
            std::fs::write(self.path(&name).join(file), content).expect("written");
        }
        symlink(&name, self.path("..data_tmp")).expect("linked");
        std::fs::rename(self.path("..data_tmp"), self.path("..data")).expect("swapped");
        let _ = std::fs::remove_dir_all(former);
    }
}

fn ttp_port(webhook: &Webhook) -> Value {
    let answer = webhook.review(&review()).json();
    let added: Vec<Value> = patch(&answer);
    let text = Value::from(added).to_string();
    ["8000", "8001", "8002"]
        .into_iter()
        .find(|port| text.contains(&format!("{{\"name\":\"TTP_PORT\",\"value\":\"{port}\"}}")))
        .map_or(Value::Null, Value::from)
}

#[test]
fn configuration() {
    let mut mount = Mount::new(&[("config.yaml", b"")]);
    let path = mount.path("config.yaml");
    let mut webhook = Webhook::start(&["--config", path.to_str().expect("text")]);
    assert_eq!(ttp_port(&webhook), "8000");
    // Twice: a watch of the link's first target would see only the first swap.
    for port in ["8001", "8002"] {
        mount.swap(&[("config.yaml", format!("ports: {{ ttp: {{ port: {port} }} }}\n").as_bytes())]);
        webhook.logged("configuration reloaded");
        assert_eq!(ttp_port(&webhook), port);
    }
    mount.swap(&[("config.yaml", b"ports:\n  ttp: { prot: 1 }\n")]);
    let line = webhook.logged("configuration can't be used, the last good one remains in use");
    let error = line["error"].as_str().expect("an error");
    assert!(error.contains("config.yaml: line 2") && error.contains("ports.ttp.prot"), "{error}");
    assert_eq!(ttp_port(&webhook), "8002");
    assert_eq!(webhook.metric("swansong_config_reload_failures_total"), Some(1.0));
    assert_eq!(webhook.health("/readyz").0, 200);
    mount.swap(&[("config.yaml", b"# the default\n")]);
    webhook.logged("configuration reloaded");
    assert_eq!(ttp_port(&webhook), "8000");
}

/// The kubelet's swap, twice, and a half-written pair; live connections survive.
#[test]
fn certificates() {
    let read = |pair: &Pair| {
        let read = |path| std::fs::read(path).expect("read");
        (read(pair.certificate_file()), read(pair.key_file()))
    };
    let pair = Pair::new();
    let (certificate, key) = read(&pair);
    let mut mount = Mount::new(&[("tls.crt", &certificate), ("tls.key", &key)]);
    let (certificate_path, key_path) = (mount.path("tls.crt"), mount.path("tls.key"));
    let mut webhook = Webhook::start_from(pair, &certificate_path, &key_path, &[]);
    let mut first = webhook.client();
    let body = review().to_string();
    for _ in 0..2 {
        let next = Pair::new();
        let (certificate, key) = read(&next);
        mount.swap(&[("tls.crt", &certificate), ("tls.key", &key)]);
        webhook.logged("certificate");
        let client = Client::connect(&webhook.address, &next.certificate);
        assert_eq!(client.serial_of_peer(), next.certificate.to_vec());
        assert_eq!(first.post("/mutate", body.as_bytes()).status, 200, "an open connection survives");
        webhook.pair = next;
    }
    // A new certificate with the old key: the old pair stays in use.
    let half = read(&Pair::new()).0;
    mount.swap(&[("tls.crt", &half), ("tls.key", &read(&webhook.pair).1)]);
    webhook.metric_becomes(r#"swansong_tls_reload_failures_total{source="files"}"#, 1.0);
    assert_eq!(webhook.review(&review()).status, 200);
    assert!(
        webhook
            .metric("swansong_tls_certificate_not_after_timestamp_seconds")
            .is_some_and(|at| at > 1_700_000_000.0)
    );
}

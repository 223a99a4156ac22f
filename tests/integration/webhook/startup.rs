//! Invalid arguments and files are reported at start.

use std::path::Path;

use rustls::version::{TLS12, TLS13};

use serde_json::json;

use crate::client::Client;
use crate::harness::{Pair, Webhook, fails, no_cluster};

fn assert_reported(certificate: &Path, key: &Path, arguments: &[&str], needles: &[&str]) {
    let (code, stderr) = fails(certificate, key, arguments);
    assert_eq!(code, Some(1), "{stderr}");
    let last = stderr.lines().last().expect("an error");
    for needle in needles {
        assert!(last.contains(needle), "{last:?} lacks {needle:?}");
    }
}

#[test]
fn certificates_that_cannot_be_served() {
    let (pair, other) = (Pair::new(), Pair::new());
    assert_reported(
        &pair.certificate_file(),
        &other.key_file(),
        &[],
        &["tls.key", "is not the key", "tls.crt"],
    );
    assert_reported(
        Path::new("/no/such.crt"),
        &pair.key_file(),
        &[],
        &["/no/such.crt", "can't be read", "no such file", "mount it"],
    );
    assert_reported(
        &pair.certificate_file(),
        Path::new("/no/such.key"),
        &[],
        &["/no/such.key", "can't be read"],
    );
    assert_reported(&pair.key_file(), &pair.key_file(), &[], &["no certificate"]);
    let expired = Pair::with(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    assert_reported(
        &expired.certificate_file(),
        &expired.key_file(),
        &[],
        &["expired", "2020-01-01", "renew"],
    );
}

#[test]
fn configurations_that_cannot_be_used() {
    let pair = Pair::new();
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("config.yaml");
    let path = config.to_str().expect("text");
    let arguments = ["--config", path];
    assert_reported(&pair.certificate_file(), &pair.key_file(), &arguments, &[path, "can't be read"]);
    for (text, needles) in [
        ("ports:\n  ttp:\n    name: abcdefghijklmnop\n", ["line 3", "ports.ttp.name", "15"]),
        ("port: 1\n", ["line 1", "port: ", "choose among"]),
    ] {
        std::fs::write(&config, text).expect("written");
        assert_reported(&pair.certificate_file(), &pair.key_file(), &arguments, &needles);
    }
}

#[test]
fn a_port_in_use() {
    let pair = Pair::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for flag in ["--listen", "--health-listen"] {
        let arguments = [flag, &address];
        assert_reported(
            &pair.certificate_file(),
            &pair.key_file(),
            &arguments,
            &[&address, "can't listen on"],
        );
    }
}

#[test]
fn a_client_ca_file_without_certificate() {
    let pair = Pair::new();
    let key = pair.key_file();
    let arguments = ["--client-ca", key.to_str().expect("text")];
    assert_reported(
        &pair.certificate_file(),
        &pair.key_file(),
        &arguments,
        &["client CAs", "no certificate"],
    );
}

#[test]
fn clients_without_a_certificate_are_rejected_with_client_ca() {
    let ca = Pair::new();
    let path = ca.certificate_file();
    let webhook = Webhook::start(&["--client-ca", path.to_str().expect("text")]);
    // The client learns of it with the first read: in TLS 1.3 its own side of the handshake is done before.
    if let Ok(mut client) = Client::try_connect(&webhook.address, &webhook.pair.certificate, &TLS13) {
        let _ = client.try_send(b"GET / HTTP/1.1\r\nHost: w\r\n\r\n");
    }
    webhook.metric_becomes(r#"swansong_tls_handshake_failures_total{cause="client_certificate"}"#, 1.0);
}

#[test]
fn tls_1_2_is_accepted_only_on_request_and_its_rejection_is_logged() {
    let mut webhook = Webhook::start(&[]);
    assert!(Client::try_connect(&webhook.address, &webhook.pair.certificate, &TLS12).is_err());
    let line = webhook.logged("client rejected, it supports TLS 1.2 at most");
    assert_eq!((&line["level"], &line["suppressed"]), (&json!("WARN"), &json!(0)), "{line}");
    assert!(line["advice"].as_str().is_some_and(|advice| advice.contains("--tls-min-version")), "{line}");
    webhook.metric_becomes(r#"swansong_tls_handshake_failures_total{cause="tls_version"}"#, 1.0);
    assert!(Client::try_connect(&webhook.address, &webhook.pair.certificate, &TLS13).is_ok());
    let webhook = Webhook::start(&["--tls-min-version", "1.2"]);
    assert!(Client::try_connect(&webhook.address, &webhook.pair.certificate, &TLS12).is_ok());
    assert!(Client::try_connect(&webhook.address, &webhook.pair.certificate, &TLS13).is_ok());
}

#[test]
fn without_files_it_waits_for_the_api_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = directory.path().join("kubeconfig");
    // No process listens on the port that was just released.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
    std::fs::write(
        &kubeconfig,
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'http://{free}'}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u, namespace: n}}}}]\n"
        ),
    )
    .expect("written");
    let webhook = Webhook::self_managed(&kubeconfig);
    assert_eq!(webhook.health("/livez").0, 200);
    let (status, text) = webhook.health("/readyz");
    assert_eq!((status, text.as_str()), (503, "no certificate yet\n"));
    // Connections wait in the kernel's queue.
    let _waiting = std::net::TcpStream::connect(&webhook.address).expect("the port is open");
    assert_eq!(webhook.metric("swansong_connections_accepted_total"), Some(0.0));
    webhook.metric_reaches(r#"swansong_tls_reload_failures_total{source="secret"}"#, 1.0);
}

#[test]
fn without_files_and_without_a_cluster_one_line_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kubeconfig");
    let fault = || {
        let stderr = no_cluster(&path);
        let lines: Vec<&str> = stderr.lines().collect();
        let [line] = lines[..] else { panic!("not one line: {stderr}") };
        assert!(line.contains("--tls-cert") && line.ends_with("or set KUBECONFIG"), "{line}");
        line.to_owned()
    };
    let missing = format!("this isn't a Pod, and there is no {};", path.display());
    assert!(fault().contains(&missing), "{}", fault());
    std::fs::write(&path, "{").expect("written");
    assert!(fault().contains("the kubeconfig isn't valid YAML"), "{}", fault());
    std::fs::write(&path, "apiVersion: v1\nkind: Config\ncurrent-context: c\n").expect("written");
    assert!(fault().contains("the kubeconfig can't be used"), "{}", fault());
}

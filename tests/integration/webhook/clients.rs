//! Verification of clients by a file of CAs that changes while the webhook runs.

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;

use crate::client::Client;
use crate::harness::Webhook;

/// A CA, and a client that it signed.
struct Signed {
    ca: String,
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Signed {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        let ca = params.self_signed(&ca_key).expect("a CA").pem();
        let issuer = Issuer::new(params, ca_key);
        let mut params = CertificateParams::new(["apiserver".to_owned()]).expect("a name");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate").der().clone();
        Self { ca, certificate, key }
    }

    /// A new connection of this client, if it gets that far.
    fn connect(&self, webhook: &Webhook) -> Option<Client> {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let own = Some((self.certificate.clone(), key));
        Client::try_connect_as(own, &webhook.address, &webhook.pair.certificate, &TLS13).ok()
    }

    fn is_let_in(&self, webhook: &Webhook) -> bool {
        self.connect(webhook).is_some_and(|mut client| client.is_answered())
    }
}

#[test]
fn new_client_cas_apply_to_new_connections() {
    let (old, new) = (Signed::new("old"), Signed::new("new"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ca.crt");
    // As the kubelet does it: never half-written.
    let replace = |pem: &str| {
        let next = directory.path().join("next");
        std::fs::write(&next, pem).expect("written");
        std::fs::rename(next, &path).expect("replaced");
    };
    replace(&old.ca);
    let mut webhook = Webhook::start(&["--client-ca", path.to_str().expect("text")]);
    let mut open = old.connect(&webhook).expect("a connection");
    assert_eq!(open.request("GET", "/", b"").status, 404);
    assert!(!new.is_let_in(&webhook));

    // Both, as while the API server's certificate changes.
    replace(&format!("{}{}", old.ca, new.ca));
    webhook.certificate_event("client certificates of 2 CAs");
    assert!(old.is_let_in(&webhook) && new.is_let_in(&webhook));

    replace(&new.ca);
    webhook.certificate_event("client certificates of 1 CA");
    assert!(new.is_let_in(&webhook));
    assert!(!old.is_let_in(&webhook));
    assert_eq!(open.request("GET", "/", b"").status, 404, "an open connection survives");

    replace("no PEM\n");
    webhook.metric_becomes(r#"swansong_tls_reload_failures_total{source="client_ca"}"#, 1.0);
    assert!(new.is_let_in(&webhook), "the last good file counts");
    assert!(!old.is_let_in(&webhook));
    replace(&old.ca);
    webhook.certificate_event("client certificates of 1 CA");
    assert!(old.is_let_in(&webhook));
    assert!(!new.is_let_in(&webhook));
}

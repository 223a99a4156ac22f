//! TLS handshakes over loopback.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ALL_VERSIONS, ClientConfig, ProtocolVersion, RootCertStore, ServerConfig, SupportedProtocolVersion,
    version,
};
use swansong_certs::{CertificateAuthority, ClientCaWatcher, Pair, Resolver, client_cas, server_config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{DAY, DNS, IssuedCertificate, Recorder, ca_of, create_ca};

/// The rustls client uses the real clock, and so do these certificates.
pub(crate) fn pki() -> (IssuedCertificate, CertificateAuthority) {
    let now = SystemTime::now();
    let made = create_ca(now, 10 * DAY);
    let ca = ca_of(&made, now);
    (made, ca)
}

pub(crate) fn pair(ca: &CertificateAuthority) -> Pair {
    let leaf = ca.issue(&[DNS.to_owned()], SystemTime::now(), DAY).unwrap();
    Pair::from_pem(&leaf, "tls.crt", "tls.key", SystemTime::now()).unwrap()
}

/// Serves an echo with this configuration and returns its address.
pub(crate) async fn echo(config: Arc<ArcSwap<ServerConfig>>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(config.load_full());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let (mut read, mut write) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

pub(crate) fn client(
    ca: &CertificateAuthority,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&IssuedCertificate>,
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(leaf) => {
            let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

pub(crate) async fn connect(
    connector: &TlsConnector,
    address: std::net::SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    connector.connect(ServerName::try_from(DNS).unwrap(), stream).await
}

pub(crate) async fn ping(stream: &mut TlsStream<TcpStream>) -> std::io::Result<()> {
    let mut answer = [0; 4];
    stream.write_all(b"ping").await?;
    stream.flush().await?;
    stream.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

fn leaf_shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn new_connections_use_a_new_pair_and_open_ones_continue() {
    let (_, ca) = pki();
    let resolver = Resolver::new();
    let address = echo(server_config(Arc::clone(&resolver), &[&version::TLS13]).unwrap()).await;

    let connector = || client(&ca, &[&version::TLS13], None);
    connect(&connector(), address).await.unwrap_err();

    let (old, new) = (pair(&ca), pair(&ca));
    assert_ne!(old.leaf.serial, new.leaf.serial);
    resolver.publish(old.clone());
    let resuming = connector();
    let mut open = connect(&resuming, address).await.unwrap();
    ping(&mut open).await.unwrap();
    assert_eq!(leaf_shown(&open), old.certified.cert[0]);
    assert_eq!(open.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));

    resolver.publish(new.clone());
    let mut fresh = connect(&connector(), address).await.unwrap();
    ping(&mut fresh).await.unwrap();
    assert_eq!(leaf_shown(&fresh), new.certified.cert[0]);
    ping(&mut open).await.unwrap();

    // Session tickets from before the change remain valid.
    let mut resumed = connect(&resuming, address).await.unwrap();
    ping(&mut resumed).await.unwrap();
    assert_eq!(resumed.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
}

#[tokio::test]
async fn rejects_tls_1_2_unless_configured() {
    let (_, ca) = pki();
    let resolver = Resolver::new();
    resolver.publish(pair(&ca));
    let old = client(&ca, &[&version::TLS12], None);

    let strict = server_config(Arc::clone(&resolver), &[&version::TLS13]).unwrap();
    connect(&old, echo(strict).await).await.unwrap_err();

    let lenient = server_config(Arc::clone(&resolver), ALL_VERSIONS).unwrap();
    let mut stream = connect(&old, echo(lenient).await).await.unwrap();
    ping(&mut stream).await.unwrap();
    assert_eq!(stream.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
}

/// A client certificate, which the CA of this crate doesn't issue.
pub(crate) fn client_identity(ca: &IssuedCertificate) -> IssuedCertificate {
    let key = rcgen::KeyPair::from_pem(&ca.key).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&ca.certificate, key).unwrap();
    let mut params = rcgen::CertificateParams::new(["kube-apiserver".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + DAY).into();
    let key = rcgen::KeyPair::generate().unwrap();
    IssuedCertificate {
        certificate: params.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

#[tokio::test]
async fn accepts_clients_of_each_client_ca_and_no_others() {
    let (_, ca) = pki();
    let resolver = Resolver::new();
    resolver.publish(pair(&ca));
    let (first, second, other) = (pki().0, pki().0, pki().0);
    let pem = format!("{}{}", first.certificate, second.certificate);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client-ca.crt");
    std::fs::write(&path, pem).unwrap();
    let observer = Recorder::default().observer();
    let clients = ClientCaWatcher::open(path, resolver, &[&version::TLS13], observer).unwrap();
    let address = echo(Arc::clone(clients.config())).await;
    for (row, client_ca, accepted) in [
        ("the first CA", Some(&first), true),
        ("the second CA", Some(&second), true),
        ("another CA", Some(&other), false),
        ("no certificate", None, false),
    ] {
        let identity = client_ca.map(client_identity);
        let connector = client(&ca, &[&version::TLS13], identity.as_ref());
        // In TLS 1.3 the client learns of the refusal only when it reads.
        let outcome = async { ping(&mut connect(&connector, address).await?).await };
        let outcome = tokio::time::timeout(Duration::from_secs(10), outcome).await.unwrap();
        assert_eq!(outcome.is_ok(), accepted, "{row}: {outcome:?}");
    }
}

#[test]
fn an_empty_file_of_client_cas_is_an_error_with_its_name() {
    let error = client_cas("client-ca.crt", b"").unwrap_err();
    assert!(error.to_string().starts_with("client CAs: client-ca.crt holds no certificate"), "{error}");
}

/// cert-manager's issuers often sign by an intermediate, and clients trust only the root.
#[tokio::test]
async fn accepts_a_leaf_of_an_intermediate_with_a_key_in_any_format() {
    let now = SystemTime::now();
    let issue = |name: &str, subject: &rcgen::KeyPair, by: Option<&rcgen::Issuer<'_, rcgen::KeyPair>>| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = (now - DAY).into();
        params.not_after = (now + DAY).into();
        match by {
            None => params.self_signed(subject).unwrap().pem(),
            Some(issuer) => params.signed_by(subject, issuer).unwrap().pem(),
        }
    };
    let keys = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
    let root = issue("root", &keys[0], None);
    let issuer = |pem: &str, key: &rcgen::KeyPair| {
        let key = rcgen::KeyPair::from_pem(&key.serialize_pem()).unwrap();
        rcgen::Issuer::from_ca_cert_pem(pem, key).unwrap()
    };
    let intermediate = issue("intermediate", &keys[1], Some(&issuer(&root, &keys[0])));
    let issuer = issuer(&intermediate, &keys[1]);
    let trusted = ca_of(&IssuedCertificate { certificate: root, key: keys[0].serialize_pem() }, now);

    for (format, pkcs8, key) in [
        ("PKCS#1", include_str!("data/rsa-pkcs8.pem"), include_str!("data/rsa-pkcs1.pem")),
        ("PKCS#8", include_str!("data/ec-pkcs8.pem"), include_str!("data/ec-pkcs8.pem")),
        ("SEC1", include_str!("data/ec-pkcs8.pem"), include_str!("data/ec-sec1.pem")),
    ] {
        let params = rcgen::CertificateParams::new([DNS.to_owned()]).unwrap();
        let leaf = params.signed_by(&rcgen::KeyPair::from_pem(pkcs8).unwrap(), &issuer).unwrap().pem();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("tls.crt"), format!("{leaf}{intermediate}")).unwrap();
        std::fs::write(directory.path().join("tls.key"), key).unwrap();
        let resolver = Resolver::new();
        let mut watcher = swansong_certs::FileWatcher::new(
            swansong_certs::FilePair::in_directory(directory.path()),
            Arc::clone(&resolver),
            Arc::new(SystemTime::now),
            Arc::new(|_: &swansong_certs::Event| {}),
        );
        watcher.poll().unwrap();
        let address = echo(server_config(resolver, &[&version::TLS13]).unwrap()).await;
        let mut stream = connect(&client(&trusted, &[&version::TLS13], None), address).await.unwrap();
        ping(&mut stream).await.unwrap();
        assert_eq!(stream.get_ref().1.peer_certificates().unwrap().len(), 2, "{format}");
    }
}

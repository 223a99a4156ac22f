//! Real handshakes over loopback.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use swansong_certs::{
    Authority, ClientRoots, Issued, MinimumTls, Pair, PemPair, Resolver, TlsError, TlsOptions, server_config,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{DAY, DNS, authority_of};

/// The rustls client looks at the real clock, so these pairs are made by it.
pub(crate) fn pki() -> (Issued, Authority) {
    let now = SystemTime::now();
    let made = Authority::create(now, 10 * DAY).unwrap();
    let authority = authority_of(&made, now);
    (made, authority)
}

pub(crate) fn pair(authority: &Authority) -> Pair {
    let leaf = authority.issue(&[DNS.to_owned()], SystemTime::now(), DAY).unwrap();
    let pem = PemPair {
        certificate_name: "tls.crt",
        certificate: leaf.certificate.as_bytes(),
        key_name: "tls.key",
        key: leaf.key.as_bytes(),
    };
    Pair::from_pem(&pem, SystemTime::now()).unwrap()
}

/// Serves an echo with this configuration and returns where.
pub(crate) async fn echo(config: Arc<ServerConfig>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
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
    authority: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&Issued>,
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
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
async fn a_swap_serves_the_new_serial_while_an_open_connection_lives() {
    let (_, authority) = pki();
    let resolver = Resolver::new();
    let address = echo(server_config(Arc::clone(&resolver), &TlsOptions::default()).unwrap()).await;

    let connector = || client(&authority, &[&version::TLS13], None);
    connect(&connector(), address).await.unwrap_err();

    let (old, new) = (pair(&authority), pair(&authority));
    assert_ne!(old.serial(), new.serial());
    resolver.publish(old.clone());
    let resuming = connector();
    let mut open = connect(&resuming, address).await.unwrap();
    ping(&mut open).await.unwrap();
    assert_eq!(leaf_shown(&open), old.chain()[0]);
    assert_eq!(open.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));

    resolver.publish(new.clone());
    let mut fresh = connect(&connector(), address).await.unwrap();
    ping(&mut fresh).await.unwrap();
    assert_eq!(leaf_shown(&fresh), new.chain()[0]);
    ping(&mut open).await.unwrap();

    // The ticket of the connection before the swap is still honoured after it.
    let mut resumed = connect(&resuming, address).await.unwrap();
    ping(&mut resumed).await.unwrap();
    assert_eq!(resumed.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
}

#[tokio::test]
async fn old_tls_is_refused_unless_asked_for() {
    let (_, authority) = pki();
    let resolver = Resolver::new();
    resolver.publish(pair(&authority));
    let old = client(&authority, &[&version::TLS12], None);

    let strict = server_config(Arc::clone(&resolver), &TlsOptions::default()).unwrap();
    connect(&old, echo(strict).await).await.unwrap_err();

    let lenient = TlsOptions { minimum: MinimumTls::Tls12, ..TlsOptions::default() };
    let lenient = server_config(Arc::clone(&resolver), &lenient).unwrap();
    let mut stream = connect(&old, echo(lenient).await).await.unwrap();
    ping(&mut stream).await.unwrap();
    assert_eq!(stream.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
}

/// A certificate for a client, which the authority of this crate doesn't make.
pub(crate) fn client_identity(ca: &Issued) -> Issued {
    let key = rcgen::KeyPair::from_pem(&ca.key).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&ca.certificate, key).unwrap();
    let mut params = rcgen::CertificateParams::new(["kube-apiserver".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + DAY).into();
    let key = rcgen::KeyPair::generate().unwrap();
    Issued { certificate: params.signed_by(&key, &issuer).unwrap().pem(), key: key.serialize_pem() }
}

/// B61.
#[tokio::test]
async fn clients_of_any_of_several_authorities_are_let_in_and_others_not() {
    let (_, authority) = pki();
    let resolver = Resolver::new();
    resolver.publish(pair(&authority));
    let (first, second, stranger) = (pki().0, pki().0, pki().0);
    let options = TlsOptions {
        client_roots: Some(ClientRoots {
            name: "client-ca.crt".to_owned(),
            pem: format!("{}{}", first.certificate, second.certificate).into_bytes(),
        }),
        ..TlsOptions::default()
    };
    let address = echo(server_config(resolver, &options).unwrap()).await;
    for (who, ca, welcome) in [
        ("the first", Some(&first), true),
        ("the second", Some(&second), true),
        ("a stranger", Some(&stranger), false),
        ("nobody", None, false),
    ] {
        let identity = ca.map(client_identity);
        let connector = client(&authority, &[&version::TLS13], identity.as_ref());
        // In TLS 1.3 the client learns of the refusal only when it reads.
        let outcome = async { ping(&mut connect(&connector, address).await?).await };
        let outcome = tokio::time::timeout(Duration::from_secs(10), outcome).await.unwrap();
        assert_eq!(outcome.is_ok(), welcome, "{who}: {outcome:?}");
    }
}

#[test]
fn client_roots_that_are_none_are_an_error_that_names_them() {
    let options = |pem: &str| TlsOptions {
        client_roots: Some(ClientRoots { name: "client-ca.crt".to_owned(), pem: pem.as_bytes().to_vec() }),
        ..TlsOptions::default()
    };
    let error = server_config(Resolver::new(), &options("")).unwrap_err();
    assert!(matches!(error, TlsError::ClientRoots(_)), "{error}");
    assert!(error.to_string().contains("client-ca.crt"), "{error}");
}

/// B61: a chain of the kind that cert-manager's authorities often make: the client trusts only the root.
#[tokio::test]
async fn a_leaf_of_an_intermediate_is_accepted_with_a_key_in_any_spelling() {
    let now = SystemTime::now();
    let authority = |name: &str, subject: &rcgen::KeyPair, by: Option<&rcgen::Issuer<'_, rcgen::KeyPair>>| {
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
    let root = authority("root", &keys[0], None);
    let issuer = |pem: &str, key: &rcgen::KeyPair| {
        let key = rcgen::KeyPair::from_pem(&key.serialize_pem()).unwrap();
        rcgen::Issuer::from_ca_cert_pem(pem, key).unwrap()
    };
    let intermediate = authority("intermediate", &keys[1], Some(&issuer(&root, &keys[0])));
    let issuer = issuer(&intermediate, &keys[1]);
    let trusted = authority_of(&Issued { certificate: root, key: keys[0].serialize_pem() }, now);

    for (spelling, pkcs8, key) in [
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
            Arc::new(swansong_certs::SystemClock),
            Arc::new(|_: &swansong_certs::Event| {}),
        );
        watcher.poll().unwrap();
        let address = echo(server_config(resolver, &TlsOptions::default()).unwrap()).await;
        let mut stream = connect(&client(&trusted, &[&version::TLS13], None), address).await.unwrap();
        ping(&mut stream).await.unwrap();
        assert_eq!(stream.get_ref().1.peer_certificates().unwrap().len(), 2, "{spelling}");
    }
}

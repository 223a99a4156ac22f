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
fn pki() -> (Issued, Authority) {
    let now = SystemTime::now();
    let made = Authority::create(now, 10 * DAY).unwrap();
    let authority = authority_of(&made, now);
    (made, authority)
}

fn pair(authority: &Authority) -> Pair {
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
async fn echo(config: Arc<ServerConfig>) -> std::net::SocketAddr {
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

fn client(
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

async fn connect(
    connector: &TlsConnector,
    address: std::net::SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    connector.connect(ServerName::try_from(DNS).unwrap(), stream).await
}

async fn ping(stream: &mut TlsStream<TcpStream>) -> std::io::Result<()> {
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
fn client_identity(ca: &Issued) -> Issued {
    let key = rcgen::KeyPair::from_pem(&ca.key).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&ca.certificate, key).unwrap();
    let mut params = rcgen::CertificateParams::new(["kube-apiserver".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + DAY).into();
    let key = rcgen::KeyPair::generate().unwrap();
    Issued { certificate: params.signed_by(&key, &issuer).unwrap().pem(), key: key.serialize_pem() }
}

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

//! A client that sends given bytes, so that tests can misbehave.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion, version};

/// No read waits longer; a test that meets it has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

impl Client {
    /// Connects and shakes hands, trusting `certificate` only.
    pub(crate) fn connect(address: &str, certificate: &CertificateDer<'static>) -> Self {
        Self::try_connect(address, certificate, &version::TLS13).expect("a handshake")
    }

    pub(crate) fn try_connect(
        address: &str,
        certificate: &CertificateDer<'static>,
        version: &'static SupportedProtocolVersion,
    ) -> std::io::Result<Self> {
        Self::try_connect_as(None, address, certificate, version)
    }

    /// The same, showing a certificate if asked for one.
    pub(crate) fn try_connect_as(
        own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
        address: &str,
        certificate: &CertificateDer<'static>,
        version: &'static SupportedProtocolVersion,
    ) -> std::io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("a certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(vec![chain], key).expect("a pair"),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let name = "127.0.0.1".try_into().expect("a name");
        let mut connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
        let mut tcp = TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_write_timeout(Some(TIMEOUT))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut tcp)?;
        }
        Ok(Self { stream: StreamOwned::new(connection, tcp) })
    }

    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.stream.conn.alpn_protocol()
    }

    pub(crate) fn serial_of_peer(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().expect("a certificate")[0].to_vec()
    }

    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> Response {
        self.request("POST", path, body)
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Response {
        self.head(method, path, body.len());
        self.send(body);
        self.response()
    }

    /// A head that promises a body.
    pub(crate) fn head(&mut self, method: &str, path: &str, length: usize) {
        self.send(
            format!("{method} {path} HTTP/1.1\r\nHost: webhook\r\nContent-Length: {length}\r\n\r\n")
                .as_bytes(),
        );
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("sent");
    }

    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Whether the server answers at all: in TLS 1.3 a client learns only then that it was refused.
    pub(crate) fn is_answered(&mut self) -> bool {
        let sent = self.try_send(b"GET / HTTP/1.1\r\nHost: webhook\r\n\r\n");
        sent.is_ok() && self.stream.read_exact(&mut [0]).is_ok()
    }

    pub(crate) fn response(&mut self) -> Response {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("the head of a response");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut response = Response { status, head, body: Vec::new() };
        let length = response.header("content-length").map_or(0, |length| length.parse().expect("a number"));
        response.body.resize(length, 0);
        self.stream.read_exact(&mut response.body).expect("the body of a response");
        response
    }

    /// Waits until the server closes, having said nothing more.
    pub(crate) fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) => {}
            Err(error) => panic!("the connection stays open: {error}"),
        }
        assert_eq!(rest, b"", "something was said");
    }
}

/// A request without TLS on a new connection; status and body.
pub(crate) fn plain_get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: health\r\nConnection: close\r\n\r\n").expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

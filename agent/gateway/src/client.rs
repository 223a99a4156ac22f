//! The agent's side.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use swansong_clusterd::message::Message;
use swansong_clusterd::{PublicFault, SendError, Transport};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::PATH;
use crate::problem::Problem;

/// The limit for a response, in bytes.
const MAX_RESPONSE: usize = 64 << 10;

/// The gateway's address and the agent's credentials.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address in the form `HOST:PORT`.
    pub address: String,
    /// The name in the gateway's certificate.
    pub server_name: String,
    /// The PEM file with the CA certificates; read for each batch, as it may be replaced.
    pub ca_file: PathBuf,
    /// The projected service account token; read for each batch, as the kubelet rotates it.
    pub token_file: PathBuf,
    /// The timeout for the connection, including the TLS handshake.
    pub connect_timeout: Duration,
    /// The timeout for a batch; longer than the gateway's own request timeout.
    pub request_timeout: Duration,
}

/// A client of the gateway. A connection lives for one batch, and there is one at a time.
#[derive(Debug)]
pub struct GatewayClient {
    settings: Settings,
    send_lock: Mutex<()>,
}

impl GatewayClient {
    /// Creates a client.
    pub fn new(settings: Settings) -> Self {
        Self { settings, send_lock: Mutex::default() }
    }

    async fn post(&self, batch: &[PublicFault]) -> Result<(StatusCode, Bytes), String> {
        let Settings { address, server_name, connect_timeout, .. } = &self.settings;
        let token = self.token()?;
        // A short timeout: while the gateway's node is down, the agent may send to ClusterD directly.
        let stream = timeout(*connect_timeout, self.connect()).await.map_err(|_| {
            format!("the gateway at {address} can't be reached: no connection within {connect_timeout:?}")
        })??;
        let failed = |error: hyper::Error| format!("the gateway at {address} gave no answer: {error}");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // Dropping the set closes the connection.
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        let request = Request::post(PATH)
            .header(HOST, server_name)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(json!({ "faults": batch }).to_string())))
            .map_err(|error| format!("the token can't be sent: {error}"))?;
        let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect().await;
        let body = body.map_err(|error| format!("the gateway at {address} gave half an answer: {error}"))?;
        Ok((head.status, body.to_bytes()))
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>, String> {
        let Settings { address, server_name, .. } = &self.settings;
        let connector = TlsConnector::from(Arc::new(self.tls_config()?));
        let name = ServerName::try_from(server_name.clone())
            .map_err(|_| format!("`{server_name}` is no name of a server"))?;
        let stream = TcpStream::connect(address.as_str()).await;
        let stream = stream.map_err(|error| format!("the gateway at {address} can't be reached: {error}"))?;
        let _ = stream.set_nodelay(true);
        let stream = connector.connect(name, stream).await;
        stream.map_err(|error| format!("the gateway at {address} can't be trusted: {error}"))
    }

    fn token(&self) -> Result<String, String> {
        let path = &self.settings.token_file;
        let token = fs::read_to_string(path);
        let token = token.map_err(|error| format!("the token {} can't be read: {error}", path.display()))?;
        Ok(token.trim().to_owned())
    }

    fn tls_config(&self) -> Result<ClientConfig, String> {
        let path = &self.settings.ca_file;
        let invalid = |why: String| format!("the gateway's CA, {}, can't be used: {why}", path.display());
        let pem = fs::read(path).map_err(|error| invalid(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
            roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(invalid("it holds no certificate".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(error.to_string()))?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

impl Transport for GatewayClient {
    async fn send(&self, batch: &[PublicFault]) -> Result<(), SendError> {
        // Checked here too: the gateway would refuse an invalid batch.
        Message::new(batch, 0)?;
        let _lock = self.send_lock.lock().await;
        let limit = self.settings.request_timeout;
        let expired = |_| SendError::Unavailable(format!("the gateway gave no answer within {limit:?}"));
        let posted = timeout(limit, self.post(batch)).await.map_err(expired)?;
        let (status, body) = posted.map_err(SendError::Unavailable)?;
        if status == StatusCode::NO_CONTENT {
            return Ok(());
        }
        let problem = serde_json::from_slice::<Problem>(&body);
        let unknown = |_| SendError::Unavailable(format!("the gateway answers {status} in an unknown form"));
        Err(problem.map_err(unknown)?.into_send_error())
    }
}

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
use swansong_clusterd::message::{InvalidBatch, Message};
use swansong_clusterd::{PublicFault, SendError, Transport};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::PATH;
use crate::answer::Problem;

/// Bytes of an answer.
const MAX_ANSWER: usize = 64 << 10;

/// Where the relay is and how an agent shows who it is.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Host and port.
    pub address: String,
    /// The name in the relay's certificate.
    pub server_name: String,
    /// The certificate of the authority, PEM. Read anew for each batch, as it may be replaced.
    pub authority: PathBuf,
    /// The projected token of the service account. Read anew for each batch, as the kubelet replaces it.
    pub token: PathBuf,
    /// How long the relay may take to be reached and to prove who it is.
    pub connect: Duration,
    /// How long a batch may take; more than the relay itself waits for ClusterD.
    pub deadline: Duration,
}

/// The relay of the cluster. A connection lives for one batch, and there is one at a time.
#[derive(Debug)]
pub struct RelaySink {
    settings: Settings,
    line: Mutex<()>,
}

impl RelaySink {
    /// The relay that `settings` describe.
    pub fn new(settings: Settings) -> Self {
        Self { settings, line: Mutex::default() }
    }

    async fn post(&self, batch: &[PublicFault]) -> Result<(StatusCode, Bytes), String> {
        let Settings { address, server_name, .. } = &self.settings;
        let token = self.token()?;
        let connector = TlsConnector::from(Arc::new(self.tls()?));
        let name = ServerName::try_from(server_name.clone())
            .map_err(|_| format!("`{server_name}` is no name of a server"))?;
        let connected = async {
            let stream = TcpStream::connect(address.as_str()).await;
            let stream =
                stream.map_err(|error| format!("the relay at {address} can't be reached: {error}"))?;
            let _ = stream.set_nodelay(true);
            let stream = connector.connect(name, stream).await;
            stream.map_err(|error| format!("the relay at {address} can't be trusted: {error}"))
        };
        // A node that is gone says nothing, and ClusterD may be asked itself meanwhile.
        let patience = self.settings.connect;
        let stream = timeout(patience, connected).await.map_err(|_| {
            format!("the relay at {address} can't be reached: no connection within {patience:?}")
        })??;
        let broken = |error: hyper::Error| format!("the relay at {address} gave no answer: {error}");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let request = Request::post(PATH)
            .header(HOST, server_name)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(json!({ "faults": batch }).to_string())))
            .map_err(|error| format!("the token can't be sent: {error}"))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body =
                body.map_err(|error| format!("the relay at {address} gave half an answer: {error}"))?;
            Ok((head.status, body.to_bytes()))
        };
        // Both in this task, so that the connection ends with it.
        tokio::pin!(exchange, connection);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            ended = &mut connection => {
                // What was read before the end may be the answer.
                let after = timeout(Duration::from_millis(100), exchange).await;
                after.unwrap_or_else(|_| Err(match ended {
                    Err(error) => broken(error),
                    Ok(()) => format!("the relay at {address} hung up"),
                }))
            }
        }
    }

    fn token(&self) -> Result<String, String> {
        let path = &self.settings.token;
        let token = fs::read_to_string(path);
        let token = token.map_err(|error| format!("the token {} can't be read: {error}", path.display()))?;
        Ok(token.trim().to_owned())
    }

    fn tls(&self) -> Result<ClientConfig, String> {
        let path = &self.settings.authority;
        let unusable =
            |why: String| format!("the authority of the relay, {}, can't be used: {why}", path.display());
        let pem = fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unusable("it holds no certificate".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

impl Transport for RelaySink {
    async fn send(&self, batch: &[PublicFault]) -> Result<(), SendError> {
        // The relay refuses what ClusterD would; so it needn't be asked.
        prove(batch)?;
        let _line = self.line.lock().await;
        let deadline = self.settings.deadline;
        let late = |_| SendError::Unavailable(format!("the relay gave no answer within {deadline:?}"));
        let posted = timeout(deadline, self.post(batch)).await.map_err(late)?;
        let (status, body) = posted.map_err(SendError::Unavailable)?;
        if status == StatusCode::NO_CONTENT {
            return Ok(());
        }
        let problem = serde_json::from_slice::<Problem>(&body);
        let unknown =
            |_| SendError::Unavailable(format!("the relay answers {status} and nothing that is known"));
        Err(problem.map_err(unknown)?.into_send_error())
    }
}

fn prove(batch: &[PublicFault]) -> Result<(), InvalidBatch> {
    Message::new(batch, 0).map(drop)
}

/// One way, and another for when nobody can be reached by the first.
#[derive(Debug)]
pub struct FallingBack<F, S> {
    /// Asked first.
    pub first: F,
    /// Asked when the first is [`SendError::Unavailable`].
    pub second: S,
}

impl<F: Transport, S: Transport> Transport for FallingBack<F, S> {
    async fn send(&self, batch: &[PublicFault]) -> Result<(), SendError> {
        match self.first.send(batch).await {
            Err(SendError::Unavailable(why)) => self.second.send(batch).await.map_err(|error| match error {
                SendError::Unavailable(then) => SendError::Unavailable(format!("{why}; {then}")),
                error => error,
            }),
            answer => answer,
        }
    }
}

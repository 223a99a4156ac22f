//! The two peers: what the transport alone costs, and what a generic JSON tree costs on top.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server to compare with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    Floor,
    Tree,
}

impl Peer {
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Floor, Self::Tree].into_iter().find(|peer| peer.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Tree => "tree",
        }
    }
}

const ANSWER: &str =
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}"#;

/// Serves until killed; prints its address as the webhook does.
pub(crate) fn serve(peer: Peer, certificate: &Path, key: &Path) -> anyhow::Result<()> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let tls = rustls::ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let router = match peer {
        Peer::Floor => Router::new().route("/mutate", post(|_body: Bytes| async { ANSWER })),
        Peer::Tree => Router::new().route(
            "/mutate",
            post(|body: Bytes| async move {
                let tree: Result<serde_json::Value, _> = serde_json::from_slice(&body);
                if tree.is_ok() { ANSWER } else { "" }
            }),
        ),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{{\"address\":\"{}\"}}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await.context("accepting")?;
            stream.set_nodelay(true)?;
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let service = TowerToHyperService::new(router);
                    // A closed connection is the generator's way of ending; nothing uses this result.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                }
            });
        }
    })
}

//! The TLS configuration of the server. Only the pair behind the resolver changes.

use std::sync::Arc;

use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ServerConfig, SupportedProtocolVersion, version};

use crate::client_ca::ClientVerifier;
use crate::resolver::Resolver;
pub use crate::tls_error::TlsError;

/// The oldest accepted TLS version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MinimumTls {
    /// TLS 1.3, which all supported API servers use.
    #[default]
    Tls13,
    /// TLS 1.2 and later, for proxies between API server and webhook.
    Tls12,
}

/// Builds the TLS configuration of a server for HTTP/1.1. With `clients`, it accepts only clients that they verify.
///
/// Session tickets are encrypted with keys of this configuration, so a new server certificate doesn't invalidate them. A
/// client that resumes a session presents no certificate, so new client CAs do.
pub fn server_config(
    resolver: Arc<Resolver>,
    minimum: MinimumTls,
    clients: Option<&Arc<ClientVerifier>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let versions: &[&SupportedProtocolVersion] = match minimum {
        MinimumTls::Tls13 => &[&version::TLS13],
        MinimumTls::Tls12 => &[&version::TLS13, &version::TLS12],
    };
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let mut config = match clients {
        None => builder.with_no_client_auth().with_cert_resolver(resolver),
        Some(clients) => {
            let verifier: Arc<dyn ClientCertVerifier> = Arc::clone(clients) as _;
            builder.with_client_cert_verifier(verifier).with_cert_resolver(resolver)
        }
    };
    if let Some(clients) = clients {
        config.ticketer = Arc::clone(clients) as _;
        // Sessions stored here would outlive the CAs.
        config.session_storage = Arc::new(NoServerSessionStorage {});
    } else {
        config.ticketer = Ticketer::new()?;
    }
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

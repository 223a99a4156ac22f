//! The TLS configuration of the server. Only the pair behind the resolver changes.

use std::sync::Arc;

use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use crate::client_ca::ClientVerifier;
use crate::pair::{PairError, read_chain};
use crate::resolver::Resolver;

/// The oldest accepted TLS version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MinimumTls {
    /// TLS 1.3, which all supported API servers use.
    #[default]
    Tls13,
    /// TLS 1.2 and later, for proxies between API server and webhook.
    Tls12,
}

/// CAs that sign client certificates, as PEM.
#[derive(Clone, Debug)]
pub struct ClientCas {
    /// Name in errors, for example the file path.
    pub name: String,
    /// One or more CA certificates.
    pub pem: Vec<u8>,
}

impl ClientCas {
    /// Returns the number of CAs.
    pub(crate) fn count(&self) -> usize {
        read_chain(&self.name, &self.pem).map_or(0, |roots| roots.len())
    }
}

/// TLS settings of the server.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The oldest accepted version.
    pub minimum: MinimumTls,
    /// If set, clients must present a certificate that one of these CAs signed.
    pub client_cas: Option<ClientCas>,
    /// ALPN protocols, the preferred one first.
    pub alpn: Vec<Vec<u8>>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            minimum: MinimumTls::default(),
            client_cas: None,
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        }
    }
}

/// Why TLS can't be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The client CAs can't be read.
    #[error("client CAs: {0}")]
    ClientCas(#[from] PairError),
    /// A certificate isn't usable as a trust anchor.
    #[error(
        "client CAs: {name} can't be trusted ({problem}); give the PEM of the CAs that sign client certificates"
    )]
    ClientCa {
        /// Name of the text.
        name: String,
        /// The verifier's error.
        problem: String,
    },
    /// rustls returned an error.
    #[error("TLS can't be set up: {0}")]
    Setup(#[from] rustls::Error),
    /// rustls can't build the client verifier.
    #[error("client certificates can't be checked: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

/// Builds the TLS configuration of the server.
///
/// Session tickets are encrypted with keys of this configuration, so a new certificate doesn't invalidate them.
///
/// The client CAs of the options are read once; [`server_config_with_clients`] supports CAs that change.
pub fn server_config(resolver: Arc<Resolver>, options: &TlsOptions) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = options.client_cas.as_ref().map(client_verifier).transpose()?;
    let mut config = configure(resolver, options, verifier)?;
    config.ticketer = Ticketer::new()?;
    Ok(Arc::new(config))
}

/// Builds the TLS configuration of a server that accepts only clients that `clients` verifies. The client CAs of the
/// options are ignored.
///
/// A client that resumes a session presents no certificate, so new client CAs invalidate all session tickets.
pub fn server_config_with_clients(
    resolver: Arc<Resolver>,
    options: &TlsOptions,
    clients: &Arc<ClientVerifier>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier: Arc<dyn ClientCertVerifier> = Arc::clone(clients) as _;
    let mut config = configure(resolver, options, Some(verifier))?;
    config.ticketer = Arc::clone(clients) as _;
    // Sessions stored here would outlive the CAs.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn configure(
    resolver: Arc<Resolver>,
    options: &TlsOptions,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(default_provider());
    let versions: &[&SupportedProtocolVersion] = match options.minimum {
        MinimumTls::Tls13 => &[&version::TLS13],
        MinimumTls::Tls12 => &[&version::TLS13, &version::TLS12],
    };
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols.clone_from(&options.alpn);
    Ok(config)
}

/// Builds a verifier for client certificates of these CAs.
pub(crate) fn client_verifier(given: &ClientCas) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(read_roots(given)?);
    Ok(WebPkiClientVerifier::builder_with_provider(roots, Arc::new(default_provider())).build()?)
}

/// One invalid certificate is an error: leaving it out would lock out its clients without an explanation.
fn read_roots(given: &ClientCas) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(&given.name, &given.pem)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::ClientCa { name: given.name.clone(), problem: error.to_string() })?;
    }
    Ok(roots)
}

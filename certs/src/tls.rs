//! The one TLS configuration of the server's life; only the pair behind the resolver changes.

use std::sync::Arc;

use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use crate::client_roots::ClientTrust;
use crate::pair::{PairError, read_chain};
use crate::resolver::Resolver;

/// The oldest protocol version that is accepted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MinimumTls {
    /// TLS 1.3 only, which every API server in support speaks.
    #[default]
    Tls13,
    /// TLS 1.2 too, for proxies between API server and webhook that lag behind.
    Tls12,
}

/// PEM roots of which a client must show a certificate.
#[derive(Clone, Debug)]
pub struct ClientRoots {
    /// What to call them in errors, as a path.
    pub name: String,
    /// One or more authorities.
    pub pem: Vec<u8>,
}

impl ClientRoots {
    /// How many authorities there are.
    pub(crate) fn count(&self) -> usize {
        read_chain(&self.name, &self.pem).map_or(0, |roots| roots.len())
    }
}

/// How to speak TLS.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Oldest version.
    pub minimum: MinimumTls,
    /// When set, only clients with a certificate of these roots are let in.
    pub client_roots: Option<ClientRoots>,
    /// Protocols offered, the preferred first.
    pub alpn: Vec<Vec<u8>>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            minimum: MinimumTls::default(),
            client_roots: None,
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        }
    }
}

/// Why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The client roots can't be read.
    #[error("client authorities: {0}")]
    ClientRoots(#[from] PairError),
    /// A root is no authority that can be trusted.
    #[error(
        "client authorities: {name} can't be trusted ({problem}); give the PEM of the authorities that sign clients"
    )]
    ClientRoot {
        /// Where they were read.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// rustls refused.
    #[error("TLS can't be set up: {0}")]
    Setup(#[from] rustls::Error),
    /// rustls refused the client verifier.
    #[error("client certificates can't be checked: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

/// Builds the configuration that the server keeps for its life.
///
/// Session tickets are sealed with keys of this configuration, so they outlive a change of certificate: clients that
/// come back needn't handshake in full after a reload.
///
/// The client roots of the options are read once. For roots that change there is [`server_config_with_clients`].
pub fn server_config(resolver: Arc<Resolver>, options: &TlsOptions) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = options.client_roots.as_ref().map(client_verifier).transpose()?;
    let mut config = configure(resolver, options, verifier)?;
    config.ticketer = Ticketer::new()?;
    Ok(Arc::new(config))
}

/// The same, with only clients let in whom `clients` trusts at the time. The client roots of the options don't count.
///
/// A ticket spares its client the showing of a certificate, so tickets end with the roots under which they were given;
/// they end with no change of the server's own certificate.
pub fn server_config_with_clients(
    resolver: Arc<Resolver>,
    options: &TlsOptions,
    clients: &Arc<ClientTrust>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier: Arc<dyn ClientCertVerifier> = Arc::clone(clients) as _;
    let mut config = configure(resolver, options, Some(verifier))?;
    config.ticketer = Arc::clone(clients) as _;
    // Sessions kept here would outlive the roots.
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

/// Judges clients by these roots.
pub(crate) fn client_verifier(given: &ClientRoots) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(read_roots(given)?);
    Ok(WebPkiClientVerifier::builder_with_provider(roots, Arc::new(default_provider())).build()?)
}

/// All of the roots, or an error: a root left out in silence would lock a client out with no word why.
fn read_roots(given: &ClientRoots) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(&given.name, &given.pem)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::ClientRoot { name: given.name.clone(), problem: error.to_string() })?;
    }
    Ok(roots)
}

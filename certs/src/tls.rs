use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::certificate::read_chain;
use crate::error::Error;
use crate::resolver::Resolver;

/// Returns the TLS configuration of a server for HTTP/1.1 whose clients need no certificate.
///
/// Session tickets are encrypted with keys of this configuration, so a new server certificate doesn't invalidate them.
pub fn server_config(
    resolver: Arc<Resolver>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ArcSwap<ServerConfig>>, Error> {
    build(resolver, versions, None).map(|config| Arc::new(ArcSwap::from_pointee(config)))
}

/// Builds a TLS configuration. With `clients`, it accepts only clients whose certificate one of these CAs signed.
pub(crate) fn build(
    resolver: Arc<Resolver>,
    versions: &[&'static SupportedProtocolVersion],
    clients: Option<RootCertStore>,
) -> Result<ServerConfig, Error> {
    let failed = |error: &dyn std::error::Error| Error::new(format!("TLS can't be set up: {error}"));
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(versions).map_err(|error| failed(&error))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(cas) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(cas), provider);
            // With hints, a client whose certificate an intermediate signed might show none.
            let verifier = verifier.clear_root_hint_subjects().build().map_err(|error| failed(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.ticketer = Ticketer::new().map_err(|error| failed(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Reads the CAs that sign client certificates. `name` is the name of the text in errors, for example the file path.
///
/// One invalid certificate is an error: leaving it out would lock out its clients without an explanation.
pub fn client_cas(name: &str, pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut cas = RootCertStore::empty();
    let chain = read_chain(name, pem).map_err(|error| Error::new(format!("client CAs: {error}")))?;
    for certificate in chain {
        cas.add(certificate).map_err(|problem| {
            let remedy = "give the PEM of the CAs that sign client certificates";
            Error::new(format!("client CAs: {name} can't be trusted ({problem}); {remedy}"))
        })?;
    }
    Ok(cas)
}

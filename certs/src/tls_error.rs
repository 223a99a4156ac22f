//! The error of the TLS configuration.

use rustls::server::VerifierBuilderError;

use crate::pair::PairError;

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

//! ClusterD itself, by gRPC.
//!
//! ClusterD takes 1,024 connections in all and 512 from one address, and training jobs need their share, so none is held:
//! a connection lives for one call, and there is one at a time. Nothing is pinged: ClusterD cuts off whoever pings more
//! often than every 3 seconds.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{error, fs};

use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::message::Message;
use crate::process_fault::{self, Cause, ReportError};
use crate::proto;
use crate::proto::pub_fault_client::PubFaultClient;
use crate::proto::recover_client::RecoverClient;
use crate::public_fault::PublicFault;
use crate::sink::{SendError, Sink};

/// Where ClusterD listens in a cluster that was installed as documented.
pub const ADDRESS: &str = "http://clusterd-grpc-svc.mindx-dl.svc.cluster.local:8899";
/// Bytes of a message that ClusterD takes. A batch of the longest faults is far below it.
const MAX_MESSAGE: usize = 4 << 20;
/// Bytes of an answer; it is a code and a sentence.
const MAX_ANSWER: usize = 64 << 10;

/// ClusterD's gRPC server.
#[derive(Debug)]
pub struct Grpc {
    endpoint: Endpoint,
    deadline: Duration,
    /// Held for a call: one connection at a time.
    line: Mutex<()>,
}

/// The address or the certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// Not `http://HOST:PORT` or `https://HOST:PORT`.
    #[error("`{0}` is no address of ClusterD: it has the form http://HOST:PORT")]
    NotAnAddress(String),
    /// The file with the authority's certificate can't be read.
    #[error("{path} can't be read: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file holds no certificate.
    #[error("{path} holds no certificate that can be used: {error}")]
    NoCertificate {
        /// The file.
        path: String,
        /// Why.
        error: tonic::transport::Error,
    },
}

impl Grpc {
    /// ClusterD at `address`, [`ADDRESS`] as a rule; a call, dialling included, may last `deadline`.
    pub fn new(address: &str, deadline: Duration) -> Result<Self, AddressError> {
        let wrong = || AddressError::NotAnAddress(address.to_owned());
        let uri: http::Uri = address.parse().map_err(|_| wrong())?;
        let schemes = ["http", "https"].map(Some);
        if !schemes.contains(&uri.scheme_str()) || uri.port_u16().is_none() || uri.path() != "/" {
            return Err(wrong());
        }
        let endpoint = Endpoint::from(uri).connect_timeout(deadline).tcp_nodelay(true);
        Ok(Self { endpoint, deadline, line: Mutex::default() })
    }

    /// ClusterD behind something that speaks TLS, since ClusterD itself doesn't: `authority` is a file with the
    /// certificates, PEM, one of which has to have signed its certificate.
    pub fn with_authority(address: &str, deadline: Duration, authority: &Path) -> Result<Self, AddressError> {
        let plain = Self::new(address, deadline)?;
        let path = || authority.display().to_string();
        let pem = fs::read(authority).map_err(|error| AddressError::Unreadable { path: path(), error })?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
        let endpoint = plain.endpoint.tls_config(tls);
        let endpoint = endpoint.map_err(|error| AddressError::NoCertificate { path: path(), error })?;
        Ok(Self { endpoint, ..plain })
    }

    /// Reports that `ranks` (global ranks) of the job with the UID `job` are lost. ClusterD acts at once and on the
    /// whole job.
    pub async fn report_process_fault(
        &self,
        job: &str,
        ranks: &[u32],
        cause: Cause,
    ) -> Result<(), ReportError> {
        if ranks.is_empty() {
            return Err(ReportError::NoRanks);
        }
        let request = process_fault::request(job, ranks, cause);
        let call = async |channel| {
            let mut client = RecoverClient::new(channel).max_decoding_message_size(MAX_ANSWER);
            client.report_process_fault(request).await
        };
        let status: proto::Status = self.call(call).await.map_err(ReportError::Unavailable)?;
        process_fault::outcome(status)
    }

    /// Dials, calls, hangs up; an error is a sentence.
    async fn call<T>(
        &self,
        call: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, String> {
        let to = || format!("ClusterD at {}", self.endpoint.uri());
        let _line = self.line.lock().await;
        let whole = async {
            let channel = self
                .endpoint
                .connect()
                .await
                .map_err(|error| format!("{} can't be reached: {}", to(), innermost(&error)))?;
            let answer = call(channel).await;
            answer.map(tonic::Response::into_inner).map_err(|status| {
                let why = match (error::Error::source(&status), status.message()) {
                    (Some(source), _) => innermost(source),
                    (None, "") => status.code().description().to_owned(),
                    (None, message) => message.to_owned(),
                };
                format!("{} gave no answer: {why}", to())
            })
        };
        let late = || format!("{} gave no answer within {:?}", to(), self.deadline);
        timeout(self.deadline, whole).await.map_err(|_| late())?
    }
}

impl Sink for Grpc {
    async fn send(&self, batch: &[PublicFault]) -> Result<(), SendError> {
        let request = Message::new(batch, now())?.to_proto();
        let call = async |channel| {
            let mut client = PubFaultClient::new(channel)
                .max_encoding_message_size(MAX_MESSAGE)
                .max_decoding_message_size(MAX_ANSWER);
            client.send_public_fault(request).await
        };
        let answer: proto::RespStatus = self.call(call).await.map_err(SendError::Unavailable)?;
        match answer.code {
            0 => Ok(()),
            409 => Err(SendError::Invalid(answer.info)),
            410 => Err(SendError::TooMany(answer.info)),
            code => Err(SendError::Other { code, info: answer.info }),
        }
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// tonic wraps the reason in several errors that say "transport error".
fn innermost(error: &dyn error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_a_port() {
        for address in [ADDRESS, "http://10.0.0.1:8899", "https://[::1]:1/"] {
            assert!(Grpc::new(address, Duration::from_secs(1)).is_ok(), "{address}");
        }
        for address in
            ["", "clusterd:8899", "http://clusterd", "http://clusterd:8899/x", "unix:///x", "http://:x"]
        {
            let error = Grpc::new(address, Duration::from_secs(1)).expect_err(address);
            assert!(error.to_string().contains("http://HOST:PORT"), "{error}");
        }
    }
}

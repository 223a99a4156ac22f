//! The client.
//!
//! ClusterD accepts 1,024 connections in total and 512 from one address, and training jobs need most of them. Therefore a
//! connection lives for one call, and there is one at a time. There are no keepalive pings: ClusterD closes connections
//! that ping more often than every 3 seconds.

use std::collections::HashMap;
use std::error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::proto;
use crate::proto::pub_fault_client::PubFaultClient;
use swansong_clusterd::message::{Message, VERSION};
use swansong_clusterd::{PublicFault, RESOURCE, SendError, Transport};

/// ClusterD's address in a cluster that was installed as documented.
pub const ADDRESS: &str = "http://clusterd-grpc-svc.mindx-dl.svc.cluster.local:8899";
/// ClusterD's limit for a message, in bytes. A batch of the longest faults is far below it.
const MAX_MESSAGE: usize = 4 << 20;
/// The limit for a response, in bytes; it is a code and a sentence.
const MAX_RESPONSE: usize = 64 << 10;

/// A client of ClusterD's gRPC server.
#[derive(Debug)]
pub struct GrpcClient {
    endpoint: Endpoint,
    timeout: Duration,
    /// Held during a call: one connection at a time.
    call_lock: Mutex<()>,
}

/// The address isn't `http://HOST:PORT`.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no address of ClusterD: it has the form http://HOST:PORT")]
pub struct AddressError(String);

impl GrpcClient {
    /// Creates a client for ClusterD at `address`, usually [`ADDRESS`]; `timeout` limits a call, including the connection.
    pub fn new(address: &str, timeout: Duration) -> Result<Self, AddressError> {
        let invalid = || AddressError(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| invalid())?;
        // ClusterD serves no TLS.
        if uri.scheme_str() != Some("http") || uri.port_u16().is_none() || uri.path() != "/" {
            return Err(invalid());
        }
        let endpoint = Endpoint::from(uri).connect_timeout(timeout).tcp_nodelay(true);
        Ok(Self { endpoint, timeout, call_lock: Mutex::default() })
    }

    /// Opens a connection for one call. The error is a sentence.
    async fn call<T>(
        &self,
        call: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, String> {
        let server = || format!("ClusterD at {}", self.endpoint.uri());
        let _lock = self.call_lock.lock().await;
        let exchange = async {
            let channel = self
                .endpoint
                .connect()
                .await
                .map_err(|error| format!("{} can't be reached: {}", server(), root_cause(&error)))?;
            let response = call(channel).await;
            response.map(tonic::Response::into_inner).map_err(|status| {
                let cause = match (error::Error::source(&status), status.message()) {
                    (Some(source), _) => root_cause(source),
                    (None, "") => status.code().description().to_owned(),
                    (None, message) => message.to_owned(),
                };
                format!("{} gave no answer: {cause}", server())
            })
        };
        let expired = || format!("{} gave no answer within {:?}", server(), self.timeout);
        timeout(self.timeout, exchange).await.map_err(|_| expired())?
    }
}

impl Transport for GrpcClient {
    async fn send(&self, batch: &[PublicFault]) -> Result<(), SendError> {
        let request = public_fault_request(&Message::new(batch, now())?);
        let call = async |channel| {
            let mut client = PubFaultClient::new(channel)
                .max_encoding_message_size(MAX_MESSAGE)
                .max_decoding_message_size(MAX_RESPONSE);
            client.send_public_fault(request).await
        };
        let response: proto::RespStatus = self.call(call).await.map_err(SendError::Unavailable)?;
        match response.code {
            0 => Ok(()),
            409 => Err(SendError::Invalid(response.info)),
            410 => Err(SendError::TooMany(response.info)),
            code => Err(SendError::UnexpectedResponse { code, info: response.info }),
        }
    }
}

/// The request that sends `message`.
pub fn public_fault_request(message: &Message<'_>) -> proto::PublicFaultRequest {
    proto::PublicFaultRequest {
        id: message.id(),
        timestamp: message.timestamp().cast_signed(),
        version: VERSION.to_owned(),
        resource: RESOURCE.to_owned(),
        faults: message.faults().iter().map(fault_message).collect(),
    }
}

fn fault_message(fault: &PublicFault) -> proto::Fault {
    // A valid id is at most 31.
    let device_ids = fault.devices.iter().map(|device| device.cast_signed()).collect();
    let influence = proto::PubFaultInfo { node_name: fault.node.clone(), node_sn: String::new(), device_ids };
    proto::Fault {
        fault_id: fault.fault_id.clone(),
        fault_type: fault.fault_type.to_string(),
        fault_code: fault.class.code().to_owned(),
        fault_time: fault.fault_time.cast_signed(),
        assertion: fault.assertion.to_string(),
        fault_location: HashMap::from_iter(fault.location.clone()),
        influence: vec![influence],
        description: fault.description.clone(),
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The innermost error; tonic wraps it in several that display as "transport error".
fn root_cause(error: &dyn error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use swansong_clusterd::{Class, FaultType};
    use swansong_fault_model::Assertion;

    use super::*;

    #[test]
    fn address_needs_scheme_host_and_port() {
        for address in [ADDRESS, "http://10.0.0.1:8899", "http://[::1]:1/"] {
            assert!(GrpcClient::new(address, Duration::from_secs(1)).is_ok(), "{address}");
        }
        for address in [
            "",
            "clusterd:8899",
            "http://clusterd",
            "http://clusterd:8899/x",
            "unix:///x",
            "http://:x",
            "https://x:1",
        ] {
            let error = GrpcClient::new(address, Duration::from_secs(1)).expect_err(address);
            assert!(error.to_string().contains("http://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn longest_message_is_below_clusterds_limit() {
        let longest = |i: u32| PublicFault {
            fault_id: format!("{i:0128}"),
            fault_type: FaultType::Npu,
            class: Class::ChipSeparate,
            fault_time: 1_756_000_000_000,
            assertion: Assertion::Occur,
            location: (0..10).map(|key| (format!("{key:016}"), "v".repeat(128))).collect(),
            node: "n".repeat(253),
            devices: (0..32).collect(),
            description: "障".repeat(512),
        };
        let faults: Vec<_> = (0..100).map(longest).collect();
        let message = Message::new(&faults, 1_756_000_001_000).expect("valid");
        assert!(prost::Message::encoded_len(&public_fault_request(&message)) < MAX_MESSAGE);
    }
}

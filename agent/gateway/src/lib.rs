//! The relay of faults: agents hand them over by HTTPS, and it sends them to ClusterD in full batches.
//!
//! ClusterD takes one message a second from all agents together. A switch that fails hits a thousand nodes at once; each
//! on its own they would wait a quarter of an hour. The relay keeps nothing: a request waits until ClusterD has taken
//! what is in it, and only then is answered, so that the agent's outbox keeps it until then.
//!
//! - [`budget`]: how many messages may be sent.
//! - [`queue`]: the requests that wait, in order.
//! - [`pump`]: takes batches from the queue and sends them.
//! - [`review`]: who asks, by their token.
//! - [`answer`]: what an agent is told, and what it makes of it.
//! - [`http`]: `POST /v1/faults`.
//! - [`listen`]: connections, and how long each may last.
//! - [`client`]: the agent's side.

pub mod answer;
pub mod budget;
pub mod client;
pub mod http;
pub mod listen;
pub mod metrics;
pub mod pump;
pub mod queue;
pub mod review;

/// The audience of the tokens that agents show.
pub const AUDIENCE: &str = "swansong-relay";
/// Where faults are posted.
pub const PATH: &str = "/v1/faults";
/// Bytes of a request. A hundred of the longest faults are half of it.
pub const MAX_BODY: usize = 1 << 20;

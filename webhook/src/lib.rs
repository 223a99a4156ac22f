//! Admission for Swansong.
//!
//! The heart is [`inject::inject`]: a pure function from a raw JSON object to sparse RFC 6902
//! operations and findings. It knows nothing of HTTP, Kubernetes clients or time, so the command
//! line and the webhook share it. Data flows one way:
//!
//! ```text
//! request → review → object → views → findings and operations → response
//! ```
//!
//! - [`strategy`]: the annotation `recover-strategy`, parsed and normalised.
//! - [`workload`]: where pod templates live in each kind.
//! - [`inject`]: what is added to a template, and its exact undo.
//! - [`policy`]: the validated settings the core obeys.
//! - [`config`]: the YAML file those come from, with hot reload.
//! - [`ready_nodes`]: whether there are nodes that a job may require, as last seen.
//! - [`review`]: an admission review in, its answer out.
//! - [`server`]: HTTPS around it, with health and metrics.
//! - [`reason`]: the one vocabulary of skips and findings.

pub mod config;
pub mod ready_nodes;
pub mod review;
pub mod server;

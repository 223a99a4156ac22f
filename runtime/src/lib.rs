//! What Swansong's processes share at run time.
//!
//! - [`config`]: strict YAML files whose problems are reported with line and key, and polling of files.
//! - [`supervisor`]: long-lived tasks that are restarted when they end, and how to see that they make progress.
//! - [`backoff`]: the delay between attempts.
//! - [`events`]: Events, joined and rate-limited.
//! - [`http`]: the HTTP server of every port, with health and metrics.
//! - [`kube`]: clients of the API server, and messages for its errors.
//! - [`log_limiter`]: limits for log lines about frequent events.
//! - [`metrics`]: registration of metrics.

pub mod backoff;
pub mod config;
pub mod events;
pub mod http;
pub mod kube;
pub mod log_limiter;
pub mod metrics;
pub mod supervisor;

//! What Swansong's processes share at run time.
//!
//! - [`config`]: strict YAML files whose problems are reported with line and key, and polling of files.
//! - [`supervisor`]: long-lived tasks that are restarted when they end, and how to see that they make progress.
//! - [`backoff`]: the delay between attempts.
//! - [`events`]: Events, joined and rate-limited.
//! - [`kube`]: clients of the API server, and messages for its errors.

pub mod backoff;
pub mod config;
pub mod events;
pub mod kube;
pub mod supervisor;

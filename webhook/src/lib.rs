//! The admission webhook.
//!
//! - [`server`]: HTTPS for reviews, health and metrics; limits and graceful shutdown.
//! - [`review`]: from the body of an admission review to the body of its response.
//! - [`config`]: the YAML file of settings, with hot reload.
//! - [`ready_nodes`]: whether there are nodes that a job may be made to require.
//!
//! What is injected is decided by [`swansong_inject`].

pub mod config;
pub mod ready_nodes;
pub mod review;
pub mod server;

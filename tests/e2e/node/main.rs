//! The whole chain on a node that runs pods: what the training processes themselves see.
//!
//! All tests share one cluster. A job's pods end by themselves, so that its NPUs are free again.
#![allow(missing_docs, clippy::unwrap_used)]

mod agent;
mod cert_manager;
mod chain;
mod demo;
mod launcher_hook;
mod policies;
mod rig;

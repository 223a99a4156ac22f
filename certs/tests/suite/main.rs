//! Tests of the crate through its public API, in one binary to save link time.
#![allow(missing_docs, clippy::unwrap_used)]

mod bundle;
mod client_ca;
mod decide;
mod files;
mod handshake;
mod manager;
mod pair;
mod replica;
mod replicas;
mod rotation;
mod rotation_state;
mod simulation;
mod support;

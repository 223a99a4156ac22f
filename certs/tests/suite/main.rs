//! Tests of the crate through its public face; one binary, since linking is what takes the time.
#![allow(missing_docs, clippy::unwrap_used)]

mod bundle;
mod client_roots;
mod crew;
mod decide;
mod fake_api;
mod files;
mod handshake;
mod managed;
mod pair;
mod replica;
mod rotation;
mod steps;
mod support;
mod world;

//! Tests of the crate through its public face; one binary, since linking is what takes the time.
#![allow(missing_docs, clippy::unwrap_used)]

mod bundle;
mod decide;
mod fake_api;
mod files;
mod handshake;
mod managed;
mod pair;
mod support;

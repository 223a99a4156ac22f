//! The offline commands, driven as a user drives them.
//!
//! Expected output stands in `tests/support/fixtures/workloads/expected`; after a change that is meant,
//! `UPDATE_EXPECTED=1 cargo test -p swansong --test integration-cli` writes it anew, and `git diff` shows what became of it.

mod bad_input;
mod clusterd_config;
mod explain;
mod inputs;
mod streams;
mod support;
mod workloads;

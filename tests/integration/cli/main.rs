//! The offline commands, run like a user runs them.
//!
//! `INSTA_UPDATE=always cargo test -p swansong --test integration-cli` updates the snapshots in
//! `tests/support/fixtures/workloads/expected`; review them with `git diff`.

mod aliases;
mod bad_input;
mod clusterd_config;
mod explain;
mod inputs;
mod streams;
mod support;
mod trainer;
mod workloads;

//! Swansong against a real API server: what only an API server can say.
//!
//! All tests share one API server and one webhook, each in its own namespace. The webhook configuration is the
//! one in `manifests/base`, with its Service replaced by the address of the process under test.
#![allow(missing_docs, clippy::unwrap_used)]

mod agent;
mod agent_policy;
mod certificates;
#[path = "../../support/faults/events.rs"]
mod fault_events;
#[path = "../../support/faults/objects.rs"]
mod fault_objects;
mod faults;
#[path = "../../../agent/tests/host/fixture.rs"]
#[allow(dead_code)]
mod fixture;
mod guard;
mod inputs;
mod jobs;
mod node_readiness;
mod overload;
mod pods;
mod relay;
mod secrecy;
mod support;

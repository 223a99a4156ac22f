//! Swansong against a real API server: what only an API server can say.
//!
//! All tests share one API server and one webhook, each in its own namespace. The webhook configuration is the
//! one in `manifests/base`, with its Service replaced by the address of the process under test.
#![allow(missing_docs, clippy::unwrap_used)]

mod agent;
mod agent_policy;
mod certificates;
mod chart;
mod doctor;
mod fault_dumps;
mod faults;
mod gateway;
mod gitops;
mod inputs;
mod install;
mod jobs;
mod monitoring;
mod node_readiness;
mod other_webhooks;
mod overload;
mod pods;
mod reset_config;
mod secrecy;
mod support;
mod zero_touch;

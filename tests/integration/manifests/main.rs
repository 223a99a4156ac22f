//! The manifests, rendered by the kustomize in kubectl: against golden files, and against rules that must hold
//! whatever is written into them.
//!
//! `UPDATE_GOLDEN=1 cargo test --test integration-manifests` renews the golden files; read the difference before you commit it.
#![allow(missing_docs)]

mod admission;
mod agent;
mod configuration;
mod gateway;
mod golden;
mod image;
mod kustomize;
mod network;
mod pods;
mod references;
mod rights;

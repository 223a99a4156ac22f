//! The manifests, rendered by the kustomize in kubectl, compared with snapshots and checked against rules.
//!
//! `INSTA_UPDATE=always cargo test -p swansong --test integration-manifests` updates the snapshots; review them with `git diff`.
#![allow(missing_docs)]

mod admission;
mod agent;
mod configuration;
mod doctor;
mod gateway;
mod golden;
mod image;
mod kustomize;
mod network;
mod pods;
mod references;
mod rights;

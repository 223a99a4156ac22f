//! ClusterD's messages and services, as `proto/` declares them.

#![allow(missing_docs, unreachable_pub, clippy::pedantic)]

tonic::include_proto!("_");

//! The webhook as a cluster has it: the real binary, real TLS over loopback.

mod burst;
mod churn;
mod client;
mod clients;
mod harness;
mod lifecycle;
mod limits;
mod observe;
mod reload;
mod reviews;
mod shed;
mod slow;
mod startup;

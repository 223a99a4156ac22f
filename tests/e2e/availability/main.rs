//! Swansong's replicas coming, going, killed and away, on a node that runs them, behind a real Service.
//!
//! The scenarios share one cluster and take turns, since each does to Swansong what the others couldn't bear.
//! `SWANSONG_SOAK=1` makes `rolling` long (`make soak`); what it prints is what docs/reliability.md shows.
#![allow(missing_docs, clippy::unwrap_used)]

mod down;
mod fates;
mod load;
mod mounted;
mod rights;
mod rolling;
mod site;
mod token;
mod upgrade;

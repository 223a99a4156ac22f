//! Availability of the webhook while its replicas are rolled, killed, scaled or stopped, behind a real Service.
//!
//! The scenarios share one cluster and run one at a time, since each disturbs Swansong.
//! `SWANSONG_SOAK=1` makes `rolling` long (`make soak`); what it prints is what docs/reliability.md shows.
#![allow(missing_docs, clippy::unwrap_used)]

mod down;
mod load;
mod mounted;
mod outcomes;
mod rights;
mod rolling;
mod site;
mod token;
mod upgrade;

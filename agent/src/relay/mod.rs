//! From device faults to ClusterD: what is told, when, and how it is known that it arrived.
//!
//! ```text
//! Seen → episodes → outbox (on disk) → plan → sink → ClusterD
//!                       ↑                ↑
//!                    verdicts     preflight, device plugin's view, statistic-fault-info
//! ```
//!
//! Pure: `episodes` joins what the sources see, `plan` says what goes when, `reconcile` compares with what ClusterD
//! has, `preflight` says whether a dump could be ordered, `pace` how fast. The rest carries it out.

mod condition;
mod episode;
mod episodes;
mod look;
mod metrics;
mod pace;
mod plan;
mod pod;
mod preflight;
mod reconcile;
mod route;
mod run;
mod settings;
mod store;
mod story;
mod terms;
mod view;

#[cfg(test)]
mod episodes_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod reconcile_tests;
#[cfg(test)]
mod simulation;

pub(crate) use self::condition::Told;
pub(crate) use self::episode::Episode;
pub(crate) use self::episodes::RULES;
pub(crate) use self::metrics::Metrics;
pub(crate) use self::pod::NpuPod;
pub(crate) use self::route::{ByRelay, ConfigMapSink, Routes};
pub(crate) use self::run::{Inputs, Parts, Queue, run};
pub use self::settings::Settings;
pub(crate) use self::story::Story;
pub(crate) use self::view::View;

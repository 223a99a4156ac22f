//! The job guard: each job that can dump has the ConfigMap without which it can't.
//!
//! At a fault ClusterD notes the lost ranks in `reset-config-<job>`, and without that ConfigMap it orders no dump,
//! after the ranks were ended. Nothing in MindCluster makes it. This does, for AscendJobs and Volcano Jobs, and says so
//! where an existing one can't be used; it never changes or deletes one.
//!
//! Any number of replicas may run at once and none leads: all that is ever written is a creation, which the API
//! server grants once, and Events that have the same name whoever writes them.
//!
//! ```text
//! watches of metadata → agenda: which job to look at, and when → look: ConfigMap, job, namespace → decide → create or tell
//! ```
//!
//! - [`job`]: the two kinds, and what matters of a job.
//! - [`decide`]: what is to be done about a job's ConfigMap.
//! - [`agenda`]: which job to look at when.
//! - [`config_map`]: the ConfigMap as it is created, and how an existing one is judged.
//! - [`Guard`]: the work itself.
//!
//! What ClusterD needs of the ConfigMap is [`swansong_clusterd::reset_config`].

pub mod agenda;
mod api;
pub mod config_map;
pub mod decide;
mod event;
pub mod job;
mod news;
mod run;
mod work;

pub use self::news::{About, News, Observer, Standings, Watched};
pub use self::run::{Ended, Guard};

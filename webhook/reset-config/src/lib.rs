//! The reset-config controller: creates the ConfigMap `reset-config-<job>` of each AscendJob and Volcano Job that asks
//! for a dump and has none.
//!
//! At a fault ClusterD ends the ranks on the faulty node and then records the lost ranks in this ConfigMap. If it is
//! missing, ClusterD orders no dump. No MindCluster component creates it. The controller never changes or deletes one;
//! where an existing one is unusable, it reports so in an Event on the job.
//!
//! A job's own ConfigMap takes precedence: the controller creates one only after it has been missing for a
//! [grace period](Policy::grace_period).
//!
//! Any number of replicas may run at once, without a leader: the API server accepts one creation, and Events have
//! deterministic names.
//!
//! - [`job`]: the two kinds of job.
//! - [`decide`]: what to do about a job's ConfigMap (pure).
//! - [`config_map`]: the ConfigMap to create, and the check of an existing one (pure).
//! - [`run`]: a [`kube::runtime::Controller`] for each kind of job.
//!
//! What ClusterD requires of the ConfigMap is in [`swansong_clusterd::reset_config`].

pub mod config_map;
mod controller;
pub mod decide;
mod events;
pub mod job;
mod metrics;
mod reconcile;
mod record;
mod request;

pub use self::controller::{ControllerError, run};
pub use self::decide::Policy;
pub use self::metrics::Metrics;

/// Name of the controller in managed fields and Events.
const FIELD_MANAGER: &str = "swansong-reset-config";

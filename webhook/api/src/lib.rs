//! The contract between webhook, node agent, reset-config controller and command line: names of labels, annotations,
//! conditions, taints and environment variables, the `recover-strategy` list, and the record of an injection.

pub mod annotations;
pub mod documented;
pub mod env;
pub mod labels;
pub mod launcher_hook;
pub mod node;
pub mod pod;
pub mod pod_status;
pub mod ports;
pub mod preload;
pub mod record;
pub mod strategy;

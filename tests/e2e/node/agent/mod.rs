//! The agent on a real node, by its manifests.

mod faults;
mod preload;
mod rig;
mod truth;

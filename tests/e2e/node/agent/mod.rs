//! The agent on a real node, by its manifests.

mod doctor;
mod dump;
mod faults;
mod launcher;
mod preload;
mod rig;
mod truth;
mod zero_touch;

//! The agent on a real node, by its manifests.

mod faults;
#[path = "../../../../agent/tests/host/fixture.rs"]
#[allow(dead_code)]
mod fixture;
mod preload;
mod rig;
mod truth;

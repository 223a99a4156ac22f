//! Whether a dying checkpoint would be saved: what a cluster shows of each link of the chain.
//!
//! ```text
//! API server, agents' /status ─collect─▶ Snapshot ─checks─▶ Report ─▶ text or JSON
//! ```
//!
//! [`collect`] reads. [`rehearse`] is the only part that writes. [`checks`] is a pure function of the [`snapshot`]. What couldn't be read
//! is in the snapshot as such, and a check of it is unknown, never passed. [`status`] judges by the same checks what watches
//! show, [`fault_course`] says what happened after a fault, and [`bundle`] puts all of it into one archive.

pub mod bundle;
pub mod checks;
pub mod collect;
pub mod fault_course;
pub mod rehearse;
pub mod report;
pub mod snapshot;
pub mod status;

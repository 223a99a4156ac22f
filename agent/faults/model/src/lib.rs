//! Device faults: codes, levels, what sources report, and the rules that raise a level. No I/O and no clock.
//!
//! - [`Code`]: a fault code of the driver or of MindCluster.
//! - [`Level`]: how MindCluster handles a fault.
//! - [`SourceUpdate`]: what a source reports, a snapshot or an event.
//! - [`Classifier`]: maps a code to its level; [`ClassifierSelector`] picks the classifier in effect.
//! - [`DriverFault`]: faults for which the driver has no code.
//! - [`Rules`], [`EscalationTracker`]: raise the level of faults that repeat or last.
//! - [`device_plugin`]: what the device plugin publishes about this node.
//! - [`outcome`]: the outcome of the dump of a job.
//! - [`rank_process`]: which process is the rank on a lost device.

mod classify;
mod code;
pub mod device_plugin;
mod driver_fault;
mod fault;
mod fault_id;
mod json;
mod level;
pub mod outcome;
pub mod rank_process;
pub mod reconcile;
mod rules;
mod send_backoff;
mod source_update;
mod tracker;

pub use self::classify::{Classifier, ClassifierSelector, ClassifierSource, LevelReason, ReloadResult};
pub use self::code::{Code, InvalidCode, NETWORK_CODES};
pub use self::driver_fault::{CARD_DROP, DriverFault};
pub use self::fault::{
    BlockReason, Classification, Delivery, EARLIEST, Fault, FaultKind, Handling, Loss, Phase, RULES,
};
pub use self::fault_id::{FaultId, fault_id, rehearsal_expiry, rehearsal_id};
pub use self::json::{ParseError, Warning};
pub use self::level::Level;
pub use self::rules::{
    DurationRule, EscalatedLevel, EscalationReason, EscalationTracker, FrequencyRule, RuleError, Rules,
    SavedTrack,
};
pub use self::send_backoff::{BatchError, SendBackoff, Trouble};
pub use self::source_update::{ActiveFault, Assertion, FaultEvent, Severity, SourceUpdate, Subject};
pub use self::tracker::{Change, Classify, Context, FaultTracker, MAX_FAULTS, Untracked};

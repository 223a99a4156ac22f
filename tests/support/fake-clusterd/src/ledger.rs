//! What the fake ClusterD received and did, for the assertions of tests. Times are milliseconds of its clock.

use serde::Serialize;

/// The effect of an accepted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Effect {
    /// The fault is new and active.
    Added,
    /// The fault was active already: nothing changes, not even its devices.
    Repeated,
    /// The fault has ended.
    Recovered,
    /// The fault ends when it is 5 seconds old.
    Deferred,
    /// A recovery of a fault that isn't active, retried once after 5 seconds.
    Unknown,
    /// The cache is full: the fault is dropped, although the answer is 0.
    Full,
}

/// One fault at one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AcceptedFault {
    pub at: u64,
    pub message: String,
    pub resource: String,
    pub fault_id: String,
    /// `occur`, `recover` or `once`.
    pub assertion: String,
    pub node: String,
    pub devices: Vec<i32>,
    pub code: String,
    /// When it occurred, milliseconds since 1970.
    pub fault_time: i64,
    pub effect: Effect,
}

/// An invalid fault that was removed from a message. Its sender isn't notified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dropped {
    pub fault_id: String,
    /// The reason in ClusterD's log.
    pub why: &'static str,
}

/// The end of the ranks on some devices of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kill {
    pub at: u64,
    pub node: String,
    pub devices: Vec<i32>,
    pub fault_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub at: u64,
    /// 0, 409 or 410.
    pub code: i32,
    pub info: String,
    /// Number of faults in the message.
    pub faults: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    pub accepted: Vec<AcceptedFault>,
    pub dropped: Vec<Dropped>,
    pub answers: Vec<Answer>,
    pub kills: Vec<Kill>,
    /// Faults without a node name, which affect an unrelated node.
    pub misdirected: Vec<AcceptedFault>,
}

impl Ledger {
    /// Assertions and effects of a fault, in order.
    pub fn of(&self, fault_id: &str) -> Vec<(&str, Effect)> {
        let of = self.accepted.iter().filter(|accepted| accepted.fault_id == fault_id);
        of.map(|accepted| (accepted.assertion.as_str(), accepted.effect)).collect()
    }

    /// Number of messages that were answered with `code`.
    pub fn answered(&self, code: i32) -> usize {
        self.answers.iter().filter(|answer| answer.code == code).count()
    }
}

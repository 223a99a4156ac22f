//! What was taken, in order.

use serde::Serialize;

/// What became of a fault that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Effect {
    /// It stands.
    Added,
    /// It stood already: nothing is changed, not even its devices.
    Repeated,
    /// It is over.
    Recovered,
    /// It will be over when 5 seconds have passed since it occurred.
    Deferred,
    /// A recovery of a fault that doesn't stand: tried once more after 5 seconds.
    Unknown,
    /// The cache is full: dropped, and the answer was 0.
    Full,
}

/// One fault at one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// Milliseconds of the stand-in's clock.
    pub at: u64,
    pub message: String,
    /// The sender.
    pub resource: String,
    pub fault_id: String,
    /// `occur`, `recover` or `once`.
    pub assertion: String,
    pub node: String,
    pub devices: Vec<i32>,
    pub code: String,
    /// When it occurred, milliseconds since 1970.
    pub fault_time: i64,
    /// What became of it.
    pub effect: Effect,
}

/// A fault that was left out of a message; its sender isn't told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dropped {
    pub fault_id: String,
    /// Why, as ClusterD's log has it.
    pub why: &'static str,
}

/// Ranks on devices of a node were ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kill {
    /// Milliseconds of the stand-in's clock.
    pub at: u64,
    pub node: String,
    pub devices: Vec<i32>,
    /// For this fault.
    pub fault_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Milliseconds of the stand-in's clock.
    pub at: u64,
    /// 0, 409, 410.
    pub code: i32,
    pub info: String,
    /// Faults in the message.
    pub faults: usize,
}

/// Ranks that were reported as lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reported {
    pub job: String,
    pub ranks: Vec<(String, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// In the order in which they were taken.
    pub taken: Vec<Taken>,
    /// Left out of messages.
    pub dropped: Vec<Dropped>,
    /// Every answer.
    pub answers: Vec<Answer>,
    /// Ended ranks.
    pub kills: Vec<Kill>,
    /// Faults without a node: they hit some other one.
    pub harm: Vec<Taken>,
    /// The fast path.
    pub reported: Vec<Reported>,
}

impl Ledger {
    /// Assertions and effects of a fault, in order.
    pub fn of(&self, fault_id: &str) -> Vec<(&str, Effect)> {
        let of = self.taken.iter().filter(|taken| taken.fault_id == fault_id);
        of.map(|taken| (taken.assertion.as_str(), taken.effect)).collect()
    }

    /// How many messages were answered with the code.
    pub fn answered(&self, code: i32) -> usize {
        self.answers.iter().filter(|answer| answer.code == code).count()
    }
}

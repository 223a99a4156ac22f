//! Restores members that an injection created.

use super::operation::Operation;

/// The state of a member before the injection created it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Original {
    /// The object had no such member.
    Absent,
    /// The member was `null`.
    Null,
}

impl Original {
    /// Reads the two lists of a record; `None` if the member existed.
    pub(super) fn of(name: &str, absent: &[String], null: &[String]) -> Option<Self> {
        let holds = |list: &[String]| list.iter().any(|item| item == name);
        match (holds(absent), holds(null)) {
            (true, _) => Some(Self::Absent),
            (false, true) => Some(Self::Null),
            (false, false) => None,
        }
    }

    /// The operation that restores the member at `path`.
    pub(super) fn restore(self, path: String) -> Operation {
        match self {
            Self::Absent => Operation::remove(path),
            Self::Null => Operation::replace(path, &()),
        }
    }
}

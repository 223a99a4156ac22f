//! What a member was before it was made, and how it becomes that again.

use super::operation::Operation;

/// What a member is to be again that we made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    /// It wasn't there.
    Absent,
    /// It was `null`.
    Null,
}

impl Former {
    /// By the two lists of a record; `None` if the member was there.
    pub(super) fn of(name: &str, absent: &[String], null: &[String]) -> Option<Self> {
        let holds = |list: &[String]| list.iter().any(|item| item == name);
        match (holds(absent), holds(null)) {
            (true, _) => Some(Self::Absent),
            (false, true) => Some(Self::Null),
            (false, false) => None,
        }
    }

    /// The operation that makes the member at `path` what it was.
    pub(super) fn restore(self, path: String) -> Operation {
        match self {
            Self::Absent => Operation::remove(path),
            Self::Null => Operation::replace(path, &()),
        }
    }
}

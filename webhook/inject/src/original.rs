//! Creates members, and restores them.

use serde::Serialize;

use super::operation::Operation;
use super::view::Slot;

/// Appends `items` to the list named `field` of the object at `parent`. If the list is absent or `null`, creates it and
/// notes that in `absent` or `null`.
pub(super) fn append<T>(
    operations: &mut Vec<Operation>,
    parent: &str,
    field: &str,
    list: &Slot<Vec<T>>,
    items: &[impl Serialize],
    (absent, null): (&mut Vec<String>, &mut Vec<String>),
) {
    match list {
        _ if items.is_empty() => return,
        Slot::Present(_) => {
            let path = format!("{parent}/{field}/-");
            operations.extend(items.iter().map(|item| Operation::add(path.clone(), item)));
            return;
        }
        Slot::Absent => absent.push(field.to_owned()),
        Slot::Null => null.push(field.to_owned()),
    }
    // `add` on a member that is `null` replaces it (RFC 6902).
    operations.push(Operation::add(format!("{parent}/{field}"), &items));
}

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

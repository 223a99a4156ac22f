//! RFC 6902 operations and RFC 6901 pointers.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::value::RawValue;

/// What an [`Operation`] does to the member at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Adds a member, inserts before an index, or appends at `-`.
    Add,
    /// Replaces an existing member.
    Replace,
    /// Removes an existing member.
    Remove,
}

/// One operation of a JSON patch.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The kind of change.
    pub verb: Verb,
    /// JSON pointer into the object.
    pub path: String,
    /// The new value as JSON text; `None` for [`Verb::Remove`].
    pub value: Option<Cow<'static, RawValue>>,
}

impl Operation {
    /// An `add` of anything serialisable.
    pub fn add(path: String, value: &impl Serialize) -> Self {
        Self { verb: Verb::Add, path, value: Some(Cow::Owned(raw(value))) }
    }

    /// A `replace` by anything serialisable.
    pub fn replace(path: String, value: &impl Serialize) -> Self {
        Self { verb: Verb::Replace, path, value: Some(Cow::Owned(raw(value))) }
    }

    /// A `remove` of the member at `path`.
    pub fn remove(path: String) -> Self {
        Self { verb: Verb::Remove, path, value: None }
    }

    /// The same operation for an object at `prefix` of a larger one.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.path.insert_str(0, prefix);
        self
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut operation = serializer.serialize_struct("Operation", 3)?;
        let verb = match self.verb {
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Remove => "remove",
        };
        operation.serialize_field("op", verb)?;
        operation.serialize_field("path", &self.path)?;
        match &self.value {
            Some(value) => operation.serialize_field("value", value)?,
            None => operation.skip_field("value")?,
        }
        operation.end()
    }
}

/// JSON text of `value`.
///
/// Callers pass strings, numbers and maps with string keys only, which always serialise.
pub(crate) fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("strings, numbers and string-keyed maps always serialise")
}

/// A reference token of a JSON pointer (RFC 6901: `~` is `~0`, `/` is `~1`).
pub fn escape(token: &str) -> Cow<'_, str> {
    if token.contains(['~', '/']) {
        Cow::Owned(token.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_serialise_as_rfc_6902() {
        let operations = [
            Operation::add("/a".to_owned(), &"x"),
            Operation::replace("/b".to_owned(), &1),
            Operation::remove("/c".to_owned()).under("/items/0"),
        ];
        assert_eq!(
            serde_json::to_string(&operations).expect("serialises"),
            r#"[{"op":"add","path":"/a","value":"x"},{"op":"replace","path":"/b","value":1},{"op":"remove","path":"/items/0/c"}]"#
        );
    }

    #[test]
    fn pointer_tokens_are_escaped() {
        assert_eq!(escape("swansong.dev/injected"), "swansong.dev~1injected");
        assert_eq!(escape("a~b/c"), "a~0b~1c");
    }
}

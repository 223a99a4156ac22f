//! The name of the object under review, which may not have one yet.

use std::fmt;

use serde_json::value::RawValue;

use super::head::Head;
use super::request::{ReceivedObject, text};
use swansong_inject::view::{Slot, Text};

/// Names an object in logs: `namespace/name`, or `namespace/prefix*` before the API server has made a name from the
/// prefix. The namespace is the request's, as the object itself often lacks it.
///
/// The object is searched for its prefix only when this is displayed.
#[derive(Debug)]
pub struct Subject<'a> {
    pub(super) namespace: Slot<Text<'a>>,
    pub(super) name: Slot<Text<'a>>,
    pub(super) object: Object<'a>,
}

/// The source of an object's own name.
#[derive(Debug)]
pub(super) enum Object<'a> {
    /// The object as raw JSON.
    Raw(Option<&'a RawValue>),
    /// The search result.
    Searched(Names<'a>),
}

impl<'a> From<Option<ReceivedObject<'a>>> for Object<'a> {
    fn from(object: Option<ReceivedObject<'a>>) -> Self {
        match object {
            Some(ReceivedObject::Raw(raw)) => Self::Raw(Some(raw)),
            Some(ReceivedObject::Read(object)) => {
                Self::Searched(object.metadata().present().map_or_else(Names::default, |metadata| Names {
                    name: metadata.name.clone(),
                    generate_name: metadata.generate_name.clone(),
                }))
            }
            None => Self::Raw(None),
        }
    }
}

impl<'a> Object<'a> {
    fn names(&self) -> Names<'a> {
        match self {
            Self::Raw(object) => {
                object.map(|object| Head::read_object(object.get()).names).unwrap_or_default()
            }
            Self::Searched(names) => names.clone(),
        }
    }
}

impl<'a> Subject<'a> {
    /// The prefix of the object's name, if it has none yet.
    pub(super) fn generate_name(&self) -> Option<Text<'a>> {
        if !text(&self.name).is_empty() {
            return None;
        }
        let Names { name, generate_name } = self.object.names();
        match (name, generate_name) {
            (Slot::Present(name), _) if !name.is_empty() => None,
            (_, Slot::Present(prefix)) => Some(prefix),
            _ => None,
        }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match text(&self.namespace) {
            "" => {}
            namespace => write!(f, "{namespace}/")?,
        }
        if !text(&self.name).is_empty() {
            return f.write_str(text(&self.name));
        }
        match self.object.names() {
            Names { name: Slot::Present(name), .. } if !name.is_empty() => f.write_str(&name),
            Names { generate_name: Slot::Present(prefix), .. } => write!(f, "{}*", &*prefix),
            Names { .. } => f.write_str("?"),
        }
    }
}

/// What is there of `metadata.name` and `metadata.generateName`.
#[derive(Debug, Clone, Default)]
pub(super) struct Names<'a> {
    pub(super) name: Slot<Text<'a>>,
    pub(super) generate_name: Slot<Text<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects() {
        let subject = |names: &'static str, object| {
            let [namespace, name]: [Text<'_>; 2] = serde_json::from_str(names).expect("two strings");
            Subject {
                namespace: Slot::Present(namespace),
                name: Slot::Present(name),
                object: Object::Raw(object),
            }
        };
        for (names, object, expected, prefix) in [
            (r#"["ns","pod"]"#, r#"{"metadata":{"generateName":"p-"}}"#, "ns/pod", None),
            (r#"["ns",""]"#, r#"{"metadata":{"name":"own","generateName":"p-"},"spec":{}}"#, "ns/own", None),
            (
                r#"["ns",""]"#,
                r#"{"spec":{"name":"x"},"metadata":{"generateName":"p-"}}"#,
                "ns/p-*",
                Some("p-"),
            ),
            (r#"["ns",""]"#, r#"{"metadata":{"name":"","generateName":"p\u002d"}}"#, "ns/p-*", Some("p-")),
            (r#"["",""]"#, r#"{"metadata":{"labels":{"name":"x"},"generateName":"p-"}}"#, "p-*", Some("p-")),
            (r#"["ns",""]"#, r#"{"metadata":null}"#, "ns/?", None),
            (r#"["ns",""]"#, r#"{"metadata":[1]}"#, "ns/?", None),
            (r#"["ns",""]"#, r#"{"metadata":{"name":1}}"#, "ns/?", None),
            (r#"["ns",""]"#, "[]", "ns/?", None),
        ] {
            let subject = subject(names, Some(serde_json::from_str(object).expect(object)));
            assert_eq!(subject.to_string(), expected, "{object}");
            assert_eq!(subject.generate_name().as_deref(), prefix, "{object}");
        }
        assert_eq!(subject(r#"["ns",""]"#, None).to_string(), "ns/?");
        let nameless = Subject { namespace: Slot::Absent, name: Slot::Null, object: Object::Raw(None) };
        assert_eq!(nameless.to_string(), "?");
    }
}

//! JSON with the positions of its values.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::InvalidFile;
use super::edit::Edits;

/// The byte range of a value in the text.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
}

pub(super) struct Members {
    node: Node,
    members: Vec<(String, Node)>,
}

pub(super) struct Elements {
    node: Node,
    each: Vec<Node>,
    /// The text between the last two elements.
    separator: String,
}

impl Node {
    /// The position of a value that serde_json borrowed from `text`.
    fn new(text: &str, raw: &RawValue) -> Self {
        let start = raw.get().as_ptr().addr() - text.as_ptr().addr();
        Self { span: start..start + raw.get().len() }
    }

    fn json<'t>(&self, text: &'t str) -> &'t str {
        &text[self.span.clone()]
    }

    pub(super) fn is_null(&self, text: &str) -> bool {
        self.json(text) == "null"
    }

    /// The type for messages.
    fn kind(&self, text: &str) -> &'static str {
        match self.json(text).as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    fn error(&self, text: &str, problem: String) -> InvalidFile {
        error_at(text, self.span.start, problem)
    }
}

impl Members {
    /// The member that ClusterD reads as `name`; Go ignores the case.
    pub(super) fn find(&self, text: &str, name: &str) -> Result<Option<&Node>, InvalidFile> {
        let mut found = self.members.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (_, Some((key, node))) => {
                let problem = format!(
                    "`{key}` is there a second time; ClusterD reads only one of them, remove the other"
                );
                Err(node.error(text, problem))
            }
            (first, None) => Ok(first.map(|(_, node)| node)),
        }
    }

    /// Appends members, by name and JSON.
    pub(super) fn append(&self, edits: &mut Edits, members: &[(&str, String)]) {
        match self.members.last() {
            _ if members.is_empty() => {}
            Some((_, last)) => edits.insert(last.span.end, format!(", {}", joined(members))),
            None => edits.insert(self.node.span.start + 1, joined(members)),
        }
    }
}

/// Members as in an object, without the braces.
pub(super) fn joined(members: &[(&str, String)]) -> String {
    let members = members.iter().map(|(name, json)| format!("{}: {json}", super::quoted(name)));
    members.collect::<Vec<_>>().join(", ")
}

impl Elements {
    /// Appends elements with the existing separator.
    pub(super) fn append(&self, edits: &mut Edits, elements: &[String]) {
        match self.each.last() {
            Some(last) => {
                let joined = elements.join(&self.separator);
                edits.insert(last.span.end, format!("{}{joined}", self.separator));
            }
            None => edits.insert(self.node.span.start + 1, elements.join(", ")),
        }
    }
}

/// Parses the text as one value.
pub(super) fn document(text: &str) -> Result<Node, InvalidFile> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| {
        let problem = error.to_string();
        let problem = problem.split(" at line ").next().unwrap_or_default();
        InvalidFile {
            line: error.line().max(1),
            column: error.column().max(1),
            problem: format!("this isn't valid JSON: {problem}"),
        }
    })?;
    Ok(Node::new(text, raw))
}

/// The members of `node`, which has to be an object; `path` is its name.
pub(super) fn members(text: &str, node: &Node, path: &str) -> Result<Members, InvalidFile> {
    let problem = || format!("{} is {}, it has to be an object", named(path), node.kind(text));
    let Pairs(pairs) = serde_json::from_str(node.json(text)).map_err(|_| node.error(text, problem()))?;
    let members = pairs.into_iter().map(|(key, raw)| (key.into_owned(), Node::new(text, raw))).collect();
    Ok(Members { node: node.clone(), members })
}

/// The elements of `node`, which has to be a list of strings; `null` among them is an empty string to ClusterD.
pub(super) fn strings(text: &str, node: &Node, path: &str) -> Result<(Elements, Vec<String>), InvalidFile> {
    let problem = || format!("{} is {}, it has to be a list of strings", named(path), node.kind(text));
    let raws: Vec<&RawValue> =
        serde_json::from_str(node.json(text)).map_err(|_| node.error(text, problem()))?;
    let elements: Vec<_> = raws.iter().map(|raw| Node::new(text, raw)).collect();
    let strings = elements.iter().enumerate().map(|(i, element)| {
        let string: Result<Option<String>, _> = serde_json::from_str(element.json(text));
        let problem = || {
            format!(
                "{} is {}, it has to be a string: put it in quotes",
                named(&format!("{path}[{i}]")),
                element.kind(text)
            )
        };
        Ok(string.map_err(|_| element.error(text, problem()))?.unwrap_or_default())
    });
    let strings = strings.collect::<Result<_, InvalidFile>>()?;
    let separator = match elements.as_slice() {
        [.., before, last] => text[before.span.end..last.span.start].to_owned(),
        [only] => match &text[node.span.start + 1..only.span.start] {
            "" => ", ".to_owned(),
            lead => format!(",{lead}"),
        },
        [] => String::new(),
    };
    Ok((Elements { node: node.clone(), each: elements, separator }, strings))
}

fn named(path: &str) -> String {
    if path == "the file" { path.to_owned() } else { format!("`{path}`") }
}

fn error_at(text: &str, at: usize, problem: String) -> InvalidFile {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    InvalidFile {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        problem,
    }
}

/// All members of an object in their order.
struct Pairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}

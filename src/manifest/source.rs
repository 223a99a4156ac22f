//! A file's text, split into documents.

use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::data::Data;
use super::error::{DocumentError, Problem};
use super::node::{Content, Node};
use super::parse::{self, Parsed, Place, Syntax};
use super::read::{Fault, Reader};

/// A file's text and the documents in it.
#[derive(Debug)]
pub struct Source {
    /// The text, as read.
    pub text: String,
    /// Whether it is JSON: one value, or several one behind the other as kubectl takes them.
    pub json: bool,
    /// The documents, in order; what is between their regions is blank.
    pub documents: Vec<Document>,
}

/// A document.
#[derive(Debug)]
pub struct Document {
    /// Its number in the file, from 1, as a person counts `---`.
    pub number: usize,
    /// Its part of the text.
    pub region: Range<usize>,
    /// Whether it begins with `---`.
    pub explicit: bool,
    /// Its value as written.
    pub root: Node,
    /// Whether the nodes aren't known, so that changes mean to write it anew: JSON that YAML doesn't allow.
    pub opaque: bool,
    /// Its value.
    pub data: Data,
}

impl Source {
    /// Splits and reads a text.
    pub fn read(text: String) -> Result<Self, DocumentError> {
        if let Some(ranges) = json_values(&text) {
            let documents = json_documents(&text, &ranges)?;
            return Ok(Self { text, json: true, documents });
        }
        let documents = parse::parse(&text, Place::default(), Syntax::Yaml)
            .and_then(|parsed| documents(parsed, 0))
            .map_err(|error| or_template(error, &text))?;
        Ok(Self { text, json: false, documents })
    }
}

impl Document {
    /// The line of a field such as `items[2].spec.tasks[0]`, or of what comes nearest to it.
    pub fn line_of_field(&self, field: &str) -> usize {
        let (mut node, mut rest, mut line) = (&self.root, field, self.root.line);
        loop {
            rest = rest.trim_start_matches('.');
            let step = match &node.content {
                Content::Mapping { members, .. } => members
                    .iter()
                    .filter_map(|member| {
                        let name = Reader::plain_name(member)?;
                        let after = rest.strip_prefix(name.as_str())?;
                        let whole = after.is_empty() || after.starts_with(['.', '[']);
                        whole.then_some((name.len(), member.key.line, &member.value, after))
                    })
                    // A key may hold dots.
                    .max_by_key(|(length, ..)| *length)
                    .map(|(_, line, value, after)| (line, value, after)),
                Content::Sequence { items, .. } => rest.strip_prefix('[').and_then(|inner| {
                    let (index, after) = inner.split_once(']')?;
                    let item = items.get(index.parse::<usize>().ok()?)?;
                    Some((item.line, item, after))
                }),
                _ => None,
            };
            let Some((next_line, next, after)) = step else { return line };
            (line, node, rest) = (next_line, next, after);
        }
    }

    /// An error about this document.
    pub fn error(&self, line: usize, problem: Problem) -> DocumentError {
        DocumentError { document: self.number, line, problem }
    }
}

/// Reads parsed documents, `before` of which precede them in the file.
pub(super) fn documents(parsed: Vec<Parsed>, before: usize) -> Result<Vec<Document>, DocumentError> {
    let numbered = parsed.into_iter().zip(before + 1..);
    numbered
        .map(|(Parsed { region, root, explicit }, number)| {
            let data = Reader::new(&root).read(&root).map_err(|Fault { line, problem }| DocumentError {
                document: number,
                line,
                problem,
            })?;
            Ok(Document { number, region, explicit, root, opaque: false, data })
        })
        .collect()
}

/// The places of the values, when the text is JSON and nothing else.
fn json_values(text: &str) -> Option<Vec<Range<usize>>> {
    let start = text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').len();
    if !text[start..].starts_with('{') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<IgnoredAny>();
    let mut ranges = Vec::new();
    let mut from = start;
    while let Some(value) = values.next() {
        value.ok()?;
        let end = start + values.byte_offset();
        let blank = text[from..end].len() - text[from..end].trim_start().len();
        ranges.push(from + blank..end);
        from = end;
    }
    Some(ranges)
}

fn json_documents(text: &str, ranges: &[Range<usize>]) -> Result<Vec<Document>, DocumentError> {
    let mut all = Vec::with_capacity(ranges.len());
    // Lines are counted on from the value before.
    let (mut counted, mut lines) = (0, 0);
    for range in ranges {
        lines += lines_before(&text[counted..], range.start - counted);
        counted = range.start;
        let place = Place { offset: range.start, lines, documents: all.len() };
        match parse::parse(&text[range.clone()], place, Syntax::Json) {
            Ok(parsed) => all.extend(documents(parsed, all.len())?),
            Err(error) => all.push(opaque(text, range, place, error)?),
        }
    }
    Ok(all)
}

/// Says of a template that it is one, which is the cause of whatever else is wrong with it.
fn or_template(error: DocumentError, text: &str) -> DocumentError {
    let line = text.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
    let template = line.find("{{").is_some_and(|at| line[at..].contains("}}"));
    if template { DocumentError { problem: Problem::Template, ..error } } else { error }
}

/// JSON that the YAML parser refuses, such as a string with a raw control character.
fn opaque(
    text: &str,
    range: &Range<usize>,
    place: Place,
    error: DocumentError,
) -> Result<Document, DocumentError> {
    let value: Value = serde_json::from_str(&text[range.clone()]).map_err(|_| error)?;
    let content = Content::Alias(0);
    let root = Node { content, span: range.clone(), start: range.start, anchor: 0, line: place.lines + 1 };
    Ok(Document {
        number: place.documents + 1,
        region: range.clone(),
        explicit: false,
        root,
        opaque: true,
        data: Data::from(&value),
    })
}

fn lines_before(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count()
}

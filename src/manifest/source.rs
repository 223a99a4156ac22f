//! Splits a file's text into documents.

use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::data::Data;
use super::error::{DocumentError, Problem};
use super::kubectl;
use super::node::{Content, Node};
use super::parse::{self, Parsed, Syntax, TextOffset};
use super::read::{ReadError, Reader};

/// A file's text and its documents.
#[derive(Debug)]
pub struct Source {
    /// The unchanged text.
    pub text: String,
    /// Whether it is JSON: one value or a stream of values, as kubectl accepts them.
    pub json: bool,
    /// The documents in order; only blanks separate their regions.
    pub documents: Vec<Document>,
}

/// A document of a file.
#[derive(Debug)]
pub struct Document {
    /// Its number in the file, from 1.
    pub number: usize,
    /// Its part of the text.
    pub region: Range<usize>,
    /// Whether it begins with `---`.
    pub explicit: bool,
    /// The root of its nodes.
    pub root: Node,
    /// Whether the nodes are unknown, because it is JSON that isn't YAML; a change replaces the document.
    pub opaque: bool,
    /// The document's value.
    pub data: Data,
}

impl Source {
    /// Splits and reads a text.
    pub fn read(text: String) -> Result<Self, DocumentError> {
        if let Some(ranges) = json_values(&text) {
            let documents = json_documents(&text, &ranges)?;
            return Ok(Self { text, json: true, documents });
        }
        let documents = yaml_documents(&text).map_err(|error| or_template(error, &text))?;
        Ok(Self { text, json: false, documents })
    }
}

impl Document {
    /// The line of a field such as `items[2].spec.tasks[0]`, or of its nearest existing parent.
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
                    // A key can contain dots.
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

/// Reads parsed documents, which follow `before` others in the file.
fn documents(parsed: Vec<Parsed>, before: usize) -> Result<Vec<Document>, DocumentError> {
    let numbered = parsed.into_iter().zip(before + 1..);
    numbered
        .map(|(Parsed { region, root, explicit }, number)| {
            let data = Reader::new(&root)
                .read(&root)
                .map_err(|ReadError { line, problem }| DocumentError { document: number, line, problem })?;
            Ok(Document { number, region, explicit, root, opaque: false, data })
        })
        .collect()
}

/// Reads the parts of a stream as kubectl does. kubectl decodes one document of each part.
fn yaml_documents(text: &str) -> Result<Vec<Document>, DocumentError> {
    let mut all: Vec<Document> = Vec::new();
    let mut place = TextOffset::default();
    let mut region_start = 0;
    for part in kubectl::parts(text) {
        let error = |line, problem| DocumentError { document: place.documents + 1, line, problem };
        place.lines += lines_before(&text[place.offset..], part.content.start - place.offset);
        place.offset = part.content.start;
        let content = &text[part.content];
        if let Some(rest) = part.refused {
            let line = place.lines + usize::from(content.starts_with("---"));
            return Err(error(line, Problem::Separator(rest.to_owned())));
        }
        if let Some((at, directive)) = kubectl::find_directive(content) {
            let line = place.lines + 1 + lines_before(content, at);
            return Err(error(line, Problem::Directive(directive.to_owned())));
        }
        if let Some((at, c)) = kubectl::find_line_break(content) {
            return Err(error(place.lines + 1 + lines_before(content, at), Problem::LineBreak(c)));
        }
        let parsed = parse::parse(content, place, Syntax::Yaml)?;
        if let Some(second) = parsed.get(1) {
            let document = place.documents + 2;
            return Err(DocumentError { document, line: second.root.line, problem: Problem::AfterEnd });
        }
        if let Some((line, problem)) = parsed.first().and_then(|it| kubectl::find_difference(&it.root, text))
        {
            return Err(error(line, problem));
        }
        let before = place.documents;
        // Comments before the first separator aren't a document.
        place.documents += usize::from(part.explicit || !parsed.is_empty());
        for mut document in documents(parsed, before)? {
            document.region.start = region_start;
            document.explicit |= part.explicit;
            region_start = document.region.end;
            all.push(document);
        }
    }
    if let Some(last) = all.last_mut() {
        last.region.end = text.len();
    }
    Ok(all)
}

/// The ranges of the values if the text is JSON only.
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
    // Lines are counted from the previous value.
    let (mut counted, mut lines) = (0, 0);
    for range in ranges {
        lines += lines_before(&text[counted..], range.start - counted);
        counted = range.start;
        let place = TextOffset { offset: range.start, lines, documents: all.len() };
        match parse::parse(&text[range.clone()], place, Syntax::Json) {
            Ok(parsed) => all.extend(documents(parsed, all.len())?),
            Err(error) => all.push(opaque(text, range, place, error)?),
        }
    }
    Ok(all)
}

/// Replaces an error of a template by [`Problem::Template`], its cause.
fn or_template(error: DocumentError, text: &str) -> DocumentError {
    let is_template = |line: &str| {
        line.split_once("{{")
            .is_some_and(|(before, rest)| rest.contains("}}") && !before.contains(['"', '\'', '#']))
    };
    if text.lines().any(is_template) { DocumentError { problem: Problem::Template, ..error } } else { error }
}

/// A document of JSON that the YAML parser refuses, such as a string with a raw control character.
fn opaque(
    text: &str,
    range: &Range<usize>,
    place: TextOffset,
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

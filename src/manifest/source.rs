//! Splits a file's text into documents.

use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::data::Data;
use super::error::{DocumentError, Problem};
use super::kubectl::{self, Part};
use super::node::{Content, Node};
use super::parse::{self, Parsed, Syntax, TextOffset};
use super::read::{ReadError, Reader};

/// A larger document isn't read, since its nodes take about forty times the memory of its text.
const MAX_DOCUMENT: usize = 32 << 20;

/// A file's text.
#[derive(Debug)]
pub struct Source {
    /// The unchanged text.
    pub text: String,
    /// Whether it is JSON: one value or a stream of values, as kubectl accepts them.
    pub json: bool,
    /// The ranges of the values if it is JSON.
    values: Vec<Range<usize>>,
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
    pub fn new(text: String) -> Self {
        let values = json_values(&text);
        Self { text, json: values.is_some(), values: values.unwrap_or_default() }
    }

    /// Reads the documents one after another, since their nodes take far more memory than their text. Only blanks separate
    /// their regions. Nothing follows an error.
    pub fn documents(&self) -> Documents<'_> {
        let parts = if self.json { Vec::new() } else { kubectl::parts(&self.text) };
        Documents {
            source: self,
            values: self.values.iter(),
            parts: parts.into_iter(),
            place: TextOffset::default(),
            region_start: 0,
            held: None,
            failed: false,
        }
    }
}

/// The documents of a file.
#[derive(Debug)]
pub struct Documents<'s> {
    source: &'s Source,
    values: std::slice::Iter<'s, Range<usize>>,
    parts: std::vec::IntoIter<Part<'s>>,
    place: TextOffset,
    region_start: usize,
    /// The last document, whose region ends with the file.
    held: Option<Document>,
    failed: bool,
}

impl Iterator for Documents<'_> {
    type Item = Result<Document, DocumentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = if self.source.json { self.next_value() } else { self.next_part() };
        next.inspect_err(|_| self.failed = true).transpose()
    }
}

impl Documents<'_> {
    fn next_value(&mut self) -> Result<Option<Document>, DocumentError> {
        let text = &self.source.text;
        let Some(range) = self.values.next() else { return Ok(None) };
        self.advance(range.start);
        self.check_size(range.len())?;
        let document = match parse::parse(&text[range.clone()], self.place, Syntax::Json) {
            Ok(mut parsed) => match parsed.pop() {
                Some(parsed) => read(parsed, self.place.documents + 1)?,
                None => return Ok(None),
            },
            Err(error) => opaque(text, range, self.place, error)?,
        };
        self.place.documents += 1;
        Ok(Some(document))
    }

    fn next_part(&mut self) -> Result<Option<Document>, DocumentError> {
        while let Some(part) = self.parts.next() {
            let document = self.read_part(part).map_err(|error| or_template(error, &self.source.text))?;
            if let Some(document) = document
                && let Some(before) = self.held.replace(document)
            {
                return Ok(Some(before));
            }
        }
        if let Some(last) = &mut self.held {
            last.region.end = self.source.text.len();
        }
        Ok(self.held.take())
    }

    fn check_size(&self, length: usize) -> Result<(), DocumentError> {
        let (document, line) = (self.place.documents + 1, self.place.lines + 1);
        let problem = Problem::TooLarge(MAX_DOCUMENT);
        if length > MAX_DOCUMENT { Err(DocumentError { document, line, problem }) } else { Ok(()) }
    }

    /// Counts the lines up to `offset`.
    fn advance(&mut self, offset: usize) {
        self.place.lines += lines_before(&self.source.text[self.place.offset..], offset - self.place.offset);
        self.place.offset = offset;
    }

    /// Reads a part of a stream as kubectl does, which decodes one document of each part.
    fn read_part(&mut self, part: Part<'_>) -> Result<Option<Document>, DocumentError> {
        self.advance(part.content.start);
        self.check_size(part.content.len())?;
        let (text, place) = (&self.source.text, self.place);
        let error = |line, problem| DocumentError { document: place.documents + 1, line, problem };
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
        let mut parsed = parse::parse(content, place, Syntax::Yaml)?.into_iter();
        let first = parsed.next();
        if let Some(second) = parsed.next() {
            let document = place.documents + 2;
            return Err(DocumentError { document, line: second.root.line, problem: Problem::AfterEnd });
        }
        // Comments before the first separator aren't a document.
        self.place.documents += usize::from(part.explicit || first.is_some());
        let Some(first) = first else { return Ok(None) };
        if let Some((line, problem)) = kubectl::find_difference(&first.root, text) {
            return Err(error(line, problem));
        }
        let mut document = read(first, place.documents + 1)?;
        document.region.start = self.region_start;
        document.explicit |= part.explicit;
        self.region_start = document.region.end;
        Ok(Some(document))
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

/// Reads a parsed document.
fn read(parsed: Parsed, number: usize) -> Result<Document, DocumentError> {
    let Parsed { region, root, explicit } = parsed;
    let data = Reader::new(&root).read(&root).map_err(|ReadError { line, problem }| DocumentError {
        document: number,
        line,
        problem,
    })?;
    Ok(Document { number, region, explicit, root, opaque: false, data })
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

/// Adds that the text is a template, which probably is the cause of an error.
fn or_template(error: DocumentError, text: &str) -> DocumentError {
    let found = text.lines().zip(1..).find_map(|(line, number)| Some((template_mark(line)?, number)));
    let Some((mark, line)) = found else { return error };
    let cause = Box::new(error.problem);
    DocumentError { problem: Problem::Template { mark, line, cause }, ..error }
}

/// How an expression of Helm or Jinja in a line begins, outside of quotes and comments.
fn template_mark(line: &str) -> Option<&'static str> {
    let mut rest = line;
    while let Some(at) = rest.find(['{', '"', '\'', '#']) {
        rest = &rest[at..];
        let before = &line[..line.len() - rest.len()];
        if let Some(mark) = ["{{", "{%"].into_iter().find(|mark| rest.starts_with(mark)) {
            return Some(mark);
        }
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let closed = quote.and_then(|quote| Some(rest[1..].find(quote)? + 2));
        if rest.starts_with('#') && (before.is_empty() || before.ends_with([' ', '\t'])) {
            return None;
        }
        rest = &rest[closed.unwrap_or(1)..];
    }
    None
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

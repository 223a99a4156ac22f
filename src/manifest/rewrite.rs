//! Applies operations to a document's text and verifies the result.

use std::fmt;
use std::ops::Range;

use json_patch::Patch;
use serde_json::Value;
use swansong_inject::operation::Operation;

use super::aliases;
use super::data::Data;
use super::draft::Draft;
use super::edit::{Edit, Editor, Edits};
use super::read::Reader;
use super::source::{Document, Source};

/// A patched document.
#[derive(Debug)]
pub struct Rewritten {
    /// The new text of its region.
    pub text: String,
    /// The new value.
    pub data: Data,
    /// What is rewritten although only a part of it changes, in the order of the text.
    pub rewrites: Vec<Rewrite>,
}

/// Text that is rewritten, by its lines in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// An alias, in the place of which its value is written.
    Alias { line: usize, name: String },
    /// Lines, without their comments and layout.
    Lines { first: usize, last: usize },
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alias { line, name } => {
                write!(
                    f,
                    "line {line}: the value of {name} is written out, since it changes here or at its anchor"
                )
            }
            Self::Lines { first, last } => {
                write!(f, "lines {first} to {last}: rewritten, without their comments and line breaks")
            }
        }
    }
}

/// A document can't be patched. All errors but the first are bugs of this program.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// A line of the document ends with a carriage return only, so its lines can't be edited.
    #[error("line {0} ends with a carriage return only; convert the file's line breaks (`tr '\\r' '\\n'`)")]
    CarriageReturn(usize),
    /// The operations don't fit the document.
    #[error("the operations don't fit the document ({0})")]
    Patch(String),
    /// The new text doesn't have the expected value.
    #[error("the patched document doesn't have the expected value")]
    Unverified,
}

/// Applies operations to a document; its text changes only where the operations change it.
pub fn rewrite(
    source: &Source,
    document: &Document,
    operations: &[Operation],
) -> Result<Rewritten, RewriteError> {
    if let Some(line) = find_carriage_return(source, document) {
        return Err(RewriteError::CarriageReturn(line));
    }
    let expected = patched(&document.data, operations)?;
    let reader = Reader::new(&document.root);
    let draft = draft(document, &reader, operations)?;
    let text = &source.text[..document.region.end];
    let editor = || Editor::new(text, &document.root, &reader, source.json);
    let edits = editor().run(&document.root, &draft);
    if let Some(rewritten) = verified(source, document, edits, &expected) {
        return Ok(rewritten);
    }
    let edits = editor().replace_document(&document.root, &draft.data(&reader));
    verified(source, document, edits, &expected).ok_or(RewriteError::Unverified)
}

/// The line of the first carriage return that isn't part of a line break, from 1 in the file.
fn find_carriage_return(source: &Source, document: &Document) -> Option<usize> {
    let (start, text) = (document.region.start, &source.text[document.region.clone()]);
    let mut returns = text.match_indices('\r').map(|(at, _)| at);
    let at = returns.find(|at| !text[at + 1..].starts_with('\n')).filter(|_| !source.json)?;
    Some(source.text[..start + at].matches('\n').count() + 1)
}

fn draft<'n>(
    document: &'n Document,
    reader: &Reader<'n>,
    operations: &[Operation],
) -> Result<Draft<'n>, RewriteError> {
    let mut draft =
        if document.opaque { Draft::New(document.data.clone()) } else { Draft::Kept(&document.root) };
    for operation in operations {
        let value = operation.value.as_ref().map(|value| serde_json::from_str::<Value>(value.get()));
        let value = value.transpose().map_err(|error| RewriteError::Patch(error.to_string()))?;
        let value = value.as_ref().map(Data::from);
        draft
            .apply(reader, operation.verb, &operation.path, value)
            .map_err(|error| RewriteError::Patch(error.to_string()))?;
    }
    aliases::settle(&mut draft, &document.root, reader);
    Ok(draft)
}

/// The result of `json-patch` for the same operations.
fn patched(data: &Data, operations: &[Operation]) -> Result<Value, RewriteError> {
    let failed = |error: String| RewriteError::Patch(error);
    let patch = serde_json::to_value(operations).and_then(serde_json::from_value::<Patch>);
    let patch = patch.map_err(|error| failed(error.to_string()))?;
    let mut value = data.to_value();
    json_patch::patch(&mut value, &patch).map_err(|error| failed(error.to_string()))?;
    Ok(value)
}

/// The edited text, if it has the expected value.
fn verified(source: &Source, document: &Document, edits: Edits, expected: &Value) -> Option<Rewritten> {
    let Edits { edits, rewrites: ranges } = edits;
    let text = apply(source, document, edits)?;
    // A separator at the start of a file is read differently from one inside it.
    let context = if document.region.start > 0 && !source.json { "#\n" } else { "" };
    let read = Source::new(format!("{context}{text}"));
    let mut documents = read.documents();
    let data = documents.next()?.ok()?.data;
    if documents.next().is_some() || source.json && !read.json {
        return None;
    }
    let rewrites = || ranges.into_iter().map(|range| rewrite_of(&source.text, document, range)).collect();
    data.equals(expected).then(|| Rewritten { text, data, rewrites: rewrites() })
}

fn rewrite_of(text: &str, document: &Document, range: Range<usize>) -> Rewrite {
    let root = &document.root;
    let line = |at: usize| root.line + text[root.span.start..at.max(root.span.start)].matches('\n').count();
    let written = &text[range.clone()];
    if written.starts_with('*') {
        return Rewrite::Alias { line: line(range.start), name: written.to_owned() };
    }
    Rewrite::Lines { first: line(range.start), last: line(range.end) }
}

fn apply(source: &Source, document: &Document, edits: Vec<Edit>) -> Option<String> {
    let region = &document.region;
    let mut text = String::with_capacity(region.len() + 1024);
    let mut at = region.start;
    for Edit { range, text: new } in edits {
        if range.start < at || range.end > region.end {
            return None;
        }
        text.push_str(&source.text[at..range.start]);
        text.push_str(&new);
        at = range.end;
    }
    text.push_str(&source.text[at..region.end]);
    Some(text)
}

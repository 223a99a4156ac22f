//! Applies operations to a document's text and verifies the result.

use json_patch::Patch;
use serde_json::Value;
use swansong_inject::operation::Operation;

use super::data::Data;
use super::draft::Draft;
use super::edit::{Edit, Editor};
use super::read::Reader;
use super::source::{Document, Source};

/// A patched document.
#[derive(Debug)]
pub struct Rewritten {
    /// The new text of its region.
    pub text: String,
    /// The new value.
    pub data: Data,
}

/// A document can't be patched, which is a bug of this program.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
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
    let expected = patched(&document.data, operations)?;
    let reader = Reader::new(&document.root);
    let draft = draft(document, &reader, operations)?;
    let text = &source.text[..document.region.end];
    let editor = || Editor::new(text, &document.root, &reader, source.json);
    let edits = editor().run(&document.root, &draft);
    if let Some(rewritten) = verified(source, document, edits, &expected) {
        return Ok(rewritten);
    }
    let mut editor = editor();
    editor.replace_document(&document.root, &draft.data(&reader));
    verified(source, document, editor.into_edits(), &expected).ok_or(RewriteError::Unverified)
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
    draft.expand_lost_aliases(reader);
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
fn verified(source: &Source, document: &Document, edits: Vec<Edit>, expected: &Value) -> Option<Rewritten> {
    let text = apply(source, document, edits)?;
    // A separator at the start of a file is read differently from one inside it.
    let context = if document.region.start > 0 && !source.json { "#\n" } else { "" };
    let mut read = Source::read(format!("{context}{text}")).ok()?;
    let only = read.documents.pop().filter(|_| read.documents.is_empty() && read.json >= source.json)?;
    let data = only.data;
    data.equals(expected).then_some(Rewritten { text, data })
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

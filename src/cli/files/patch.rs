//! Computes and applies the operations of every document.

use anyhow::Context;
use serde::Serialize;
use swansong::manifest::data::Data;
use swansong::manifest::error::DocumentError;
use swansong::manifest::objects::{Object, objects};
use swansong::manifest::rewrite::rewrite;
use swansong::manifest::source::Document;
use swansong_inject::operation::Operation;
use swansong_inject::view::ShapeError;
use swansong_inject::workload::WorkloadKind;

use super::input::Input;

/// A document with its operations applied.
#[derive(Debug)]
pub(crate) struct Patched {
    /// The new text of its region.
    pub(crate) text: String,
    /// The new value.
    pub(crate) data: Data,
    /// Its entry for `-o patch`; `None` if it has no workload.
    pub(crate) patch: Option<DocumentPatch>,
}

/// The operations of one document.
#[derive(Debug, Serialize)]
pub(crate) struct DocumentPatch {
    file: String,
    /// Position in the file, from 0.
    document: usize,
    kind: String,
    name: String,
    namespace: String,
    patch: Vec<Operation>,
}

/// An object can't be processed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectFault {
    /// A field has the wrong type.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Any other error, as a sentence.
    #[error("{0}")]
    Other(String),
}

impl ObjectFault {
    /// The error with file, document and line.
    pub(crate) fn locate(self, input: &Input, document: &Document, object: &Object<'_>) -> anyhow::Error {
        let prefix = &object.field;
        let number = document.number;
        match self {
            Self::Shape(ShapeError { field, message }) => {
                let field = if field == "." { prefix.clone() } else { format!("{prefix}{field}") };
                let line = document.line_of_field(&field);
                let name = field.trim_end_matches('.');
                let advice = if message.ends_with("expected a string") {
                    "put it in quotes"
                } else {
                    "correct it (`kubectl explain` shows its type)"
                };
                anyhow::anyhow!("document {number}, line {line}: field `{name}`: {message}; {advice}")
            }
            Self::Other(message) => {
                let line = document.line_of_field(prefix);
                anyhow::anyhow!("document {number}, line {line}: {message}")
            }
        }
        .context(input.name.clone())
    }
}

/// Applies `operations` of each workload to its document.
pub(crate) fn patch_all(
    inputs: &[Input],
    mut operations: impl FnMut(&Object<'_>, WorkloadKind) -> Result<Vec<Operation>, ObjectFault>,
) -> anyhow::Result<Vec<Vec<Patched>>> {
    inputs
        .iter()
        .map(|input| {
            let documents = input.source.documents.iter();
            documents.map(|document| patch(input, document, &mut operations)).collect()
        })
        .collect()
}

fn patch(
    input: &Input,
    document: &Document,
    operations: &mut impl FnMut(&Object<'_>, WorkloadKind) -> Result<Vec<Operation>, ObjectFault>,
) -> anyhow::Result<Patched> {
    let objects = objects(document).map_err(|error: DocumentError| at(input, error))?;
    let mut all = Vec::new();
    let mut any = false;
    for object in &objects {
        let Ok(kind) = object.workload else { continue };
        any = true;
        let own = operations(object, kind).map_err(|fault| fault.locate(input, document, object))?;
        all.extend(own.into_iter().map(|operation| operation.under(&object.path)));
    }
    let (text, data) = if all.is_empty() {
        (input.source.text[document.region.clone()].to_owned(), document.data.clone())
    } else {
        let rewritten = rewrite(&input.source, document, &all)
            .with_context(|| format!("document {}", document.number))
            .with_context(|| input.name.clone())?;
        (rewritten.text, rewritten.data)
    };
    let patch = any.then(|| {
        let text = |data: Option<&Data>| data.and_then(Data::as_str).unwrap_or_default().to_owned();
        let metadata = document.data.get("metadata");
        let named = |key| metadata.and_then(|metadata| metadata.get(key));
        DocumentPatch {
            file: input.name.clone(),
            document: document.number - 1,
            kind: text(document.data.get("kind")),
            name: text(named("name").or(named("generateName"))),
            namespace: text(named("namespace")),
            patch: all,
        }
    });
    Ok(Patched { text, data, patch })
}

fn at(input: &Input, error: DocumentError) -> anyhow::Error {
    anyhow::Error::new(error).context(input.name.clone())
}

//! Computes and applies the operations of every document.

use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use swansong::manifest::data::Data;
use swansong::manifest::objects::{Object, objects};
use swansong::manifest::rewrite::{Rewrite, rewrite};
use swansong::manifest::source::Document;
use swansong_inject::operation::Operation;
use swansong_inject::view::ShapeError;

use super::input::Input;
use super::messages::Messages;
use super::output::{Format, Output};

/// A document with its operations applied.
#[derive(Debug)]
pub(crate) struct Patched {
    /// The new text of its region.
    pub(crate) text: String,
    /// The new value.
    pub(crate) data: Data,
    pub(crate) rewrites: Vec<Rewrite>,
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

/// Prints the documents of all files with the operations that `change` returns for their objects.
///
/// Nothing is printed before all of them are read, so that an error doesn't leave half of a stream to a reader.
pub(crate) fn print_changed(
    inputs: &[Input],
    format: Format,
    mut change: impl FnMut(&Object<'_>, &mut Messages) -> Result<Vec<Operation>, ObjectFault>,
) -> anyhow::Result<ExitCode> {
    let mut messages = Messages::default();
    let mut output = Output::new(format, inputs);
    for input in inputs {
        output.begin_file(input);
        for document in input.source.documents() {
            let document = document.with_context(|| input.name.clone())?;
            let patched = patch(input, &document, &mut messages, &mut change)?;
            if format == Format::Yaml {
                messages.add_rewrites(input, &document, &patched.rewrites);
            }
            output.add(&document, &patched)?;
        }
        output.end_file()?;
    }
    messages.print();
    output.print()?;
    Ok(ExitCode::SUCCESS)
}

fn patch(
    input: &Input,
    document: &Document,
    messages: &mut Messages,
    change: &mut impl FnMut(&Object<'_>, &mut Messages) -> Result<Vec<Operation>, ObjectFault>,
) -> anyhow::Result<Patched> {
    let mut all = Vec::new();
    let mut has_workload = false;
    for object in &objects(document).with_context(|| input.name.clone())? {
        has_workload |= object.workload.is_ok();
        let own = change(object, messages).map_err(|fault| fault.locate(input, document, object))?;
        all.extend(own.into_iter().map(|operation| operation.under(&object.path)));
    }
    let (text, data, rewrites) = if all.is_empty() {
        (input.source.text[document.region.clone()].to_owned(), document.data.clone(), Vec::new())
    } else {
        let rewritten = rewrite(&input.source, document, &all)
            .with_context(|| format!("document {}", document.number))
            .with_context(|| input.name.clone())?;
        (rewritten.text, rewritten.data, rewritten.rewrites)
    };
    let patch = has_workload.then(|| {
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
    Ok(Patched { text, data, rewrites, patch })
}

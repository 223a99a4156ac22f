//! Prints patched documents as YAML, JSON or operations.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Context;
use swansong::manifest::data::Data;
use swansong::manifest::objects::Object;

use super::input::Input;
use super::patch::Patched;

/// The byte order mark.
const MARK: char = '\u{feff}';

/// What is printed
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The documents with the changes in place; JSON input stays JSON
    Yaml,
    /// A stream of JSON objects, as `kubectl apply -f -` and `jq` read it
    Json,
    /// One JSON array of the changes: {file, document (from 0), kind, name, namespace, patch (RFC 6902)} for each document with a workload
    Patch,
}

/// Messages about objects, one per line.
#[derive(Debug, Default)]
pub(crate) struct Messages(String);

impl Messages {
    pub(crate) fn add(&mut self, level: &str, object: &Object<'_>, message: impl Display) {
        let line = format!("{level}: {} {}: {message}", object.kind, object.place());
        self.0.push_str(&printable(&line));
        self.0.push('\n');
    }
}

/// Prints patched documents, after the messages on standard error.
pub(crate) fn print_patched(
    inputs: &[Input],
    patched: &[Vec<Patched>],
    format: Format,
    messages: &Messages,
) -> anyhow::Result<ExitCode> {
    let output = render(inputs, patched, format)?;
    eprint!("{}", messages.0);
    print(&output)?;
    Ok(ExitCode::SUCCESS)
}

/// Formats the whole output.
fn render(inputs: &[Input], patched: &[Vec<Patched>], format: Format) -> anyhow::Result<String> {
    match format {
        Format::Yaml => Ok(yaml(inputs, patched)),
        Format::Json => json(patched),
        Format::Patch => {
            let all = patched.iter().flatten().filter_map(|document| document.patch.as_ref());
            Ok(serde_json::to_string_pretty(&all.collect::<Vec<_>>())? + "\n")
        }
    }
}

/// The unpatched text byte for byte. Between files it adds missing separators and removes byte order marks, after which
/// kubectl doesn't recognise `---`.
fn yaml(inputs: &[Input], patched: &[Vec<Patched>]) -> String {
    let all_json = inputs.iter().all(|input| input.source.json);
    let mut out = String::new();
    for (input, documents) in inputs.iter().zip(patched) {
        let text = &input.source.text;
        separate(&mut out, input, all_json);
        let joined = out.len();
        let mut at = 0;
        for (index, (document, patched)) in input.source.documents.iter().zip(documents).enumerate() {
            let between = &text[at..document.region.start];
            if index > 0 && input.source.json && !all_json {
                // Values of a JSON stream need separators in YAML.
                out.push_str("\n---\n");
            } else {
                out.push_str(between);
            }
            out.push_str(&patched.text);
            at = document.region.end;
        }
        out.push_str(&text[at..]);
        if joined > 0 && out[joined..].starts_with(MARK) {
            out.remove(joined);
        }
    }
    out
}

fn separate(out: &mut String, input: &Input, all_json: bool) {
    if out.is_empty() {
        return;
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    let explicit = input.source.documents.first().is_some_and(|document| document.explicit);
    if !explicit && !all_json && !input.source.documents.is_empty() {
        out.push_str("---\n");
    }
}

fn json(patched: &[Vec<Patched>]) -> anyhow::Result<String> {
    let mut out = String::new();
    for document in patched.iter().flatten().filter(|document| document.data != Data::Null) {
        out.push_str(&serde_json::to_string_pretty(&document.data)?);
        out.push('\n');
    }
    Ok(out)
}

/// The text with control characters and changes of text direction escaped, because a terminal would act on them.
pub(crate) fn printable(text: &str) -> String {
    let is_safe =
        |c: char| !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_safe(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    out
}

/// Writes to standard output; a pipe that is closed, for example by `head`, is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output can't be written")
        }
        _ => Ok(()),
    }
}

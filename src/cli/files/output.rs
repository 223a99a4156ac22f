//! Prints patched documents as YAML, JSON or operations.

use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};

use anyhow::Context;
use swansong::manifest::data::Data;
use swansong::manifest::source::Document;
use tempfile::SpooledTempFile;

use super::input::Input;
use super::patch::Patched;

/// The byte order mark.
const MARK: char = '\u{feff}';

/// The size from which the output is in a temporary file.
const MAX_IN_MEMORY: usize = 64 << 20;

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

/// The output, which is held back until it is complete.
#[allow(
    clippy::struct_excessive_bools,
    reason = "they are independent facts about the input and the output so far"
)]
pub(super) struct Output<'i> {
    format: Format,
    all_json: bool,
    spool: SpooledTempFile,
    is_empty: bool,
    ends_with_line_break: bool,
    patches: usize,
    /// The current file, the end of its last document, and how many it had.
    file: Option<(&'i Input, usize, usize)>,
    /// Whether a byte order mark at this point is left out.
    drops_mark: bool,
}

impl<'i> Output<'i> {
    pub(super) fn new(format: Format, inputs: &[Input]) -> Self {
        Self {
            format,
            all_json: inputs.iter().all(|input| input.source.json),
            spool: SpooledTempFile::new(MAX_IN_MEMORY),
            is_empty: true,
            ends_with_line_break: false,
            patches: 0,
            file: None,
            drops_mark: false,
        }
    }

    pub(super) fn begin_file(&mut self, input: &'i Input) {
        self.file = Some((input, 0, 0));
    }

    pub(super) fn add(&mut self, document: &Document, patched: &Patched) -> anyhow::Result<()> {
        match self.format {
            Format::Yaml => self.add_yaml(document, &patched.text)?,
            Format::Json if patched.data == Data::Null => {}
            Format::Json => self.write(&(serde_json::to_string_pretty(&patched.data)? + "\n"))?,
            Format::Patch => {
                if let Some(patch) = &patched.patch {
                    let patch = serde_json::to_string_pretty(patch)?.replace('\n', "\n  ");
                    let separator = if self.patches == 0 { "[" } else { "," };
                    self.write(&format!("{separator}\n  {patch}"))?;
                    self.patches += 1;
                }
            }
        }
        Ok(())
    }

    /// Adds what follows the file's last document.
    pub(super) fn end_file(&mut self) -> anyhow::Result<()> {
        let Some((input, end, documents)) = self.file.take().filter(|_| self.format == Format::Yaml) else {
            return Ok(());
        };
        if documents == 0 {
            self.separate(false)?;
        }
        self.write(&input.source.text[end..])
    }

    /// The unpatched text byte for byte.
    fn add_yaml(&mut self, document: &Document, text: &str) -> anyhow::Result<()> {
        let Some((input, end, documents)) = self.file else { return Ok(()) };
        let is_in_json = input.source.json && !self.all_json;
        if documents == 0 {
            self.separate(!document.explicit && !self.all_json)?;
        }
        if documents > 0 && is_in_json {
            // Values of a JSON stream need separators in YAML.
            self.write("\n---\n")?;
        } else {
            self.write(&input.source.text[end..document.region.start])?;
        }
        self.write(text)?;
        self.file = Some((input, document.region.end, documents + 1));
        Ok(())
    }

    /// Separates a file from those before. Adds a missing separator and removes a byte order mark, after which kubectl
    /// doesn't recognise `---`.
    fn separate(&mut self, needs_separator: bool) -> anyhow::Result<()> {
        if self.is_empty {
            return Ok(());
        }
        if !self.ends_with_line_break {
            self.write("\n")?;
        }
        if needs_separator {
            self.write("---\n")?;
        }
        self.drops_mark = true;
        Ok(())
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let text = if self.drops_mark { text.strip_prefix(MARK).unwrap_or(text) } else { text };
        self.drops_mark = false;
        self.is_empty &= text.is_empty();
        self.ends_with_line_break = text.ends_with('\n');
        self.spool
            .write_all(text.as_bytes())
            .context("a temporary file can't be written; free disk space, or set TMPDIR")
    }

    /// Writes it to standard output.
    pub(super) fn print(mut self) -> anyhow::Result<()> {
        if self.format == Format::Patch {
            self.write(if self.patches == 0 { "[]\n" } else { "\n]\n" })?;
        }
        self.spool.rewind()?;
        let mut chunk = vec![0; 1 << 16];
        loop {
            let length = self.spool.read(&mut chunk).context("a temporary file can't be read")?;
            if length == 0 || !write_out(&chunk[..length])? {
                return Ok(());
            }
        }
    }
}

/// Writes to standard output; a pipe that is closed, for example by `head`, is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    write_out(text.as_bytes()).map(|_| ())
}

/// Returns whether there is still a reader.
fn write_out(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("standard output can't be written"),
    }
}

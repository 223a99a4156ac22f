//! `swansong uninject`: what `inject` or the webhook added, taken out again.

use std::process::ExitCode;

use swansong_webhook::inject::undo::{UndoError, uninject};

use super::files::{Files, Format, ObjectFault, patch_all, print, render};

/// Take out again what was injected, exactly
///
/// Reads the annotation swansong.dev/injected, in which the injection wrote down what it did. Objects without it
/// pass through byte for byte.
#[derive(Debug, clap::Args)]
pub(crate) struct Uninject {
    #[command(flatten)]
    files: Files,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

impl Uninject {
    /// Reads, takes out, prints.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let inputs = self.files.read()?;
        let patched = patch_all(&inputs, |object, kind| {
            uninject(kind, &object.to_json()).map_err(|error| match error {
                UndoError::Shape(shape) => shape.into(),
                error @ UndoError::Record { .. } => ObjectFault::Other(error.to_string()),
            })
        })?;
        print(&render(&inputs, &patched, self.output)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

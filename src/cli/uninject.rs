//! `swansong uninject`: removes what `inject` or the webhook added.

use std::process::ExitCode;

use swansong_inject::undo::{UndoError, uninject};

use super::files::{Files, Format, ObjectFault, print_changed};

/// Remove exactly what was injected
///
/// Reads the record of the injection in the annotation swansong.dev/injected. Objects without it pass through byte for
/// byte. Fields that were changed since remain, with a warning on standard error.
#[derive(Debug, clap::Args)]
pub(crate) struct Uninject {
    #[command(flatten)]
    files: Files,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

impl Uninject {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let inputs = self.files.read()?;
        print_changed(&inputs, self.output, |object, messages| {
            let Ok(kind) = object.workload else { return Ok(Vec::new()) };
            let undo = uninject(kind, &object.to_json()).map_err(|error| match error {
                UndoError::Shape(shape) => shape.into(),
                error @ UndoError::Record { .. } => ObjectFault::Other(error.to_string()),
            })?;
            undo.remaining.iter().for_each(|what| messages.add("warning", object, what));
            Ok(undo.operations)
        })
    }
}

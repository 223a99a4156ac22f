//! `swansong explain`: shows what an injection would change in workload files, and why.

mod report;
mod reset;
mod text;
mod trainer;

use std::process::ExitCode;

use anyhow::Context;
use swansong::manifest::objects::{Object, objects};
use swansong::manifest::source::Document;
use swansong_inject::inject;
use swansong_inject::report::Outcome;

use self::report::{Entry, Report};
use super::files::{Files, Input, ObjectFault, warn_of_unsupported_kind};
use super::inject::PolicyFile;
use super::report_options::ReportOptions;
use super::trainer_text::StorageRate;

/// Show what an injection would change in workload files, and why
///
/// The JSON object is
/// {"documents": [{"kind", "name", "namespace", "strategies", "injected", "skipReason", "templates", "warnings", …}]}.
///
/// Exit status: 0; 1 if the input can't be read; with --fail-on-warning 2 if there is a warning.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    storage_rate: StorageRate,
    #[command(flatten)]
    report: ReportOptions,
    #[command(flatten)]
    policy: PolicyFile,
}

impl Explain {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let policy = self.policy.load()?;
        let (inputs, scripts) = self.files.read_with_scripts()?;
        let documents = read(&inputs)?;
        let all = found(&inputs, &documents)?;
        let objects: Vec<&Object<'_>> = all.iter().map(|found| &found.object).collect();
        let files = trainer::files(&inputs, &documents, &scripts);
        let limits = trainer::Limits::new(policy.dump.save_limit, self.storage_rate.get());
        let mut entries = Vec::with_capacity(all.len());
        for Found { input, document, object } in &all {
            let outcome = match object.workload {
                Ok(kind) => inject(kind, &object.to_json(), &policy)
                    .map_err(|error| ObjectFault::from(error).locate(input, document, object))?,
                Err(reason) => Outcome {
                    skip: Some(reason),
                    warnings: warn_of_unsupported_kind(object, &policy).into_iter().collect(),
                    ..Outcome::default()
                },
            };
            let note = reset::note(object, &outcome, all.iter().map(|found| &found.object));
            let trainers = trainer::Trainers::of(object, &outcome, &objects, &files, limits);
            let mut entry = Entry::new(&input.name, document.number - 1, object, outcome, note);
            trainers.add_to(&mut entry);
            entries.push(entry);
        }
        let report = Report::new(entries);
        self.report.print(&report, report.has_warnings(), |report| text::page(report, inputs.len() > 1))
    }
}

/// An object and its position in the input.
struct Found<'i> {
    input: &'i Input,
    document: &'i Document,
    object: Object<'i>,
}

fn read(inputs: &[Input]) -> anyhow::Result<Vec<Vec<Document>>> {
    let read = |input: &Input| {
        input.source.documents().collect::<Result<_, _>>().with_context(|| input.name.clone())
    };
    inputs.iter().map(read).collect()
}

fn found<'i>(inputs: &'i [Input], documents: &'i [Vec<Document>]) -> anyhow::Result<Vec<Found<'i>>> {
    let mut all = Vec::new();
    for (input, documents) in inputs.iter().zip(documents) {
        for document in documents {
            let objects = objects(document).with_context(|| input.name.clone())?;
            all.extend(objects.into_iter().map(|object| Found { input, document, object }));
        }
    }
    Ok(all)
}

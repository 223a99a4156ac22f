//! Warns of training programs that can't save, as far as the commands of containers show.

use swansong_trainer::{Report, Setting, read_command};

use crate::kind::WorkloadKind;
use crate::reason::Reason;
use crate::report::Outcome;
use crate::view::{Container, EnvVar};
use crate::workload::LocatedTemplate;

/// What a command has that is worth reading: a program, or a pipe. Most commands only call a script.
const SIGNS: [&str; 2] = [".py", "tee "];
/// More warnings of one object don't help.
const MAX_WARNINGS: usize = 8;

/// Warns of the chosen containers; all pods of a job have much the same command, so each message is given once.
pub(crate) fn warn(kind: WorkloadKind, templates: &[LocatedTemplate<'_, '_>], outcome: &mut Outcome) {
    let mut found = Vec::new();
    for (located, report) in templates.iter().zip(&outcome.templates) {
        let Some(spec) = located.template.spec.present() else { continue };
        let names: Vec<&str> = report.containers.iter().map(|container| container.name.as_str()).collect();
        for container in spec.containers.items().iter().filter(|it| names.contains(&it.name())) {
            for finding in read(kind, container).iter().flat_map(Report::all_findings) {
                let Some(reason) = Reason::of_trainer(finding.reason) else { continue };
                let message = format!("container {}: {}", container.name(), finding.message);
                let found_one = (reason, finding.reason, message);
                if found.len() < MAX_WARNINGS && !found.contains(&found_one) {
                    found.push(found_one);
                }
            }
        }
    }
    for (reason, cause, message) in found {
        if !outcome.trainer.contains(&cause) {
            outcome.trainer.push(cause);
        }
        outcome.warn(reason, message);
    }
}

/// What the command of a container shows; `None` if it shows no program.
fn read(kind: WorkloadKind, container: &Container<'_>) -> Option<Report> {
    let words = container.command.items().iter().chain(container.args.items());
    let words: Vec<&str> = words.filter_map(|word| word.present().map(|text| &**text)).collect();
    if !words.iter().any(|word| SIGNS.iter().any(|sign| word.contains(sign))) {
        return None;
    }
    // Kubernetes replaces references to other variables before the program sees them.
    let value = |entry: &EnvVar<'_>| {
        entry.value.present().map(|text| (**text).to_owned()).filter(|text| !text.contains("$("))
    };
    let values: Vec<(&str, Option<String>)> =
        container.env.items().iter().map(|entry| (entry.name(), value(entry))).collect();
    let variables: Vec<(&str, Option<&str>)> =
        values.iter().map(|(name, value)| (*name, value.as_deref())).collect();
    let setting = Setting {
        variables: &variables,
        has_unknown_variables: !container.env_from.items().is_empty(),
        // A Pod has them already.
        has_operator_variables: kind == WorkloadKind::AscendJob,
        ..Setting::default()
    };
    Some(read_command(&words, &setting))
}

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
/// Different commands of one object that are read. A text that is made for it takes a tenth of a second to read.
const MAX_COMMANDS: usize = 4;

/// Warns of the chosen containers; all pods of a job have much the same command, so each message is given once.
pub(crate) fn warn(kind: WorkloadKind, templates: &[LocatedTemplate<'_, '_>], outcome: &mut Outcome) {
    let mut found = Vec::new();
    let mut commands: Vec<Command<'_>> = Vec::new();
    for (located, report) in templates.iter().zip(&outcome.templates) {
        let Some(spec) = located.template.spec.present() else { continue };
        let names: Vec<&str> = report.containers.iter().map(|container| container.name.as_str()).collect();
        for container in spec.containers.items().iter().filter(|it| names.contains(&it.name())) {
            let Some(command) = Command::of(container) else { continue };
            // Templates and containers of a job usually have the same command.
            if commands.contains(&command) || commands.len() == MAX_COMMANDS {
                continue;
            }
            let report = command.read(kind);
            commands.push(command);
            for finding in report.all_findings() {
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

/// What a container starts.
#[derive(PartialEq, Eq)]
struct Command<'c> {
    words: Vec<&'c str>,
    /// `None` for a value that isn't known.
    variables: Vec<(&'c str, Option<&'c str>)>,
    has_unknown_variables: bool,
}

impl<'c> Command<'c> {
    /// `None` if it shows no program.
    fn of(container: &'c Container<'_>) -> Option<Self> {
        let words = container.command.items().iter().chain(container.args.items());
        let words: Vec<&str> = words.filter_map(|word| word.present().map(|text| &**text)).collect();
        if !words.iter().any(|word| SIGNS.iter().any(|sign| word.contains(sign))) {
            return None;
        }
        // Kubernetes replaces references to other variables before the program sees them.
        let value = |entry: &'c EnvVar<'_>| {
            entry.value.present().map(|text| &**text).filter(|text| !text.contains("$("))
        };
        Some(Self {
            words,
            variables: container.env.items().iter().map(|entry| (entry.name(), value(entry))).collect(),
            has_unknown_variables: !container.env_from.items().is_empty(),
        })
    }

    /// What the command shows.
    fn read(&self, kind: WorkloadKind) -> Report {
        let setting = Setting {
            variables: &self.variables,
            has_unknown_variables: self.has_unknown_variables,
            // A Pod has them already.
            has_operator_variables: kind == WorkloadKind::AscendJob,
            ..Setting::default()
        };
        read_command(&self.words, &setting)
    }
}

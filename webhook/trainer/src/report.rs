//! The result for a command or script.

use serde::Serialize;

use crate::finding::{Finding, Training, Verdict};
use crate::judge;
use crate::reason::{Effect, TrainerReason as Reason};
use crate::shell::{Interpreter, Started};
use crate::{Setting, lint};

/// Commands whose words have more combinations than this aren't judged.
const MAX_COMBINATIONS: usize = 64;

/// The result for a command or script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Over all training programs that may be started.
    pub verdict: Verdict,
    pub trainings: Vec<Training>,
    /// What concerns no single training: scripts that are missing or can't be read, and their faults.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn of(shell: Interpreter<'_>, setting: &Setting<'_>) -> Self {
        let mut trainings: Vec<Training> = Vec::new();
        for started in &shell.started {
            for training in judge_all(started, &shell, setting) {
                if !trainings.contains(&training) {
                    trainings.push(training);
                }
            }
        }
        let note = |reason, message| Finding { reason, message, file: String::new(), line: 0 };
        let mut findings: Vec<Finding> = Vec::new();
        findings.extend(
            shell
                .unread
                .iter()
                .map(|place| note(Reason::ScriptUnread, format!("{place}, so what follows isn't known"))),
        );
        findings.extend(
            shell.missing.iter().map(|script| note(Reason::ScriptMissing, shell.missing_message(script))),
        );
        if !shell.assumed_unset.is_empty() && !trainings.is_empty() {
            let names = shell.assumed_unset.join(", ");
            findings.push(note(
                Reason::AssumedUnset,
                format!("the defaults of {names} apply unless the environment sets them"),
            ));
        }
        let verdict = overall(&trainings, &mut findings);
        let lints = shell.lints.into_iter().map(lint::ScriptFinding::into_finding);
        findings.extend(lints);
        Self { verdict, trainings, findings }
    }

    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.trainings.iter().flat_map(|training| &training.findings).chain(&self.findings)
    }

    /// Whether a finding asks for action.
    pub fn has_warnings(&self) -> bool {
        self.all_findings().any(|finding| finding.reason.effect() != Effect::Note)
    }
}

/// The verdicts of a command in all its combinations of values.
fn judge_all(started: &Started, shell: &Interpreter<'_>, setting: &Setting<'_>) -> Vec<Training> {
    let Some(combinations) = shell.marks.resolve(started.args.clone(), MAX_COMBINATIONS) else {
        let mut training = judge::judge(started, &started.args, &shell.marks, setting);
        if let Some(training) = &mut training {
            training.verdict = Verdict::Unknown;
        }
        return training.into_iter().collect();
    };
    let mut trainings: Vec<Training> = Vec::new();
    for args in combinations {
        let Some(training) = judge::judge(started, &args, &shell.marks, setting) else { continue };
        // Combinations that differ in numbers only are one training.
        match trainings.iter_mut().find(|other| other.verdict == training.verdict) {
            Some(other) => {
                let new = training.findings.into_iter().filter(|finding| !other.findings.contains(finding));
                let new: Vec<Finding> = new.collect();
                other.findings.extend(new);
                if other.parallelism != training.parallelism {
                    other.parallelism = None;
                }
                if other.estimate != training.estimate {
                    other.estimate = None;
                }
            }
            None => trainings.push(training),
        }
    }
    trainings
}

fn overall(trainings: &[Training], findings: &mut Vec<Finding>) -> Verdict {
    let note =
        |reason, message: &str| Finding { reason, message: message.to_owned(), file: String::new(), line: 0 };
    let is_unsure = |finding: &Finding| finding.reason.effect() == Effect::Unsure;
    let Some(first) = trainings.first() else {
        if !findings.iter().any(is_unsure) {
            findings.push(note(Reason::NoTrainer, "no command starts a training program"));
        }
        return Verdict::Unknown;
    };
    if trainings.iter().any(|training| training.verdict != first.verdict) {
        findings.push(note(
            Reason::CommandsDiffer,
            "of the commands that may run, not all have the same verdict",
        ));
        return Verdict::Unknown;
    }
    // What follows an unread part, or another script, may train as well.
    let is_unread = findings.iter().any(|finding| finding.reason == Reason::ScriptUnread);
    if first.verdict == Verdict::Can && is_unread { Verdict::Unknown } else { first.verdict }
}

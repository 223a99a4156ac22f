//! Whether the training programs that run in injected Pods can save a dying checkpoint.
//!
//! The arguments of a running process are what its program got, so nothing in them is unknown, unlike in a start script.

use std::io::Read as _;

use procfs::process::Process;
use serde::Serialize;
use swansong_trainer::{TrainerReason, Training, Verdict, read_process};

use crate::host::variable;

/// The variables of a training program that decide.
const VARIABLES: [&str; 3] = ["HIGH_AVAILABILITY", "MS_ENABLE_TFT", "WORLD_SIZE"];
/// No command line of a training program is longer.
const MAX_COMMAND_LINE: u64 = 1 << 18;

/// What a process trains; `None` if it doesn't, or can't be read.
pub(crate) fn training_of(process: &Process, environment: &[u8]) -> Option<Training> {
    let mut command_line = Vec::new();
    let file = process.open_relative("cmdline").ok()?;
    file.take(MAX_COMMAND_LINE).read_to_end(&mut command_line).ok()?;
    let values: Vec<(&str, String)> =
        VARIABLES.iter().filter_map(|name| Some((*name, variable(environment, name)?))).collect();
    let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    read_process(&command_line, &values, &[])
}

/// The verdict on the training of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrainerVerdict {
    #[serde(rename = "verdict")]
    pub outcome: Verdict,
    /// The path of the program.
    pub program: String,
    /// Why it can't save, or what isn't known.
    pub reasons: Vec<TrainerReason>,
    pub message: String,
}

impl TrainerVerdict {
    /// The worst verdict on the processes of a container; all ranks usually have the same.
    pub(crate) fn of<'t>(trainings: impl Iterator<Item = &'t Training>) -> Option<Self> {
        let rank = |training: &&Training| match training.verdict {
            Verdict::Cannot => 0,
            Verdict::Unknown => 1,
            Verdict::Can => 2,
        };
        let worst = trainings.min_by_key(rank)?;
        let messages: Vec<&str> = worst.findings.iter().map(|finding| finding.message.as_str()).collect();
        let message = if messages.is_empty() {
            format!("{} can save a dying checkpoint", worst.program)
        } else {
            format!("{}: {}", worst.program, messages.join("; "))
        };
        Some(Self {
            outcome: worst.verdict,
            program: worst.program.clone(),
            reasons: worst.findings.iter().map(|finding| finding.reason).collect(),
            message,
        })
    }

    /// The value of metric labels.
    pub(crate) const fn label(outcome: Verdict) -> &'static str {
        match outcome {
            Verdict::Can => "can",
            Verdict::Cannot => "cannot",
            Verdict::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A process with the arguments of a training is read as one, here a shell under Python's name.
    #[test]
    fn training_of_a_process_is_read_from_its_arguments() {
        use std::os::unix::process::CommandExt as _;
        let mut child = Command::new("/bin/sh")
            .arg0("python3")
            .args(["-c", "read line; exit 0", "posttrain_gpt.py"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let process = Process::new(i32::try_from(child.id()).expect("an id")).expect("a process");
        let other = training_of(&process, b"");
        drop(child.stdin.take());
        child.wait().expect("its end");
        assert_eq!(other, None, "python -c runs no file");

        let line = b"/usr/bin/python3\0-u\0posttrain_gpt.py\0--save\0/ckpt\0--lora-r\08\0";
        let training = read_process(line, &[("HIGH_AVAILABILITY", "dump"), ("WORLD_SIZE", "16")], &[]);
        let verdict = TrainerVerdict::of(training.iter()).expect("a training");
        assert_eq!(verdict.outcome, Verdict::Cannot);
        assert!(verdict.reasons.contains(&TrainerReason::LoraStopsJob), "{verdict:?}");
        assert_eq!(TrainerVerdict::of(std::iter::empty()), None);
    }
}

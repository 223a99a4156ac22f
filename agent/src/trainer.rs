//! Whether the training programs that run in injected Pods can save a dying checkpoint.
//!
//! The arguments of a running process are what its program got, so nothing in them is unknown, unlike in a start script.

use std::io::Read as _;
use std::path::Path;

use procfs::process::Process;
use serde::Serialize;
use swansong_trainer::{
    RunningProcess, Source, TrainerReason, Training, VARIABLES, Verdict, command_line_words, read_process,
};

use crate::host::{HostRoot, variable};

/// No command line of a training program is longer.
const MAX_COMMAND_LINE: u64 = 1 << 18;
/// Files of a command line that are read: its program and, of MindFormers, the configuration.
const MAX_FILES: usize = 4;
const MAX_FILE: u64 = 1 << 18;

/// What a process trains; `None` if it doesn't, or can't be read. `root` is its root folder.
pub(crate) fn training_of(process: &Process, root: &Path, environment: &[u8]) -> Option<Training> {
    let mut command_line = Vec::new();
    let file = process.open_relative("cmdline").ok()?;
    file.take(MAX_COMMAND_LINE).read_to_end(&mut command_line).ok()?;
    let values: Vec<(&str, String)> =
        VARIABLES.iter().filter_map(|name| Some((*name, variable(environment, name)?))).collect();
    let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let folder = process.cwd().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    let files = files(root, &folder, &command_line);
    let sources: Vec<Source<'_>> = files.iter().map(|(path, text)| Source { path, text }).collect();
    read_process(&RunningProcess {
        command_line: &command_line,
        variables: &values,
        folder: &folder,
        sources: &sources,
    })
}

/// The program and the configuration that a command line names, as the process sees them.
fn files(root: &Path, folder: &str, command_line: &[u8]) -> Vec<(String, String)> {
    let Ok(root) = HostRoot::open(root) else { return Vec::new() };
    let is_wanted = |word: &String| {
        Path::new(word).extension().is_some_and(|ending| ["py", "yaml", "yml"].iter().any(|it| ending == *it))
    };
    let words = command_line_words(command_line).into_iter().filter(is_wanted).take(MAX_FILES);
    let read = |path: String| {
        let content = root.read(Path::new(folder).join(&path), MAX_FILE).ok()?;
        Some((path, String::from_utf8(content).ok()?))
    };
    words.filter_map(read).collect()
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
        let other = training_of(&process, Path::new("/"), b"");
        drop(child.stdin.take());
        child.wait().expect("its end");
        assert_eq!(other, None, "python -c runs no file");

        let line = b"/usr/bin/python3\0-u\0posttrain_gpt.py\0--save\0/ckpt\0--lora-r\08\0";
        let training = read_process(&RunningProcess {
            command_line: line,
            variables: &[("HIGH_AVAILABILITY", "dump"), ("WORLD_SIZE", "16")],
            ..RunningProcess::default()
        });
        let verdict = TrainerVerdict::of(training.iter()).expect("a training");
        assert_eq!(verdict.outcome, Verdict::Cannot);
        assert!(verdict.reasons.contains(&TrainerReason::LoraStopsJob), "{verdict:?}");
        assert_eq!(TrainerVerdict::of(std::iter::empty()), None);
    }
}

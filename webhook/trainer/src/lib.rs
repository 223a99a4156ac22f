//! Whether a training program can save a dying checkpoint, as far as the way it is started shows.
//!
//! A command line, a start script or a process's arguments go in; verdicts with their reasons, findings in the script and
//! the arithmetic of replicas come out. There is no I/O and no clock here. What decides is in docs/trainer.md, with its
//! sources.
//!
//! ```
//! use swansong_trainer::{Setting, Verdict, read_script};
//!
//! let script = "cd MindSpeed-LLM\n\
//!     torchrun --nproc_per_node 8 pretrain_gpt.py --use-distributed-optimizer --save /ckpt --lora-r 8\n";
//! let report = read_script("start.sh", script, None, &Setting::default());
//! assert_eq!(report.verdict, Verdict::Cannot);
//! ```

mod finding;
mod flags;
mod framework;
mod judge;
mod launch;
mod lint;
mod marks;

mod parallel;
mod program;
mod reason;
pub mod releases;
mod report;
mod shell;

pub use self::finding::{Finding, Training, Verdict};
pub use self::framework::Framework;
pub use self::parallel::{Estimate, Parallelism, REPLICAS};
pub use self::reason::{Effect, TrainerReason};
pub use self::report::Report;

use self::marks::{Arg, clean};
use self::shell::{Call, Interpreter};

/// A file of the input: a script, a Python program or a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source<'a> {
    /// Where it is in the container, or its name.
    pub path: &'a str,
    pub text: &'a str,
}

/// What is known beside the command.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// Files that the command may call or read.
    pub sources: &'a [Source<'a>],
    /// Variables of the container; `None` for a value that isn't known.
    pub variables: &'a [(&'a str, Option<&'a str>)],
    /// Whether other variables may be set.
    pub has_unknown_variables: bool,
    /// Whether ascend-operator sets `HIGH_AVAILABILITY` and `MS_ENABLE_TFT` for a dump.
    pub has_operator_variables: bool,
    /// NPUs of the whole job.
    pub npus: Option<u64>,
    /// The limit for saving, in seconds.
    pub save_limit_seconds: u64,
    /// Bytes a second that the storage takes, from all Pods together.
    pub storage_rate: Option<u64>,
}

impl Default for Setting<'_> {
    /// A script of a job with the annotation, of which nothing else is known.
    fn default() -> Self {
        Self {
            sources: &[],
            variables: &[],
            has_unknown_variables: true,
            has_operator_variables: true,
            npus: None,
            save_limit_seconds: 180,
            storage_rate: None,
        }
    }
}

/// What ascend-operator sets for `recover-strategy: dump`.
const OPERATOR_VARIABLES: &[(&str, Option<&str>)] =
    &[("HIGH_AVAILABILITY", Some("dump")), ("MS_ENABLE_TFT", Some("{TTP:1}"))];

/// Reads a command with its arguments: `command` and `args` of a container. As Kubernetes does, it replaces `$(NAME)` by
/// the value of a variable of the container.
pub fn read_command<S: AsRef<str>>(command: &[S], setting: &Setting<'_>) -> Report {
    read(setting, Some(Vec::new()), |shell| {
        let args =
            command.iter().map(|word| Arg::of(shell.replace_references(&clean(word.as_ref())))).collect();
        shell.run_command_line(args);
    })
}

/// Reads a script that is started with `arguments`; `None` if they aren't known.
pub fn read_script(path: &str, text: &str, arguments: Option<&[&str]>, setting: &Setting<'_>) -> Report {
    let arguments = arguments.map(|arguments| arguments.iter().map(|word| Arg::of(clean(word))).collect());
    read(setting, arguments, |shell| shell.run_text(path, &clean(text)))
}

/// A running process.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningProcess<'a> {
    /// The content of `/proc/PID/cmdline`.
    pub command_line: &'a [u8],
    /// The variables of its environment that [`VARIABLES`] names.
    pub variables: &'a [(&'a str, &'a str)],
    /// Its working directory, or an empty text.
    pub folder: &'a str,
    /// Files that its command line names.
    pub sources: &'a [Source<'a>],
}

/// The variables of a training program that decide whether it can save.
pub const VARIABLES: &[&str] = shell::ENVIRONMENT;

/// The words of a process's command line.
pub fn command_line_words(command_line: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(command_line);
    text.trim_end_matches('\0').split('\0').map(str::to_owned).collect()
}

/// Reads a running process. `None` if it isn't a training program.
pub fn read_process(process: &RunningProcess<'_>) -> Option<Training> {
    let RunningProcess { command_line, variables, folder, sources } = *process;
    let words = command_line_words(command_line);
    // A shell or launcher isn't the training; its processes are read one by one.
    let is_launcher = |word: &String| program::base_name(word).starts_with("torchrun");
    if words.iter().take(3).any(is_launcher) {
        return None;
    }
    let variables: Vec<(&str, Option<&str>)> =
        variables.iter().map(|(name, value)| (*name, Some(*value))).collect();
    let setting = Setting {
        sources,
        variables: &variables,
        has_unknown_variables: false,
        has_operator_variables: false,
        ..Setting::default()
    };
    let args = words.iter().map(|word| Arg::of(clean(word))).collect();
    let mut shell = Interpreter::new(
        sources,
        &Call { variables: &variables, has_unknown_variables: false, arguments: Some(Vec::new()) },
    );
    shell.start_program(args, folder);
    let started = shell.started.pop()?;
    judge::judge(&started, &started.args, &shell.marks, &setting)
}

fn read(
    setting: &Setting<'_>,
    arguments: Option<Vec<Arg>>,
    run: impl FnOnce(&mut Interpreter<'_>),
) -> Report {
    let mut variables: Vec<(&str, Option<&str>)> = Vec::new();
    if setting.has_operator_variables {
        variables.extend(OPERATOR_VARIABLES);
    }
    variables.extend(setting.variables);
    let call =
        Call { variables: &variables, has_unknown_variables: setting.has_unknown_variables, arguments };
    let mut shell = Interpreter::new(setting.sources, &call);
    run(&mut shell);
    Report::of(shell, setting)
}

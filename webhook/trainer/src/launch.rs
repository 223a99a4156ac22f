//! Finds the training program in a command, and how many processes it has.

use std::path::Path;

use crate::marks::{Arg, Marks, has_mark};
use crate::program::{base_name, is_python, lists};

/// A number, or where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Count {
    Known(u64),
    Unknown(String),
}

/// A command that runs a Python program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Whether a launcher starts several processes of it.
    pub(crate) is_distributed: bool,
    /// The path of the program, or its module.
    pub(crate) program: String,
    pub(crate) args: Vec<Arg>,
    /// Processes on a node.
    pub(crate) processes: Count,
    pub(crate) nodes: Count,
    /// Parts before the program that aren't known.
    pub(crate) unsure: Vec<String>,
    pub(crate) faults: Vec<Fault>,
}

/// Why a launcher stops at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An option, as it is written, has no value or an empty one.
    NoValue(String),
    /// A word is taken for the program and can't be one.
    NotProgram(String),
}

impl Fault {
    /// A sentence for the user; `empty` has the options that lost their value with the variable that is empty.
    pub(crate) fn message(&self, empty: &[(String, String)]) -> String {
        let option = match self {
            Self::NotProgram(word) => {
                return format!(
                    "the job will not start: the launcher takes {word:?} for the program; before the program write only options with \
                     their values, and no blank behind a backslash at the end of a line"
                );
            }
            Self::NoValue(option) => option,
        };
        match empty.iter().rev().find(|(other, _)| other == option) {
            Some((_, variable)) => format!(
                "the job will not start: {option} has no value, because {variable} is empty: set that variable before this line, \
                 without blanks around `=`"
            ),
            None => format!("the job will not start: {option} has no value: write one"),
        }
    }
}

/// Options of torchrun and msrun that have a value. Others may have none in some release.
const WITH_VALUE: &str = "cluster-time-out local-addr local-worker-num log-dir master-addr master-port max-restarts \
    monitor-interval nnodes node-rank nproc-per-node rdzv-backend rdzv-conf rdzv-endpoint rdzv-id role start-method worker-num";
/// Of these, the ones that refuse an empty text.
const NUMBERS: &str =
    "local-worker-num master-port max-restarts monitor-interval nnodes node-rank nproc-per-node worker-num";

/// Options of torchrun without a value.
const SWITCHES: &[&str] = &["standalone", "no-python", "run-path", "use-env", "no-python", "m", "module"];

/// The program that a command runs; `None` if it runs no Python program.
pub(crate) fn recognise(args: &[Arg], marks: &Marks) -> Option<Launch> {
    let mut launch = Launch {
        is_distributed: false,
        program: String::new(),
        args: Vec::new(),
        processes: Count::Unknown("the command line doesn't show the number of processes".to_owned()),
        nodes: Count::Known(1),
        unsure: Vec::new(),
        faults: Vec::new(),
    };
    let first = args.first()?;
    if has_mark(base_name(&first.text)) {
        // An unknown command that gets a Python file.
        launch.unsure.push(marks.origins(&first.text));
        launch.is_distributed = true;
        return launch.with_program(args, args.iter().position(is_program)?);
    }
    let name = base_name(&first.text);
    match name {
        _ if is_python(name) => launch.of_python(args, marks),
        "torchrun" => launch.of_torchrun(args, 1, marks),
        "msrun" => launch.of_msrun(args, marks),
        _ => {
            // It may change the environment and the flags.
            launch.unsure.push(name.to_owned());
            let inner = args.iter().skip(1).position(|arg| is_launcher(base_name(&arg.text)));
            if let Some(inner) = inner.and_then(|at| recognise(&args[at + 1..], marks)) {
                return Some(Launch { unsure: [launch.unsure, inner.unsure].concat(), ..inner });
            }
            launch.is_distributed = true;
            let at = args.iter().position(is_program)?;
            launch.with_program(args, at)
        }
    }
}

/// Launchers whose options are read.
fn is_launcher(name: &str) -> bool {
    matches!(name, "torchrun" | "msrun") || is_python(name)
}

/// Whether a word is the file of a Python program.
pub(crate) fn is_program(arg: &Arg) -> bool {
    Path::new(&arg.text).extension().is_some_and(|extension| extension == "py")
}

/// Whether argparse takes a word for an option, so that it is no value.
fn is_option(text: &str) -> bool {
    let is_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    text.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !is_number(rest) && !rest.contains(' '))
}

/// Whether a word can be no program: a number, a blank or the backslash of a continued line.
fn is_no_program(text: &str) -> bool {
    text.trim().chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ':' | '\\'))
}

impl Launch {
    /// Records that the option `arg` lacks its value if `value` can't be that; whether it is so.
    fn lacks_value(&mut self, arg: &Arg, name: &str, value: Option<&Arg>) -> bool {
        let written = arg.text.split_once('=');
        let is_empty = value.is_some_and(|value| value.text.is_empty() && lists(NUMBERS, name));
        let is_other = lists(WITH_VALUE, name)
            && written.is_none()
            && value.is_none_or(|value| is_option(&value.text) || is_program(value));
        if is_empty || is_other {
            let option = written.map_or(arg.text.as_str(), |(option, _)| option).to_owned();
            self.faults.push(Fault::NoValue(option));
        }
        // An empty word is skipped like a value.
        is_other
    }

    fn with_program(mut self, args: &[Arg], at: usize) -> Option<Self> {
        let program = args.get(at)?;
        self.program.clone_from(&program.text);
        self.args = args[at + 1..].to_vec();
        Some(self)
    }

    fn of_python(mut self, args: &[Arg], marks: &Marks) -> Option<Self> {
        let mut at = 1;
        while let Some(arg) = args.get(at) {
            if arg.open {
                self.unsure.push(marks.origins(&arg.text));
                return self.with_program(args, args.iter().position(is_program)?);
            }
            match arg.text.as_str() {
                "-m" => {
                    let module = args.get(at + 1)?.text.clone();
                    return match module.as_str() {
                        "torch.distributed.launch" | "torch.distributed.run" => {
                            self.of_torchrun(args, at + 2, marks)
                        }
                        _ => self.with_program(args, at + 1),
                    };
                }
                "-c" => return None,
                "-X" | "-W" => at += 2,
                text if text.starts_with('-') => at += 1,
                text if is_no_program(text) => {
                    self.faults.push(Fault::NotProgram(text.to_owned()));
                    at += 1;
                }
                text if base_name(text) == "torchrun" => return self.of_torchrun(args, at + 1, marks),
                _ => return self.with_program(args, at),
            }
        }
        None
    }

    /// torchrun, whose options begin at `at`.
    fn of_torchrun(mut self, args: &[Arg], mut at: usize, marks: &Marks) -> Option<Self> {
        self.is_distributed = true;
        self.processes = Count::Known(1);
        while let Some(arg) = args.get(at) {
            if arg.open || arg.text.starts_with(|c| marks.get(c).is_some()) && !is_program(arg) {
                self.unsure.push(marks.origins(&arg.text));
                return self.with_program(args, args.iter().position(is_program)?);
            }
            let Some(option) = arg.text.strip_prefix('-') else {
                if is_no_program(&arg.text) {
                    self.faults.push(Fault::NotProgram(arg.text.clone()));
                    at += 1;
                    continue;
                }
                return self.with_program(args, at);
            };
            let option = option.trim_start_matches('-').replace('_', "-");
            let (name, value) = match option.split_once('=') {
                // The value keeps its underscores.
                Some((name, _)) => {
                    (name.to_owned(), arg.text.split_once('=').map(|(_, value)| Arg::of(value)))
                }
                None => (option, None),
            };
            if SWITCHES.contains(&name.as_str()) {
                at += 1;
                continue;
            }
            let has_value = value.is_some();
            let value = value.or_else(|| args.get(at + 1).cloned());
            let is_lacking = self.lacks_value(arg, &name, value.as_ref());
            let value = value.filter(|_| !is_lacking).unwrap_or_default();
            if value.open {
                self.unsure.push(marks.origins(&value.text));
            }
            let written = arg.text.split('=').next().unwrap_or_default();
            match name.as_str() {
                "nproc-per-node" => self.processes = count(&value, written, marks),
                "nnodes" => self.nodes = count(&value, written, marks),
                _ => {}
            }
            at += if has_value || is_lacking { 1 } else { 2 };
        }
        None
    }

    /// msrun has the number of all processes and of those on a node.
    fn of_msrun(mut self, args: &[Arg], marks: &Marks) -> Option<Self> {
        self.is_distributed = true;
        let at = args.iter().position(is_program)?;
        for (index, arg) in args[..at].iter().enumerate() {
            if arg.open {
                self.unsure.push(marks.origins(&arg.text));
            }
            let (name, value) = match arg.text.split_once('=') {
                Some((name, value)) => (name, Arg::of(value)),
                None => (arg.text.as_str(), args.get(index + 1).cloned().unwrap_or_default()),
            };
            let option = name.trim_start_matches('-').replace('_', "-");
            let is_lacking = name.starts_with("--") && self.lacks_value(arg, &option, Some(&value));
            if name == "--worker_num" {
                let value = if is_lacking { Arg::default() } else { value };
                self.processes = count(&value, name, marks);
            }
        }
        self.with_program(args, at)
    }

    /// All processes of the job.
    pub(crate) fn world_size(&self) -> Count {
        match (&self.processes, &self.nodes) {
            (Count::Known(processes), Count::Known(nodes)) => match processes.checked_mul(*nodes) {
                Some(world) => Count::Known(world),
                None => Count::Unknown("the number of processes is too large".to_owned()),
            },
            (Count::Unknown(origin), _) | (_, Count::Unknown(origin)) => Count::Unknown(origin.clone()),
        }
    }
}

fn count(value: &Arg, name: &str, marks: &Marks) -> Count {
    let number = value.known().and_then(|text| text.trim().parse::<u64>().ok()).filter(|number| *number > 0);
    number.map_or_else(
        || match value.text.as_str() {
            "" => Count::Unknown(format!("{name} has no value")),
            text => Count::Unknown(format!("the value of {name} is {}", marks.display(text))),
        },
        Count::Known,
    )
}

//! Judges one training program.

mod mindspore;

use crate::finding::{Finding, Training, Verdict};
use crate::flags::Flags;
use crate::framework::Framework;
use crate::launch::{Count, Launch};
use crate::marks::{Arg, Marks, has_mark};
use crate::parallel::{Estimate, Parallelism, SizeError};
use crate::program::{base_name, code_lines};
use crate::reason::{Effect, TrainerReason as Reason};
use crate::shell::Started;
use crate::{Setting, Source};
use swansong_api::documented::Documented as _;

/// Flags that MindSpeed-LLM refuses with high availability, or that take away what MindIO needs.
const EXCLUDING: &[&str] =
    &["--swap-attention", "--swap-optimizer", "--use-dist-ckpt", "--disable-gloo-group"];
const FULLY_SHARDED: &[&str] =
    &["--use-custom-fsdp", "--use-fsdp2", "--use-megatron-fsdp", "--use-torch-fsdp2"];
/// Programs of MindSpeed-LLM with its training loop.
const KNOWN_PROGRAMS: &[&str] = &["pretrain_gpt", "pretrain_mamba", "train_fsdp2"];
/// Flags of Megatron-LM that read further arguments from a file.
const ARGUMENT_FILES: &[&str] = &["--yaml-cfg", "--config-yaml", "--args-file"];
/// What a program with MindIO's own API calls (the order of calls is in MindIO's API reference).
const OWN_CALLS: &[&str] = &[
    "tft_init_processor",
    "tft_start_processor",
    "tft_set_optimizer_replica",
    "tft_set_dp_group_info",
    "tft_register_save",
    "tft_exception_handler",
    "tft_start_updating_os",
    "tft_end_updating_os",
];

/// The verdict on `args`, in which nothing is one of several; `None` if they don't start a training.
pub(crate) fn judge(
    started: &Started,
    args: &[Arg],
    marks: &Marks,
    setting: &Setting<'_>,
) -> Option<Training> {
    let launch = crate::launch::recognise(args, marks)?;
    let flags = Flags::read(&launch.args, marks);
    let text = source_of(&launch.program, setting.sources).map(|source| source.text);
    let framework = Framework::of(&launch, &flags, text, &[&started.folder, &started.file])?;
    let mut judge = Judge { started, launch: &launch, flags: &flags, marks, setting, findings: Vec::new() };
    for fault in &launch.faults {
        judge.add(Reason::LauncherStopsJob, fault.message(&started.empty_values));
    }
    let mut parallelism = None;
    match framework {
        Framework::MindFormers => mindspore::judge(&mut judge),
        Framework::Own => judge.own_program(),
        _ => parallelism = judge.megatron(framework),
    }
    judge.persistence();
    if let Some(parallelism) = &parallelism {
        judge.nodes_of_replicas(parallelism);
    }
    let estimate = Estimate::of(&flags, parallelism.as_ref(), setting.save_limit_seconds, marks);
    if let Some(rate) = setting.storage_rate {
        judge.saving_time(&estimate, rate);
    }
    let findings = judge.findings;
    Some(Training {
        framework,
        program: marks.display(&launch.program),
        file: started.file.clone(),
        line: started.line,
        verdict: verdict(&findings),
        findings,
        parallelism,
        estimate: estimate.ok(),
    })
}

/// The program's file, if only one file of the input has its name.
fn source_of<'s>(program: &str, sources: &'s [Source<'s>]) -> Option<&'s Source<'s>> {
    let mut same = sources.iter().filter(|source| base_name(source.path) == base_name(program));
    same.next().filter(|_| same.next().is_none())
}

/// The verdict that follows from findings: only without doubt it can save.
pub(crate) fn verdict(findings: &[Finding]) -> Verdict {
    let has = |effects: &[Effect]| findings.iter().any(|finding| effects.contains(&finding.reason.effect()));
    if has(&[Effect::WontStart, Effect::NeverSaves]) {
        Verdict::Cannot
    } else if has(&[Effect::Unsure]) {
        Verdict::Unknown
    } else {
        Verdict::Can
    }
}

pub(crate) struct Judge<'j> {
    pub(crate) started: &'j Started,
    pub(crate) launch: &'j Launch,
    pub(crate) flags: &'j Flags,
    pub(crate) marks: &'j Marks,
    pub(crate) setting: &'j Setting<'j>,
    pub(crate) findings: Vec<Finding>,
}

impl Judge<'_> {
    pub(crate) fn add(&mut self, reason: Reason, message: impl Into<String>) {
        let (file, line) = (self.started.file.clone(), self.started.line);
        self.findings.push(Finding { reason, message: message.into(), file, line });
    }

    /// The value of a variable of the program's environment.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.started.environment.iter().find(|(other, _)| *other == name)?.1.as_deref()
    }

    /// Reports unknown parts that may be flags; whether there are any.
    pub(crate) fn unknown_arguments(&mut self) -> bool {
        let hidden = self.flags.hidden.clone();
        for (origin, flag) in &hidden {
            match flag {
                Some(flag) => self.add(
                    Reason::UnknownValue,
                    format!(
                        "the value of {flag} comes from {origin}, which isn't known and may be several words"
                    ),
                ),
                None => self.add(Reason::UnknownArguments, format!("{origin} isn't known and may add flags")),
            }
        }
        for origin in self.launch.unsure.clone() {
            self.add(Reason::UnknownArguments, format!("{origin} before the program isn't known"));
        }
        if self.flags.has_blank {
            self.add(
                Reason::UnknownArguments,
                "one argument is only a blank, which the program may refuse: it comes from a backslash or quotes around a blank",
            );
        }
        !hidden.is_empty() || !self.launch.unsure.is_empty()
    }

    pub(crate) fn world_size(&self) -> Count {
        let from_launcher =
            if self.launch.is_distributed { self.launch.world_size() } else { self.launch.processes.clone() };
        let Count::Unknown(origin) = from_launcher else { return from_launcher };
        let variable = (!self.launch.is_distributed).then(|| self.variable("WORLD_SIZE")).flatten();
        let number =
            variable.and_then(|value| value.parse().ok()).or(self.setting.npus).filter(|number| *number > 0);
        number.map_or(Count::Unknown(origin), Count::Known)
    }

    fn megatron(&mut self, framework: Framework) -> Option<Parallelism> {
        let has_hidden = self.unknown_arguments();
        match framework {
            Framework::MegatronLm => self.add(
                Reason::NoHighAvailability,
                "Megatron-LM has no dying checkpoint unless its training loop was changed to call MindIO; MindSpeed-LLM has it",
            ),
            Framework::MindSpeedMm => self.add(
                Reason::FrameworkUnconfirmed,
                "no document says that MindSpeed-MM has MindIO's dying checkpoint; MindSpeed-LLM and MindFormers have it",
            ),
            Framework::MegatronFamily => self.add(
                Reason::FrameworkUnclear,
                format!(
                    "{} may be MindSpeed-LLM's, which has the dying checkpoint, or Megatron-LM's, which hasn't; neither a flag nor \
                     a folder shows which",
                    base_name(&self.launch.program)
                ),
            ),
            _ => {}
        }
        if matches!(framework, Framework::MindSpeedLlm | Framework::MegatronFamily) {
            self.high_availability(has_hidden);
        }
        self.entry_point(framework);
        self.save(has_hidden);
        if self.flags.has("--no-save-optim") {
            self.add(
                Reason::WeightsOnly,
                "--no-save-optim: a dump has the weights only, without the optimizer state",
            );
        }
        if self.flags.has("--mtp-num-layers") {
            self.add(Reason::MtpKnownBad, Reason::MtpKnownBad.meaning().trim_end_matches('.'));
        }
        self.optimizer(has_hidden)
    }

    fn saving_time(&mut self, estimate: &Result<Estimate, String>, rate: u64) {
        let estimate = match estimate {
            Ok(estimate) => estimate,
            Err(missing) => {
                let message = format!(
                    "the time to save at the given rate can't be estimated: the size of the model is computed from Megatron's flags, \
                     and {missing}"
                );
                return self.add(Reason::SizeUnknown, message);
            }
        };
        let seconds = estimate.checkpoint_bytes.div_ceil(rate.max(1));
        if seconds > self.setting.save_limit_seconds {
            self.add(
                Reason::SaveTooSlow,
                format!(
                    "saving takes about {seconds} s at the given rate, and MindIO discards what takes longer than {} s",
                    self.setting.save_limit_seconds
                ),
            );
        }
    }

    /// MindIO ACP, by the program's file or by the variable with which it replaces Megatron's saving.
    fn persistence(&mut self) {
        let is_patched = matches!(self.variable("MINDIO_AUTO_PATCH_MEGATRON"), Some("1" | "true"));
        let source = source_of(&self.launch.program, self.setting.sources);
        let imports =
            source.is_some_and(|source| code_lines(source.text).any(|line| line.contains("mindio_acp")));
        if is_patched || imports {
            self.add(Reason::AcpBeside, Reason::AcpBeside.meaning().trim_end_matches('.'));
        }
    }

    fn high_availability(&mut self, has_hidden: bool) {
        let is_on = if self.flags.has("--enable-high-availability") {
            true
        } else {
            match self.variable("HIGH_AVAILABILITY").map(str::to_owned).as_deref() {
                Some(value) if has_mark(value) => {
                    let message =
                        format!("the value of HIGH_AVAILABILITY comes from {}", self.marks.origins(value));
                    return self.add(Reason::UnknownValue, message);
                }
                value => value.is_some_and(|value| {
                    value.split(',').any(|item| {
                        matches!(
                            item.to_lowercase().as_str(),
                            "dump" | "recover" | "retry" | "elastic-training"
                        )
                    })
                }),
            }
        };
        match is_on {
            true => self.exclusions(),
            false if has_hidden => {}
            false => self.add(
                Reason::HighAvailabilityOff,
                "neither --enable-high-availability nor HIGH_AVAILABILITY turns high availability on: it trains, and nothing is saved",
            ),
        }
    }

    /// What MindSpeed-LLM refuses when high availability is on.
    fn exclusions(&mut self) {
        let is_lora = |flag: &str| flag.starts_with("--lora-") || flag.starts_with("--qlora");
        if let Some(flag) = self.flags.find(is_lora).map(str::to_owned) {
            self.add(
                Reason::LoraStopsJob,
                format!(
                    "the job will not start: {flag} is LoRA, which MindSpeed-LLM refuses with high availability, and the annotation \
                     recover-strategy turns that on; remove the annotation or train without LoRA"
                ),
            );
        }
        for flag in EXCLUDING {
            if self.flags.has(flag) {
                self.add(
                    Reason::FlagExcludesDump,
                    format!("MindSpeed-LLM refuses {flag} with high availability, which the annotation turns on: remove the flag"),
                );
            }
        }
        match self.flags.get("--ckpt-format").map(|value| (value.known().map(str::to_owned), value.text.clone())) {
            Some((Some(format), _)) if format != "torch" => self.add(
                Reason::FlagExcludesDump,
                format!("--ckpt-format {format} is a distributed checkpoint, which high availability excludes: write torch"),
            ),
            Some((None, text)) => {
                let message = format!("the value of --ckpt-format comes from {}", self.marks.origins(&text));
                self.add(Reason::UnknownValue, message);
            }
            _ => {}
        }
    }

    fn entry_point(&mut self, framework: Framework) {
        let program = base_name(&self.launch.program).to_owned();
        if program.starts_with("posttrain_") {
            self.add(
                Reason::PostTraining,
                format!("{program} is for post-training, which has no dying checkpoint: it trains, and nothing is saved"),
            );
        } else if let Some(stage) = self
            .flags
            .get("--stage")
            .map(|stage| self.marks.display(&stage.text))
            .filter(|stage| stage != "pretrain")
        {
            self.add(
                Reason::FrameworkUnconfirmed,
                format!("--stage {stage} may be post-training, which has no dying checkpoint in newer releases of MindSpeed-LLM"),
            );
        } else if framework == Framework::MindSpeedLlm
            && !KNOWN_PROGRAMS.contains(&program.trim_end_matches(".py"))
        {
            self.add(
                Reason::FrameworkUnconfirmed,
                format!(
                    "{program} isn't a program of MindSpeed-LLM that is known to have the dying checkpoint"
                ),
            );
        }
        for flag in ARGUMENT_FILES {
            if self.flags.has(flag) {
                self.add(Reason::UnknownArguments, format!("{flag} names a file that may set other flags"));
            }
        }
        if self.flags.find(|flag| flag.starts_with("--deepspeed") || flag == "--zero-stage").is_some() {
            self.add(
                Reason::FrameworkUnconfirmed,
                "the program runs under DeepSpeed, for which no document names the dying checkpoint",
            );
        }
        let flag = self.flags.find(|flag| FULLY_SHARDED.contains(&flag)).map(str::to_owned);
        let sharded = flag.or_else(|| (program == "train_fsdp2.py").then_some(program));
        if let Some(what) = sharded {
            self.add(
                Reason::FullySharded,
                format!("{what} shards the state fully; MindIO needs the distributed optimizer (ZeRO-1)"),
            );
        }
    }

    fn save(&mut self, has_hidden: bool) {
        match self
            .flags
            .get("--save")
            .filter(|value| !value.open || !has_hidden)
            .map(|value| value.text.clone())
        {
            None if self.flags.get("--save").is_some() => {}
            None if has_hidden && !self.flags.has("--save") => {}
            None => self.add(
                Reason::NoSaveFolder,
                "there is no --save FOLDER, which is noticed only while dumping: nothing is saved",
            ),
            Some(text) if text.is_empty() => {
                self.add(Reason::NoSaveFolder, "the value of --save is empty: nothing is saved");
            }
            Some(text) if text.chars().all(|c| self.marks.may_split(c)) => {
                let message = format!("the value of --save comes from {}", self.marks.origins(&text));
                self.add(Reason::UnknownValue, message);
            }
            Some(_) => {}
        }
    }

    fn optimizer(&mut self, has_hidden: bool) -> Option<Parallelism> {
        if !self.flags.has("--use-distributed-optimizer") && !has_hidden {
            self.add(
                Reason::OptimizerUnconfirmed,
                "--use-distributed-optimizer is missing, and MindIO's documents name the distributed optimizer only",
            );
        }
        if self.flags.has("--distributed-optimizer-no-replica") {
            self.add(
                Reason::NoReplica,
                "--distributed-optimizer-no-replica: there is no replica of the optimizer state, and nothing can be saved",
            );
        }
        match Parallelism::of(&self.world_size(), self.flags, self.marks) {
            Ok(parallelism) => {
                if let Some(message) = parallelism.lacks_replica()
                    && !has_hidden
                {
                    self.add(Reason::NoReplica, message);
                }
                Some(parallelism)
            }
            Err(SizeError::Unknown(origin)) => {
                self.add(
                    Reason::ParallelSizeUnknown,
                    format!("the data-parallel size can't be computed: {origin}"),
                );
                None
            }
            Err(SizeError::DontFit(message)) => {
                self.add(Reason::ParallelSizeUnknown, format!("the parallel sizes don't fit: {message}"));
                None
            }
        }
    }

    /// Where it can save: whether the loss of a node loses all replicas of a part of the state.
    fn nodes_of_replicas(&mut self, parallelism: &Parallelism) {
        let (Count::Known(nodes), Count::Known(processes)) = (&self.launch.nodes, &self.launch.processes)
        else {
            return;
        };
        let distance = parallelism.replica_distance();
        let may_differ = self.flags.has("--use-tp-pp-dp-mapping")
            || self.findings.iter().any(|finding| finding.reason == Reason::UnknownArguments);
        if verdict(&self.findings) == Verdict::Cannot || may_differ || *nodes < 2 || distance >= *processes {
            return;
        }
        let message = format!(
            "the replicas of the optimizer state are {distance} ranks apart, and a node has {processes}: a fault of a device is \
             saved, the loss of a node isn't"
        );
        self.add(Reason::ReplicasOnOneNode, message);
    }

    /// A program of the user, which may call MindIO's API itself.
    fn own_program(&mut self) {
        let program = self.marks.display(&self.launch.program);
        let name = base_name(&program).to_owned();
        let Some(source) = source_of(&program, self.setting.sources) else {
            return self.add(
                Reason::OwnApiUnseen,
                format!("whether {name} calls MindIO's API can't be seen on the command line"),
            );
        };
        let code: Vec<&str> = code_lines(source.text).collect();
        let lacks =
            |call: &&&str| !code.iter().any(|line| line.contains(**call) && !line.contains("import "));
        let missing: Vec<&str> = OWN_CALLS.iter().filter(lacks).copied().collect();
        if !missing.is_empty() {
            let message = format!("{name} doesn't call {}; a module that it imports may", missing.join(", "));
            return self.add(Reason::OwnApiUnseen, message);
        }
        match self.world_size() {
            Count::Known(1) => self.add(Reason::NoReplica, "there is one process, so nothing has a replica"),
            Count::Known(_) => {}
            Count::Unknown(origin) => self.add(Reason::ParallelSizeUnknown, origin),
        }
    }
}

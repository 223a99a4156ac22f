//! The reasons of verdicts on trainers and of findings in start scripts.

use serde::Serialize;
use strum::{Display, EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// Why a trainer can or can't save, or what is wrong with its start script.
///
/// The doc comment of a variant is its meaning and the strum message what to do; docs/trainer.md is generated from both.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Display,
    EnumMessage,
    EnumString,
    IntoStaticStr,
    Serialize,
    VariantArray,
)]
pub enum TrainerReason {
    /// LoRA with high availability, which the annotation turns on: the program stops at its start.
    #[strum(message = "Remove the annotation `recover-strategy`, or train without LoRA.")]
    LoraStopsJob,
    /// A flag that the program refuses together with high availability, which the annotation turns on.
    #[strum(message = "Remove the flag, or the annotation.")]
    FlagExcludesDump,
    /// The launcher stops at once: an option has no value, usually because a variable is empty, or a word that is no program is in its place.
    #[strum(message = "Set the variable, or write the value.")]
    LauncherStopsJob,
    /// The data-parallel size is 1 or not a multiple of the number of replicas, so there is no replica of the optimizer state: nothing can be saved.
    #[strum(message = "Use more NPUs or lower the parallel sizes, so that the data-parallel size is even.")]
    NoReplica,
    /// The program is for post-training, which has no dying checkpoint: it trains and never saves one.
    #[strum(message = "Save checkpoints often; a dump isn't possible.")]
    PostTraining,
    /// The program has no folder to save to, which it notices only while it dumps.
    #[strum(message = "Add `--save FOLDER`.")]
    NoSaveFolder,
    /// High availability is off, so the program makes no MindIO processors.
    #[strum(message = "Add `--enable-high-availability`, or leave `HIGH_AVAILABILITY` to ascend-operator.")]
    HighAvailabilityOff,
    /// Megatron-LM itself has no dying checkpoint.
    #[strum(message = "Use MindSpeed-LLM, or call MindIO's API in the training loop.")]
    NoHighAvailability,
    /// The program shards the state fully, and MindIO needs the distributed optimizer (ZeRO-1).
    #[strum(message = "Use the distributed optimizer.")]
    FullySharded,
    /// MindSpore's environment doesn't ask for the dying checkpoint.
    #[strum(message = "Write `MS_ENABLE_TFT='{TTP:1}'`, without blanks, or leave it to ascend-operator.")]
    TftOff,
    /// MindSpore doesn't run in graph mode.
    #[strum(message = "Set `context.mode` to 0.")]
    GraphModeOff,
    /// MindSpore sinks more than one step at a time.
    #[strum(message = "Set `runner_config.sink_size` to 1.")]
    SinkSizeNotOne,
    /// The checkpoint has no optimizer state: weights only.
    #[strum(message = "Remove `--no-save-optim`.")]
    WeightsOnly,
    /// The storage is too slow to take the checkpoint within the limit for saving, by an estimate.
    #[strum(message = "Use faster storage, or raise `saveLimitSeconds` in the configuration (at most 1800).")]
    SaveTooSlow,
    /// Whether the storage is fast enough can't be estimated, because the size of the model isn't known.
    #[strum(message = "Write the flag that the message names.")]
    SizeUnknown,
    /// All replicas of a part of the optimizer state are on one node: a fault of a device is saved, the loss of that node isn't.
    #[strum(
        message = "Nothing if only device faults have to be covered. Otherwise use more nodes or a smaller pipeline size, so that each pipeline stage spans two nodes."
    )]
    ReplicasOnOneNode,
    /// `--mtp-num-layers` with high availability was broken in MindSpeed-LLM from adb9f4c9 (2026-07-08) to f9aae3fe (2026-07-15).
    #[strum(message = "Check that MindSpeed-LLM isn't from that week.")]
    MtpKnownBad,
    /// MindIO ACP is used too: 146f40ef calls it incompatible with the dying checkpoint, 252adb52 compatible for level-1 asynchronous saving.
    #[strum(message = "Test a dump.")]
    AcpBeside,
    /// Of a dump, one card of each data-parallel domain has the file, and resuming from it needs high availability as well.
    #[strum(message = "Leave the annotation on the job that resumes.")]
    ResumeNeedsHighAvailability,
    /// A part of the command line that isn't known may be any flag.
    #[strum(
        message = "Give the value: the job's file with its script, or the script with its variables set."
    )]
    UnknownArguments,
    /// The value of a flag that decides isn't known.
    #[strum(message = "Write the value out, or give the file that sets it.")]
    UnknownValue,
    /// The program may be MindSpeed-LLM's, which can save, or Megatron-LM's, which can't.
    #[strum(message = "Start it in or from a folder named `MindSpeed-LLM`.")]
    FrameworkUnclear,
    /// No document says that this framework has MindIO's dying checkpoint.
    #[strum(message = "Test a dump.")]
    FrameworkUnconfirmed,
    /// MindIO's documents name the distributed optimizer only, and the flag for it is missing.
    #[strum(message = "Add `--use-distributed-optimizer`.")]
    OptimizerUnconfirmed,
    /// The data-parallel size can't be computed.
    #[strum(message = "See the message for what is missing.")]
    ParallelSizeUnknown,
    /// The YAML file of MindFormers isn't in the input.
    #[strum(message = "Give it with `-f`.")]
    ConfigMissing,
    /// A script that is called isn't in the input.
    #[strum(message = "Give it with `-f`.")]
    ScriptMissing,
    /// A script can't be read to its end.
    #[strum(message = "See the message for the place.")]
    ScriptUnread,
    /// Whether the program calls MindIO's API can't be seen on the command line.
    #[strum(message = "Give the program's file with `-f`.")]
    OwnApiUnseen,
    /// Some of the commands that may run can save, others can't.
    #[strum(message = "Check the commands one by one.")]
    CommandsDiffer,
    /// No command starts a training program.
    #[strum(message = "Give the script that starts it with `-f`.")]
    NoTrainer,
    /// Variables that nothing is known of are taken as unset, so their defaults apply.
    #[strum(message = "Check that the environment doesn't set them.")]
    AssumedUnset,
    /// The exit status of the training is lost in a pipe to `tee`: the job counts as succeeded.
    #[strum(message = "Write `set -o pipefail` before it, or exit with `${PIPESTATUS[0]}`.")]
    ExitStatusLost,
    /// An assignment with a blank beside `=` doesn't set the value.
    #[strum(message = "Remove the blanks.")]
    BlanksAroundEquals,
    /// The items of `MS_ENABLE_TFT` aren't separated by commas.
    #[strum(message = "Write `{TTP:1,UCE:1}`.")]
    TftWithoutComma,
    /// `LD_PRELOAD` is set without its former value, which undoes what Swansong adds.
    #[strum(message = "Append `:$LD_PRELOAD`.")]
    PreloadOverwritten,
    /// The TaskD Manager is started twice; the second finds its port taken.
    #[strum(message = "Start it once, on rank 0.")]
    ManagerStartedTwice,
    /// All Pods have the same `TTP_LOG_PATH`: MindIO's log files are named after the process only, so those of several Pods collide on shared storage.
    #[strum(
        message = "Add the Pod's name, for example `export TTP_LOG_PATH=/logs/$HOSTNAME`; the folder must not be a symbolic link."
    )]
    LogFolderShared,
    /// A flag is read as a command, usually behind a comment within a continued command: the flags from here on are lost.
    #[strum(message = "Remove the comment, or move it before the command.")]
    FlagAsCommand,
    /// The backslash at the end of a line is followed by a blank, so the command ends there: the flags behind it are lost.
    #[strum(message = "Remove the blank.")]
    BlankBehindBackslash,
}

/// What a reason means for the dying checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Effect {
    /// The job stops at its start.
    WontStart,
    /// It trains, and no dump is saved.
    NeverSaves,
    /// Whether it can save isn't known.
    Unsure,
    /// It saves, with a restriction.
    Restricted,
    /// A fault of the start script.
    Script,
    Note,
}

impl TrainerReason {
    /// Every reason, in the order of the documentation.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// What it means for the dying checkpoint.
    pub const fn effect(self) -> Effect {
        use TrainerReason as R;
        match self {
            R::LoraStopsJob | R::FlagExcludesDump | R::LauncherStopsJob => Effect::WontStart,
            R::NoReplica
            | R::PostTraining
            | R::NoSaveFolder
            | R::HighAvailabilityOff
            | R::NoHighAvailability
            | R::FullySharded
            | R::TftOff
            | R::GraphModeOff
            | R::SinkSizeNotOne => Effect::NeverSaves,
            R::UnknownArguments
            | R::UnknownValue
            | R::FrameworkUnclear
            | R::FrameworkUnconfirmed
            | R::OptimizerUnconfirmed
            | R::ParallelSizeUnknown
            | R::ConfigMissing
            | R::ScriptMissing
            | R::ScriptUnread
            | R::OwnApiUnseen
            | R::CommandsDiffer
            | R::NoTrainer => Effect::Unsure,
            R::WeightsOnly | R::SaveTooSlow => Effect::Restricted,
            R::ReplicasOnOneNode
            | R::SizeUnknown
            | R::MtpKnownBad
            | R::AcpBeside
            | R::ResumeNeedsHighAvailability
            | R::AssumedUnset
            | R::LogFolderShared => Effect::Note,
            R::ExitStatusLost
            | R::BlanksAroundEquals
            | R::TftWithoutComma
            | R::PreloadOverwritten
            | R::ManagerStartedTwice
            | R::FlagAsCommand
            | R::BlankBehindBackslash => Effect::Script,
        }
    }
}

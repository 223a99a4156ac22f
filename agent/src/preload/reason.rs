//! Reasons of the verdicts on preloads.

use serde::Serialize;

use super::verdict::Outcome;

/// Why a container's preload is live, isn't, or is unknown.
///
/// The documentation of a variant is its meaning, the `message` says what to do.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    strum::EnumMessage,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum PreloadReason {
    /// The training processes have the libraries in LD_PRELOAD and in memory.
    #[strum(message = "Nothing to do.")]
    PreloadLive,

    /// No process of the container has the libraries in LD_PRELOAD.
    #[strum(
        message = "Check that the Pod's env contains LD_PRELOAD, and what the image's entrypoint does with it."
    )]
    NotInEnvironment,
    /// The container was started with LD_PRELOAD, and its start script removed it.
    #[strum(message = "Remove `unset LD_PRELOAD`, `env -i` or `su -` from the start script.")]
    ClearedByEntrypoint,
    /// LD_PRELOAD lists only other libraries.
    #[strum(message = "Write `export LD_PRELOAD=yours:$LD_PRELOAD` in the start script.")]
    Overwritten,
    /// LD_PRELOAD lists a file that isn't in the image.
    #[strum(
        message = "Install the TaskD wheel and CANN in the image, or set the path by the annotations swansong.dev/libtaskd and swansong.dev/libmspti."
    )]
    FileMissing,
    /// LD_PRELOAD lists a file that isn't a valid shared object.
    #[strum(message = "Reinstall the package of the file.")]
    NotALibrary,
    /// LD_PRELOAD lists a library for another processor.
    #[strum(message = "Use the image for this node's processor.")]
    WrongArchitecture,
    /// The start script has the library in memory, and the training process doesn't.
    #[strum(
        message = "Check with `ldd` and `LD_DEBUG=libs` whether the interpreter is statically linked, set-user-ID, or uses another C library."
    )]
    MappedInShellOnly,
    /// The library is valid and in LD_PRELOAD, and the loader skipped it.
    #[strum(message = "Run the program with LD_DEBUG=libs to see why the loader skips the library.")]
    NotMapped,

    /// The agent has no permission to inspect the processes.
    #[strum(
        message = "Run the agent as root with SYS_PTRACE and DAC_READ_SEARCH, as the overlay agent-preload-check does."
    )]
    NoPermission,
    /// No process is older than the grace period.
    #[strum(message = "Nothing to do.")]
    TooYoung,
    /// The container has no process on this node.
    #[strum(message = "Nothing to do.")]
    NoProcess,
    /// The container's status has no id yet.
    #[strum(message = "Nothing to do.")]
    NotStarted,
    /// Only shells and other helpers run, no training process.
    #[strum(message = "Nothing to do.")]
    NoTrainingProcess,
    /// The processes have overwritten their environment, as setproctitle does.
    #[strum(message = "Check the training log for TaskD's messages about libtaskd.so.")]
    EnvironmentHidden,
}

impl PreloadReason {
    /// Whether a verdict with `outcome` can have this reason.
    pub const fn is_reason_of(self, outcome: Outcome) -> bool {
        let is_live = matches!(self, Self::PreloadLive);
        let is_unknown = matches!(
            self,
            Self::NoPermission
                | Self::TooYoung
                | Self::NoProcess
                | Self::NotStarted
                | Self::NoTrainingProcess
                | Self::EnvironmentHidden
        );
        match outcome {
            Outcome::Live => is_live,
            Outcome::PartlyLive | Outcome::NotLive => !is_live && !is_unknown,
            Outcome::Unknown => is_unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;
    use swansong_api::documented::Documented as _;

    use super::*;

    #[test]
    fn every_reason_has_a_meaning_and_a_remedy() {
        for reason in PreloadReason::VARIANTS {
            for sentence in [reason.meaning(), reason.remedy()] {
                assert!(sentence.ends_with('.') && !sentence.contains(". "), "{reason:?}: {sentence}");
            }
        }
    }
}

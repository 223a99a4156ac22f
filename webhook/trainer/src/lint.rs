//! Findings in start scripts.

use crate::finding::Finding;
use crate::reason::TrainerReason;

/// A fault of a script, found while it is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lint {
    ExitStatusLost,
    BlanksAroundEquals,
    BlankBehindEquals,
    TftWithoutComma,
    PreloadOverwritten,
    ManagerStartedTwice,
    LogFolderShared,
    FlagAsCommand,
    BlankBehindBackslash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptFinding {
    pub(crate) lint: Lint,
    pub(crate) file: String,
    pub(crate) line: usize,
    /// The name or text that is wrong.
    pub(crate) detail: String,
}

impl ScriptFinding {
    pub(crate) fn into_finding(self) -> Finding {
        let detail = self.detail;
        let (reason, message) = match self.lint {
            Lint::ExitStatusLost => (
                TrainerReason::ExitStatusLost,
                "the exit status of the training is lost in the pipe to tee, so a failed job counts as succeeded: write `set -o \
                 pipefail` before it, or exit with ${PIPESTATUS[0]}"
                    .to_owned(),
            ),
            Lint::BlanksAroundEquals => (
                TrainerReason::BlanksAroundEquals,
                format!("{detail} isn't set: remove the blanks around `=`"),
            ),
            Lint::BlankBehindEquals => {
                let appended =
                    if detail == "LD_PRELOAD" { ", and append `:$LD_PRELOAD` to the value" } else { "" };
                (
                    TrainerReason::BlanksAroundEquals,
                    format!("{detail} is set to nothing: remove the blank behind `=`{appended}"),
                )
            }
            Lint::TftWithoutComma => (TrainerReason::TftWithoutComma, tft_message(&detail)),
            Lint::PreloadOverwritten => (
                TrainerReason::PreloadOverwritten,
                "LD_PRELOAD loses the libraries that Swansong adds: append `:$LD_PRELOAD` to the new value".to_owned(),
            ),
            Lint::ManagerStartedTwice => (
                TrainerReason::ManagerStartedTwice,
                "the TaskD Manager is started a second time: its port is taken then".to_owned(),
            ),
            Lint::LogFolderShared => (
                TrainerReason::LogFolderShared,
                format!(
                    "TTP_LOG_PATH is {detail} in all Pods: on shared storage their logs overwrite each other; write \
                     {detail}/$HOSTNAME"
                ),
            ),
            Lint::BlankBehindBackslash => (
                TrainerReason::BlankBehindBackslash,
                format!(
                    "line {} ends in a backslash followed by a blank, so the command ends there and the flags behind it are lost: remove \
                     the blank",
                    self.line
                ),
            ),
            Lint::FlagAsCommand => (
                TrainerReason::FlagAsCommand,
                format!(
                    "{detail} is read as a command, so the flags from here on are lost: remove the comment or \
                     blank line before it, or end the line above with a backslash"
                ),
            ),
        };
        Finding { reason, message, file: self.file, line: self.line }
    }
}

pub(crate) fn tft_message(value: &str) -> String {
    let shown: String = value.chars().take(60).collect();
    format!("MS_ENABLE_TFT is {shown:?}: write the items with commas between them, as {{TTP:1,UCE:1}}")
}

/// The items of `MS_ENABLE_TFT`, as `TTP:1`; `None` if they aren't separated by commas.
///
/// MindSpore searches the text for `TTP:1`, and splits it at commas for other items.
pub(crate) fn tft_items(value: &str) -> Option<Vec<&str>> {
    let inner = value.trim().trim_matches('\'').trim_start_matches('{').trim_end_matches('}');
    let items: Vec<&str> = inner.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    items
        .iter()
        .all(|item| item.matches(':').count() == 1 && !item.contains(char::is_whitespace))
        .then_some(items)
}

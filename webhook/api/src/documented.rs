//! Names, meanings and remedies of reasons and checks, which conditions, warnings, reports and docs/reasons.md share.

use strum::EnumMessage;

/// An enum whose variants a user reads: each has its doc comment as meaning, and `#[strum(message = "…")]` as remedy.
///
/// Every such enum implements it.
pub trait Documented: EnumMessage + Into<&'static str> + Copy {
    /// The name in output, conditions and metric labels.
    fn as_str(self) -> &'static str {
        self.into()
    }

    /// What the variant means, in one or two sentences.
    fn meaning(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// What to do about it, in one or two sentences.
    fn remedy(self) -> &'static str {
        self.get_message().unwrap_or_default()
    }
}

impl<E: EnumMessage + Into<&'static str> + Copy> Documented for E {}

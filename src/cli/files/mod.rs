//! Input and output of the offline commands.

mod input;
mod output;
mod patch;

pub(crate) use self::input::{Files, Input, read_text};
pub(crate) use self::output::{Format, print, render};
pub(crate) use self::patch::{ObjectFault, patch_all};

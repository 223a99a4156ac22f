//! Input and output of the offline commands.

mod input;
mod output;
mod patch;
mod unsupported;

pub(crate) use self::input::{Files, Input, is_shell_script, read_text};
pub(crate) use self::output::{Format, Messages, print, print_patched, printable};
pub(crate) use self::patch::{ObjectFault, patch_all};
pub(crate) use self::unsupported::warn_of_unsupported_kind;

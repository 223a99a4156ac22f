//! Input and output of the offline commands.

mod input;
mod messages;
mod output;
mod patch;
mod unsupported;

pub(crate) use self::input::{Files, Input, is_shell_script, read_text};
pub(crate) use self::messages::printable;
pub(crate) use self::output::{Format, print};
pub(crate) use self::patch::{ObjectFault, print_changed};
pub(crate) use self::unsupported::warn_of_unsupported_kind;

//! The host as files and processes: paths below the host root, ELF files, control groups.

pub mod cgroup;
mod elf;
mod environ;
mod root;

pub use self::elf::Machine;
pub(crate) use self::elf::{ElfError, dependencies, file_kind, shared_object};
pub(crate) use self::environ::variable;
pub use self::root::{Entry, HostRoot, PathError, PathResult};

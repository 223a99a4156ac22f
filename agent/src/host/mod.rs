//! The host as files and processes: paths below the host root, ELF files, control groups.

pub mod cgroup;
mod container;
mod elf;
mod environ;
mod image;
mod ld_so_preload;
mod root;

pub use self::container::running_container;
pub use self::elf::Machine;
pub(crate) use self::elf::{ElfError, dependencies, file_kind, shared_object};
pub(crate) use self::environ::variable;
pub(crate) use self::ld_so_preload::{LD_SO_PRELOAD, LdSoPreloadError, ld_so_preload};
pub use self::root::{Entry, HostRoot, PathError, PathResult};

//! What a training image lacks for a dying checkpoint.
//!
//! [`check`] asks an [`ImageFiles`] for a few files: [`Archive`] is one of an image's tar file, and the node agent has
//! one of a root folder. Nothing is unpacked, and what is kept of an image is bounded.

mod archive;
mod checks;
mod files;
mod go_build;
mod search;

pub use self::archive::{Archive, ArchiveError};
pub use self::checks::{Finding, ImageCheck, Release, Report, Status, check};
pub use self::files::{Elf, FileError, FileFacts, ImageFiles, Version};
pub use self::go_build::GoBuild;
pub use self::search::{Found, Search};

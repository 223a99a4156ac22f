//! Is a file a shared object that a process of this machine can load?
//!
//! A library that was copied half, replaced by a folder, or taken from the image of the other processor is there,
//! and still every process starts without it: ld.so only warns.

use std::io::Read as _;

use object::elf::{
    EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_RISCV, EM_X86_64, ET_DYN, FileHeader64, PT_LOAD,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, FileKind, ReadCache};

use crate::root::{Entry, LookError};

/// A processor, as ELF files name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Machine(u16);

impl Machine {
    /// x86-64.
    pub const X86_64: Self = Self(EM_X86_64);
    /// 64-bit ARM.
    pub const AARCH64: Self = Self(EM_AARCH64);

    /// The processor that this program runs on: the node's, since a pod has no other.
    pub const HERE: Self = if cfg!(target_arch = "x86_64") {
        Self::X86_64
    } else if cfg!(target_arch = "aarch64") {
        Self::AARCH64
    } else {
        panic!("Ascend hosts have x86-64 or 64-bit ARM processors; add the ELF number of this one")
    };

    /// The name that `uname -m` has for it.
    pub fn name(self) -> String {
        match self.0 {
            EM_X86_64 => "x86_64".to_owned(),
            EM_AARCH64 => "aarch64".to_owned(),
            EM_386 => "i386".to_owned(),
            EM_ARM => "arm".to_owned(),
            EM_RISCV => "riscv".to_owned(),
            EM_LOONGARCH => "loongarch".to_owned(),
            other => format!("ELF machine {other}"),
        }
    }
}

/// Why a file can't be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElfFault {
    /// A folder, device or pipe.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// Something else.
    #[error("it isn't an ELF file")]
    NotElf,
    /// 32 bits.
    #[error("it is a 32-bit ELF file")]
    WrongClass,
    /// Built for another processor.
    #[error("it is for {}", .0.name())]
    WrongMachine(Machine),
    /// A program, an object file or a core.
    #[error("it is an ELF file but no shared object")]
    NotASharedObject,
    /// Copied half.
    #[error("it ends before its contents do, as after an interrupted copy")]
    Truncated,
    /// The agent couldn't read it.
    #[error(transparent)]
    Look(#[from] LookError),
}

/// Finds out whether `entry` is a shared object for `machine`. Reads headers only.
pub(crate) fn shared_object(entry: &Entry, machine: Machine) -> Result<(), ElfFault> {
    let metadata = entry.metadata();
    if let Some(kind) = other_kind(metadata.file_type()) {
        return Err(ElfFault::NotAFile(kind));
    }
    if metadata.len() == 0 {
        return Err(ElfFault::Empty);
    }
    let mut file = entry.open()?;
    // The parser takes a file that can't be read for a short one, so that is found out first.
    let mut first = [0];
    file.read_exact(&mut first).map_err(LookError::from)?;
    let file = ReadCache::new(file);
    match FileKind::parse(&file) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => return Err(ElfFault::WrongClass),
        _ => return Err(ElfFault::NotElf),
    }
    let header = FileHeader64::<Endianness>::parse(&file).map_err(|_| ElfFault::Truncated)?;
    let endian = header.endian().map_err(|_| ElfFault::NotElf)?;
    let built_for = Machine(header.e_machine(endian));
    if built_for != machine {
        return Err(ElfFault::WrongMachine(built_for));
    }
    if header.e_type(endian) != ET_DYN {
        return Err(ElfFault::NotASharedObject);
    }
    let segments = header.program_headers(endian, &file).map_err(|_| ElfFault::Truncated)?;
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD) {
        let (start, length): (u64, u64) = (segment.p_offset(endian), segment.p_filesz(endian));
        if start.checked_add(length).is_none_or(|end| end > metadata.len()) {
            return Err(ElfFault::Truncated);
        }
    }
    Ok(())
}

/// What stands where a regular file belongs, or `None` if it is one.
pub(crate) fn other_kind(kind: std::fs::FileType) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt as _;
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_symlink() {
        Some("a link")
    } else if kind.is_char_device() || kind.is_block_device() {
        Some("a device")
    } else {
        Some("a pipe or socket")
    }
}

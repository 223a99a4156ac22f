//! Whether a process of this machine can load a file as a shared object.
//!
//! ld.so only warns about a preloaded library that is truncated, replaced by a folder, or built for another processor;
//! the process starts without it.

use std::io::Read as _;

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_RISCV, EM_X86_64, ET_DYN,
    FileHeader64, PT_LOAD,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, FileKind, ReadCache};

use super::root::{Entry, PathError};

/// A processor architecture by its ELF number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Machine(u16);

impl Machine {
    /// The architecture x86-64.
    pub const X86_64: Self = Self(EM_X86_64);
    /// The 64-bit ARM architecture.
    pub const AARCH64: Self = Self(EM_AARCH64);

    /// The architecture of this program, which is also the node's.
    pub const HOST: Self = if cfg!(target_arch = "x86_64") {
        Self::X86_64
    } else if cfg!(target_arch = "aarch64") {
        Self::AARCH64
    } else {
        panic!("Ascend hosts have x86-64 or 64-bit ARM processors; add this one's ELF number")
    };

    /// The name as `uname -m` prints it.
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
pub(crate) enum ElfError {
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    #[error("it is empty")]
    Empty,
    #[error("it isn't an ELF file")]
    NotElf,
    #[error("it is a 32-bit ELF file")]
    WrongClass,
    #[error("it is for {}", .0.name())]
    WrongMachine(Machine),
    #[error("it is an ELF file but no shared object")]
    NotASharedObject,
    #[error("it is truncated, as after an interrupted copy")]
    Truncated,
    #[error(transparent)]
    Path(#[from] PathError),
}

/// Checks that `entry` is a shared object for `machine`. Reads headers only.
pub(crate) fn shared_object(entry: &Entry, machine: Machine) -> Result<(), ElfError> {
    let metadata = entry.metadata();
    if let Some(kind) = file_kind(metadata.file_type()) {
        return Err(ElfError::NotAFile(kind));
    }
    if metadata.len() == 0 {
        return Err(ElfError::Empty);
    }
    let mut file = entry.open()?;
    // The parser reports an unreadable file as a truncated one, so read errors are detected first.
    file.read_exact(&mut [0]).map_err(PathError::from)?;
    let file = ReadCache::new(file);
    match FileKind::parse(&file) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => return Err(ElfError::WrongClass),
        _ => return Err(ElfError::NotElf),
    }
    let header = FileHeader64::<Endianness>::parse(&file).map_err(|_| ElfError::Truncated)?;
    let endian = header.endian().map_err(|_| ElfError::NotElf)?;
    let built_for = Machine(header.e_machine(endian));
    if built_for != machine {
        return Err(ElfError::WrongMachine(built_for));
    }
    if header.e_type(endian) != ET_DYN {
        return Err(ElfError::NotASharedObject);
    }
    let segments = header.program_headers(endian, &file).map_err(|_| ElfError::Truncated)?;
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD) {
        let (start, length): (u64, u64) = (segment.p_offset(endian), segment.p_filesz(endian));
        if start.checked_add(length).is_none_or(|end| end > metadata.len()) {
            return Err(ElfError::Truncated);
        }
    }
    Ok(())
}

/// What a shared object needs at load time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dependencies {
    /// The names of the libraries (`DT_NEEDED`).
    pub(crate) libraries: Vec<String>,
    /// The folders of `DT_RUNPATH` and `DT_RPATH`, which may start with `$ORIGIN`.
    pub(crate) folders: Vec<String>,
}

/// Reads what a shared object needs. `None` if its dynamic section can't be read.
pub(crate) fn dependencies(entry: &Entry) -> Option<Dependencies> {
    let file = ReadCache::new(entry.open().ok()?);
    let header = FileHeader64::<Endianness>::parse(&file).ok()?;
    let endian = header.endian().ok()?;
    let table = header.sections(endian, &file).ok()?.dynamic_table(endian, &file).ok()?;
    let mut found = Dependencies::default();
    for dynamic in &table {
        let text = || Some(String::from_utf8_lossy(table.string(dynamic).ok()?).into_owned());
        match dynamic.tag {
            DT_NEEDED => found.libraries.extend(text()),
            DT_RUNPATH | DT_RPATH => {
                let path = text().unwrap_or_default();
                found.folders.extend(path.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned));
            }
            _ => {}
        }
    }
    Some(found)
}

/// Names a file type in an error message; `None` for a regular file.
pub(crate) fn file_kind(kind: std::fs::FileType) -> Option<&'static str> {
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

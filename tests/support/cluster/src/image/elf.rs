//! What an ELF file says about itself: for which machine it is and which libraries it needs.

use object::elf::{
    self, DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_STRTAB, FileHeader64, PT_DYNAMIC, PT_INTERP,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{LittleEndian, StringTable};

use super::oci::Architecture;

/// Why a file is no program that can go into an image.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It isn't a 64-bit little-endian ELF file.
    #[error("not a 64-bit ELF program: {0}")]
    Format(#[from] object::Error),
    /// It is for a machine that images aren't made for.
    #[error("a program for the ELF machine {0}; only x86-64 and AArch64 are supported")]
    Machine(u16),
    /// A name in it is broken.
    #[error("it names libraries in a broken way")]
    Names,
}

/// What an ELF file says about itself.
#[derive(Debug)]
pub(crate) struct Elf {
    pub(crate) architecture: Architecture,
    /// The dynamic loader. None in static programs and most libraries.
    pub(crate) loader: Option<String>,
    pub(crate) needed: Vec<String>,
    /// Folders to search first, `$ORIGIN` not yet replaced.
    pub(crate) run_path: Vec<String>,
}

pub(crate) fn parse(contents: &[u8]) -> Result<Elf, ElfError> {
    let header = FileHeader64::<LittleEndian>::parse(contents)?;
    let endian = header.endian()?;
    let architecture = match header.e_machine(endian) {
        elf::EM_X86_64 => Architecture::Amd64,
        elf::EM_AARCH64 => Architecture::Arm64,
        other => return Err(ElfError::Machine(other)),
    };
    let segments = header.program_headers(endian, contents)?;
    let mut loader = None;
    let mut dynamic: &[elf::Dyn64<LittleEndian>] = &[];
    for segment in segments {
        match segment.p_type(endian) {
            PT_INTERP => {
                let bytes = segment.interpreter(endian, contents)?.ok_or(ElfError::Names)?;
                loader = Some(text(bytes)?);
            }
            PT_DYNAMIC => dynamic = segment.dynamic(endian, contents)?.unwrap_or_default(),
            _ => {}
        }
    }
    let mut elf = Elf { architecture, loader, needed: Vec::new(), run_path: Vec::new() };
    let entries = || dynamic.iter().take_while(|entry| entry.tag(endian) != DT_NULL);
    let Some(names) = entries().find(|entry| entry.tag(endian) == DT_STRTAB) else { return Ok(elf) };
    // The table's address is one in memory; the segment that is loaded there has it in the file.
    let address = names.val(endian);
    let offset = segments.iter().find_map(|segment| {
        let start = segment.p_vaddr(endian);
        let is_there = segment.p_type(endian) == elf::PT_LOAD
            && (start..start + segment.p_filesz(endian)).contains(&address);
        is_there.then(|| segment.p_offset(endian) + (address - start))
    });
    let names = StringTable::new(contents, offset.ok_or(ElfError::Names)?, contents.len() as u64);
    for entry in entries() {
        let name = || {
            let offset = u32::try_from(entry.val(endian)).map_err(|_| ElfError::Names)?;
            text(names.get(offset).map_err(|()| ElfError::Names)?)
        };
        match entry.tag(endian) {
            DT_NEEDED => elf.needed.push(name()?),
            DT_RPATH | DT_RUNPATH => elf.run_path.extend(name()?.split(':').map(str::to_owned)),
            _ => {}
        }
    }
    Ok(elf)
}

fn text(bytes: &[u8]) -> Result<String, ElfError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ElfError::Names)
}

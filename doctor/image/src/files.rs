//! Access to the files of an image.

use std::fmt;
use std::io::{self, Read};

use serde::{Serialize, Serializer};

use crate::go_build::GoBuild;

/// Bytes kept of a text file; a package's `METADATA` and torch's `run.py` are shorter.
const MAX_TEXT: usize = 64 << 10;
/// Bytes that are searched at once.
const CHUNK: usize = 64 << 10;

/// The files of an image. Paths are absolute, and symbolic links are resolved in the image's root.
pub trait ImageFiles {
    /// The names in the folder at a path; none if there is no folder.
    fn list(&self, path: &str) -> Result<Vec<String>, FileError>;
    /// Those names that are folders, not links to folders.
    fn folders(&self, path: &str) -> Result<Vec<String>, FileError>;
    /// The facts of the regular file at a path; `None` if there is none.
    fn file(&self, path: &str) -> Result<Option<FileFacts>, FileError>;
    /// Whether the path itself is a symbolic link.
    fn is_link(&self, path: &str) -> Result<bool, FileError>;
}

/// A file or folder of an image can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} in the image can't be read: {problem}")]
pub struct FileError {
    pub path: String,
    pub problem: String,
}

/// What a check needs to know of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileFacts {
    pub is_executable: bool,
    /// The beginning of a file that isn't an ELF file.
    pub text: String,
    pub elf: Option<Elf>,
    /// The newest version of glibc that a library needs; only known of libtaskd.so.
    pub needs_glibc: Option<Version>,
    /// The version of a C library; only known of `libc.so.6`.
    pub glibc: Option<Version>,
    /// How a library was built; only known of libtaskd.so.
    pub go_build: GoBuild,
}

/// The header of an ELF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elf {
    /// The architecture by its ELF number.
    pub machine: u16,
    /// Whether it can be loaded as a library.
    pub is_shared_object: bool,
}

/// A version such as 2.31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FileFacts {
    /// Reads the facts of the file called `name` with the permissions `mode`.
    ///
    /// # Errors
    ///
    /// When the content can't be read.
    pub fn read(name: &str, mode: u32, mut content: impl Read) -> io::Result<Self> {
        let mut head = Vec::new();
        content.by_ref().take(MAX_TEXT as u64).read_to_end(&mut head)?;
        let mut facts = Self { is_executable: mode & 0o111 != 0, elf: elf(&head), ..Self::default() };
        if facts.elf.is_none() {
            facts.text = String::from_utf8_lossy(&head).into_owned();
            return Ok(facts);
        }
        let content = head.as_slice().chain(content);
        match name {
            "libtaskd.so" => read_parts(content, |part| {
                facts.needs_glibc = facts.needs_glibc.max(newest_version(part, b"GLIBC_"));
                facts.go_build.read(part);
            })?,
            "libc.so.6" => read_parts(content, |part| {
                facts.glibc = facts.glibc.max(newest_version(part, b"release version "));
            })?,
            _ => {}
        }
        Ok(facts)
    }
}

fn elf(head: &[u8]) -> Option<Elf> {
    /// Of a 64-bit file with the least significant byte first, as on all hosts of Ascend devices.
    const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
    const ET_DYN: u16 = 3;
    let head = head.first_chunk::<20>().filter(|head| head.starts_with(&MAGIC))?;
    let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    Some(Elf { machine: number(18), is_shared_object: number(16) == ET_DYN })
}

/// Calls `visit` with the parts of a content of any length. Parts overlap by more than what is searched for.
fn read_parts(mut content: impl Read, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
    const OVERLAP: usize = 128;
    let mut window = Vec::with_capacity(CHUNK + OVERLAP);
    loop {
        let kept = window.len().min(OVERLAP);
        window.drain(..window.len() - kept);
        if content.by_ref().take(CHUNK as u64).read_to_end(&mut window)? == 0 {
            return Ok(());
        }
        visit(&window);
    }
}

/// The newest version that follows `needle`.
fn newest_version(part: &[u8], needle: &[u8]) -> Option<Version> {
    let starts = part.windows(needle.len()).enumerate().filter(|(_, bytes)| *bytes == needle);
    starts.filter_map(|(start, _)| version(&part[start + needle.len()..])).max()
}

/// The version at the beginning of a text.
fn version(text: &[u8]) -> Option<Version> {
    let text = &text[..text.len().min(16)];
    let end = text.iter().position(|c| !c.is_ascii_digit() && *c != b'.').unwrap_or(text.len());
    let mut numbers = std::str::from_utf8(&text[..end]).ok()?.split('.').map(str::parse);
    Some(Version(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        (bytes[16], bytes[18]) = (3, 62);
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn newest_version_is_found_across_chunks() {
        for padding in [0, CHUNK - 70, CHUNK - 66, CHUNK - 60, 3 * CHUNK - 3] {
            let mut content = vec![b'x'; padding];
            content.extend_from_slice(b"GLIBC_2.17\0GLIBC_2.3.4\0GLIBC_PRIVATE\0GLIBC_2.9\0");
            let facts = FileFacts::read("libtaskd.so", 0o644, library(&content).as_slice()).expect("read");
            assert_eq!(facts.needs_glibc, Some(Version(2, 17)), "{padding}");
            assert_eq!(facts.elf, Some(Elf { machine: 62, is_shared_object: true }));
        }
    }

    #[test]
    fn release_of_the_c_library_is_read() {
        let content = library(b"GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n");
        let facts = FileFacts::read("libc.so.6", 0o755, content.as_slice()).expect("read");
        assert_eq!((facts.glibc, facts.needs_glibc), (Some(Version(2, 36)), None));
        assert!(facts.is_executable && facts.text.is_empty());
    }

    #[test]
    fn long_text_is_cut() {
        let facts = FileFacts::read("METADATA", 0o644, "x".repeat(MAX_TEXT * 2).as_bytes()).expect("read");
        assert_eq!(facts.text.len(), MAX_TEXT);
    }
}

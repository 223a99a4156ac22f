//! The members of a tar file, in their order.
//!
//! The crate `tar` holds names and extensions of any length in memory, which a hostile image could use; here they are
//! bounded.

use std::io::{self, Read};

use tar::{EntryType, Header, PaxExtensions};

const BLOCK: u64 = 512;
/// Bytes of a long name or of extended attributes.
const MAX_EXTENSION: u64 = 1 << 20;

/// The header of a member.
#[derive(Debug)]
pub(super) struct Member {
    /// As it is written, often without a leading slash.
    pub(super) path: String,
    pub(super) link: String,
    pub(super) kind: EntryType,
    pub(super) mode: u32,
    pub(super) size: u64,
    /// Of its content in the tar file.
    pub(super) offset: u64,
}

/// Reads members one by one.
pub(super) struct Members<R> {
    reader: R,
    skip: fn(&mut R, u64) -> io::Result<()>,
    position: u64,
    /// Bytes of the current member's content that weren't read yet.
    remaining: u64,
    padding: u64,
}

/// What a member's extensions say instead of its header.
#[derive(Default)]
struct Extension {
    path: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

impl<R: Read> Members<R> {
    /// Of a stream.
    pub(super) fn new(reader: R) -> Self {
        Self::with_skip(reader, |reader, length| {
            let skipped = io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
            if skipped < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
        })
    }

    /// Of a reader that has a faster way to skip content.
    pub(super) const fn with_skip(reader: R, skip: fn(&mut R, u64) -> io::Result<()>) -> Self {
        Self { reader, skip, position: 0, remaining: 0, padding: 0 }
    }

    /// The next member; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        let mut extension = Extension::default();
        while let Some(header) = self.header()? {
            self.begin(header.entry_size()?);
            match header.entry_type() {
                EntryType::GNULongName => extension.path = Some(until_nul(&self.extension()?)),
                EntryType::GNULongLink => extension.link = Some(until_nul(&self.extension()?)),
                EntryType::XHeader => extension.read(&self.extension()?),
                EntryType::XGlobalHeader => {}
                kind => {
                    if let Some(size) = extension.size {
                        self.begin(size);
                    }
                    let link = header.link_name_bytes().map(|link| text(&link)).unwrap_or_default();
                    return Ok(Some(Member {
                        path: extension.path.unwrap_or_else(|| text(&header.path_bytes())),
                        link: extension.link.unwrap_or(link),
                        kind,
                        mode: header.mode().unwrap_or_default(),
                        size: self.remaining,
                        offset: self.position,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// The content of the current member, as far as it wasn't read yet.
    pub(super) fn content(&mut self) -> impl Read + '_ {
        Content(self)
    }

    const fn begin(&mut self, size: u64) {
        self.remaining = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    /// The next header, behind the content before it.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let rest = self.remaining.saturating_add(self.padding);
        (self.skip)(&mut self.reader, rest)?;
        let mut header = Header::new_old();
        let length = read_block(&mut self.reader, header.as_mut_bytes())?;
        self.position += rest + BLOCK;
        self.begin(0);
        let bytes = header.as_bytes();
        // Two blocks of zeros are the end, which some programs leave out.
        if length == 0 || bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let (before, after) = (&bytes[..148], &bytes[156..]);
        let sum: u32 = before.iter().chain(after).map(|&byte| u32::from(byte)).sum::<u32>() + 8 * 32;
        if length < bytes.len() || header.cksum().ok() != Some(sum) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it isn't a tar file, or it is damaged"));
        }
        Ok(Some(header))
    }

    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.remaining > MAX_EXTENSION {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a name or an attribute is too long"));
        }
        let mut content = Vec::new();
        self.content().read_to_end(&mut content)?;
        Ok(content)
    }
}

struct Content<'m, R>(&'m mut Members<R>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.reader.by_ref().take(self.0.remaining).read(buffer)?;
        self.0.remaining -= length as u64;
        self.0.position += length as u64;
        Ok(length)
    }
}

impl Extension {
    fn read(&mut self, content: &[u8]) {
        for extension in PaxExtensions::new(content).flatten() {
            let value = || text(extension.value_bytes());
            match extension.key_bytes() {
                b"path" => self.path = Some(value()),
                b"linkpath" => self.link = Some(value()),
                b"size" => self.size = value().parse().ok(),
                _ => {}
            }
        }
    }
}

/// Fills a block, or reads what there is before the end.
fn read_block(reader: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < block.len() {
        match reader.read(&mut block[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn until_nul(bytes: &[u8]) -> String {
    text(bytes.split(|&byte| byte == 0).next().unwrap_or_default())
}

//! What a library or program that is written in Go says of its build.
//!
//! MindCluster builds TaskD and ClusterD with `-trimpath` and `-X main.BuildVersion=VERSION_linux-ARCH`. So the version
//! isn't in Go's build information, as linker flags are left out of it, but among the strings; the release of Go is in
//! the build information (package `debug/buildinfo` of Go).

/// The mark before the build information.
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Where the text with the release of Go begins behind the mark, if the flags have [`INLINE`].
const TEXT: usize = 32;
const FLAGS: usize = 15;
/// Since Go 1.18 the texts follow the mark, instead of pointers to them.
const INLINE: u8 = 2;
const SEPARATOR: &[u8] = b"_linux-";
const ARCHITECTURES: [&[u8]; 2] = [b"x86_64", b"aarch64"];
/// More than any version has.
const MAX_VERSION: usize = 48;

/// The build of a library or program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoBuild {
    /// The release of Go, such as `go1.21.13`.
    pub go: Option<String>,
    /// The version of MindCluster, such as `v26.0.0`.
    pub version: Option<String>,
}

impl GoBuild {
    /// Adds what a part of the file shows.
    pub(crate) fn read(&mut self, part: &[u8]) {
        if self.go.is_none() {
            self.go = places(part, MAGIC).find_map(|at| go_release(&part[at..]));
        }
        if self.version.is_none() {
            self.version = places(part, SEPARATOR).find_map(|at| version(part, at));
        }
    }
}

fn places<'p>(part: &'p [u8], needle: &'p [u8]) -> impl Iterator<Item = usize> + 'p {
    let first = needle.first().copied();
    let starts = part.iter().enumerate().filter(move |(_, byte)| Some(**byte) == first);
    starts.map(|(at, _)| at).filter(move |at| part[*at..].starts_with(needle))
}

fn go_release(info: &[u8]) -> Option<String> {
    let length = usize::from(*info.get(TEXT)?);
    let is_inline = info.get(FLAGS)? & INLINE != 0;
    // A longer text has a length of two bytes, and isn't the name of a release.
    let text = info.get(TEXT + 1..TEXT + 1 + length).filter(|_| is_inline && length < 0x80)?;
    let text = std::str::from_utf8(text).ok()?;
    text.starts_with("go").then(|| text.to_owned())
}

/// The version before the separator at `at`.
fn version(part: &[u8], at: usize) -> Option<String> {
    let behind = &part[at + SEPARATOR.len()..];
    if !ARCHITECTURES.iter().any(|name| behind.starts_with(name)) {
        return None;
    }
    let before = &part[at.saturating_sub(MAX_VERSION)..at];
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
    let start = before.iter().rposition(|byte| !is_part(byte)).map_or(0, |end| end + 1);
    let text = std::str::from_utf8(&before[start..]).ok()?;
    let number = text.strip_prefix('v')?;
    number.starts_with(|c: char| c.is_ascii_digit()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that Go 1.26 writes for MindCluster's flags.
    const STRINGS: &[u8] = b"frame too large\0\0\0\0v26.0.0.beta.1_linux-x86_64\0\0\0";
    const INFO: &[u8] =
        b"\xff Go buildinf:\x08\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08go1.26.8\xe9\x050w\xaf\x0c\x92t";

    #[test]
    fn release_and_version_are_read() {
        let mut build = GoBuild::default();
        build.read(STRINGS);
        build.read(INFO);
        assert_eq!(build.version.as_deref(), Some("v26.0.0.beta.1"));
        assert_eq!(build.go.as_deref(), Some("go1.26.8"));
    }

    #[test]
    fn other_bytes_are_unknown() {
        for bytes in [
            &b"_linux-x86_64"[..],
            b"x_linux-x86_64",
            b"vx_linux-x86_64",
            b"v1_linux-mips",
            b"v26.0.0_linux-",
            // Go before 1.18 has pointers there.
            b"\xff Go buildinf:\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08go1.17.3",
            &INFO[..20],
            &INFO[..36],
        ] {
            let mut build = GoBuild::default();
            build.read(bytes);
            assert_eq!(build, GoBuild::default(), "{bytes:?}");
        }
    }
}

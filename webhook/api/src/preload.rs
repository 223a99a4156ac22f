//! The entries of `LD_PRELOAD`.

/// Where CANN installs libmspti.so, as MindCluster's documentation has it.
pub const LIBMSPTI: &str = "/usr/local/Ascend/cann/lib64/libmspti.so";

/// Where the TaskD wheel installs libtaskd.so in the documented PyTorch image (Python 3.10).
pub const LIBTASKD: &str = "/usr/local/lib/python3.10/dist-packages/taskd/python/cython_api/libs/libtaskd.so";

/// File names of the two libraries of the dying checkpoint.
pub const FILE_NAMES: [&str; 2] = ["libmspti.so", "libtaskd.so"];

/// The paths in a value of `LD_PRELOAD`, empty ones left out.
///
/// Colons and white space separate entries and can't be escaped (ld.so(8)).
pub fn entries(value: &str) -> impl Iterator<Item = &str> {
    value.split(|c: char| c == ':' || c.is_ascii_whitespace()).filter(|entry| !entry.is_empty())
}

/// The part of a path after its last slash.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

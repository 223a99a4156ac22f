//! The entries of `LD_PRELOAD`.

/// Where CANN installs libmspti.so, as MindCluster's documentation has it.
pub const LIBMSPTI: &str = "/usr/local/Ascend/cann/lib64/libmspti.so";

/// Where the TaskD wheel installs libtaskd.so in the documented PyTorch image (Python 3.10).
pub const LIBTASKD: &str = "/usr/local/lib/python3.10/dist-packages/taskd/python/cython_api/libs/libtaskd.so";

/// libtaskd.so below the site directory that has the TaskD wheel.
pub const LIBTASKD_IN_SITE: &str = "taskd/python/cython_api/libs/libtaskd.so";

/// Where images have site directories: Debian's Python, one built from source, conda, pyenv and `pip install --user`. As
/// patterns of a shell, with at most one `*` in a name.
pub const SITE_PATTERNS: [&str; 17] = [
    "/usr/local/lib/python3*/dist-packages",
    "/usr/local/lib/python3*/site-packages",
    "/usr/lib/python3*/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/usr/local/lib64/python3*/site-packages",
    "/usr/lib64/python3*/site-packages",
    "/usr/local/*/lib/python3*/site-packages",
    "/opt/*/lib/python3*/site-packages",
    "/opt/*/envs/*/lib/python3*/site-packages",
    "/root/*/lib/python3*/site-packages",
    "/root/*/envs/*/lib/python3*/site-packages",
    "/home/*/*/lib/python3*/site-packages",
    "/home/*/*/envs/*/lib/python3*/site-packages",
    "/root/.pyenv/versions/*/lib/python3*/site-packages",
    "/home/*/.pyenv/versions/*/lib/python3*/site-packages",
    "/root/.local/lib/python3*/site-packages",
    "/home/*/.local/lib/python3*/site-packages",
];

/// Where CANN has libmspti.so in its releases, the documented place first.
pub const LIBMSPTI_PATHS: [&str; 6] = [
    LIBMSPTI,
    "/usr/local/Ascend/ascend-toolkit/latest/lib64/libmspti.so",
    "/usr/local/Ascend/cann-*/lib64/libmspti.so",
    "/root/Ascend/*/latest/lib64/libmspti.so",
    "/home/*/Ascend/*/latest/lib64/libmspti.so",
    "/opt/Ascend/*/lib64/libmspti.so",
];

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

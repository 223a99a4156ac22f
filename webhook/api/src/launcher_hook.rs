//! Where the launcher hook is in a training container.
//!
//! The hook is a Python module and a `.pth` file, which Python reads at its start. Both come from annotations of the Pod
//! ([`LAUNCHER_HOOK_MODULE`](crate::annotations::LAUNCHER_HOOK_MODULE),
//! [`LAUNCHER_HOOK_PTH`](crate::annotations::LAUNCHER_HOOK_PTH)) by a downward API volume, and are mounted one by one into
//! the directory in which TaskD is installed.

/// Name of the volume.
pub const VOLUME: &str = "swansong-launcher-hook";
/// File name of the module.
pub const MODULE_FILE: &str = "swansong_launcher_hook.py";
/// Name of the file that loads the module.
pub const PTH_FILE: &str = "swansong-launcher-hook.pth";

/// The directory in which Python finds the `taskd` package that has the library at `libtaskd`; `None` if the path doesn't
/// name one.
pub fn site_directory(libtaskd: &str) -> Option<&str> {
    libtaskd.rsplit_once("/taskd/").map(|(directory, _)| directory).filter(|directory| !directory.is_empty())
}

#[cfg(test)]
mod tests {
    use super::site_directory;
    use crate::preload::LIBTASKD;

    #[test]
    fn site_directory_is_the_part_before_the_package() {
        for (path, expected) in [
            (LIBTASKD, Some("/usr/local/lib/python3.10/dist-packages")),
            ("/opt/taskd/site-packages/taskd/python/libtaskd.so", Some("/opt/taskd/site-packages")),
            ("/usr/lib/libtaskd.so", None),
            ("/taskd/libtaskd.so", None),
        ] {
            assert_eq!(site_directory(path), expected, "{path}");
        }
    }
}

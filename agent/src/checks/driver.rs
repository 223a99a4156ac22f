//! The driver: its folder, whether it is loaded, its version.

use procfs::FromRead as _;

use super::path_finding;
use super::version::Version;
use crate::finding::{Finding, Reason};
use crate::host::{HostRoot, PathError};

/// The folder that MindCluster's manifests mount.
const USUAL: &str = "/usr/local/Ascend/driver";

/// The kernel's names of the driver's devices, physical and virtual
/// (`ascend-device-plugin/pkg/duplicatedetector/containerruntime/device_filter.go`).
const CDEVS: [&str; 2] = ["devdrv-cdev", "vdevdrv-cdev"];

const PROC_DEVICES: &str = "/proc/devices";

/// Text files of the driver have a few kilobytes.
const MAX_SIZE: u64 = 1 << 20;

/// The driver's folder: the configured one, else the one in `/etc/ascend_install.info`, else the usual one.
pub(super) fn path(root: &HostRoot, configured: Option<&str>) -> String {
    if let Some(path) = configured {
        return path.to_owned();
    }
    let info = root.read("/etc/ascend_install.info", MAX_SIZE).unwrap_or_default();
    let prefix = value(&String::from_utf8_lossy(&info), "Driver_Install_Path_Param")
        .map(|prefix| prefix.trim_end_matches('/').to_owned())
        .filter(|prefix| prefix.starts_with('/'));
    prefix.map_or_else(|| USUAL.to_owned(), |prefix| format!("{prefix}/driver"))
}

/// Checks that the driver is loaded, as MindCluster itself does.
pub fn loaded(root: &HostRoot) -> Finding {
    let majors = match majors(root) {
        Ok(majors) => majors,
        Err(finding) => return finding,
    };
    if majors.is_empty() {
        let message = format!(
            "{PROC_DEVICES} doesn't list {}; load the driver (`lsmod` and `dmesg` show why it isn't), or reinstall it for this kernel",
            CDEVS[0]
        );
        Finding::at(PROC_DEVICES, Reason::DriverNotLoaded, message)
    } else {
        Finding::at(PROC_DEVICES, Reason::DriverLoaded, format!("{PROC_DEVICES} lists {}", CDEVS[0]))
    }
}

/// The device majors that the driver has registered.
///
/// # Errors
///
/// With the finding that the list can't be read.
pub fn majors(root: &HostRoot) -> Result<Vec<u32>, Finding> {
    let content =
        root.read(PROC_DEVICES, MAX_SIZE).map_err(|error| not_mounted(root, PROC_DEVICES, &error))?;
    let devices = procfs::Devices::from_read(&content[..]).map_err(|_| malformed(PROC_DEVICES))?;
    let npus = devices.char_devices.into_iter().filter(|device| CDEVS.contains(&device.name.as_str()));
    Ok(npus.map(|device| device.major).collect())
}

/// The finding that a file of `/proc` can't be opened.
pub(super) fn not_mounted(root: &HostRoot, path: &str, error: &PathError) -> Finding {
    path_finding(root, path, error, Reason::HostPathNotMounted, "mount /proc of the host")
}

/// The finding that a file of `/proc` has other content than the kernel's.
pub(super) fn malformed(path: &str) -> Finding {
    Finding::at(path, Reason::Malformed, format!("{path} isn't a kernel's; mount /proc of the host"))
}

/// Checks the version in `version.info`.
pub(super) fn version(root: &HostRoot, driver: &str, minimum: Option<&Version>) -> Finding {
    let path = format!("{driver}/version.info");
    let content = match root.read(&path, MAX_SIZE) {
        Ok(content) => content,
        Err(PathError::OtherKind(_)) => {
            let message = format!("{path} isn't a file; reinstall the driver");
            return Finding::at(path, Reason::NotAFile, message);
        }
        Err(error) => {
            let advice = "install the driver, or set `driver.path` if it is elsewhere";
            return path_finding(root, &path, &error, Reason::FileMissing, advice);
        }
    };
    let content = String::from_utf8_lossy(&content);
    let Some(text) = value(&content, "Version").filter(|text| !text.is_empty()) else {
        let message = format!("{path} has no line `Version=`; reinstall the driver");
        return Finding::at(path, Reason::VersionMissing, message);
    };
    let Some(minimum) = minimum else {
        let message = format!("the driver is {text} (`driver.minimumVersion` isn't set)");
        return Finding::at(path, Reason::VersionSufficient, message);
    };
    match text.parse::<Version>() {
        Err(_) => {
            let message =
                format!("the driver's version {text:?} can't be compared with {minimum}; compare it by hand");
            Finding::at(path, Reason::VersionNotComparable, message)
        }
        Ok(version) if version < *minimum => {
            let message = format!("the driver is {version}, and {minimum} is required; upgrade it");
            Finding::at(path, Reason::VersionTooOld, message)
        }
        Ok(version) => Finding::at(
            path,
            Reason::VersionSufficient,
            format!("the driver is {version}, at least {minimum}"),
        ),
    }
}

/// The value of the first line `key=value`. `Innerversion` and `package_version` are other keys.
fn value<'a>(content: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = content.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

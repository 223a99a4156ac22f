//! The driver: where it is, whether it is loaded, which version it has.

use super::unseen;
use super::version::Version;
use crate::config::Config;
use crate::reason::Reason;
use crate::report::Finding;
use crate::root::{HostRoot, LookError};
use procfs::FromRead as _;

/// Where every manifest of MindCluster mounts the driver from.
const USUAL: &str = "/usr/local/Ascend/driver";

/// Names under which the kernel lists the driver's devices, physical and virtual
/// (`ascend-device-plugin/pkg/duplicatedetector/containerruntime/device_filter.go`).
const CDEVS: [&str; 2] = ["devdrv-cdev", "vdevdrv-cdev"];

const PROC_DEVICES: &str = "/proc/devices";

/// Text files of the driver are a few kilobytes.
const LARGEST: u64 = 1 << 20;

/// The driver's folder: the configured one, else the one `/etc/ascend_install.info` names, else the usual one.
pub(super) fn path(root: &HostRoot, config: &Config) -> String {
    if let Some(path) = &config.driver.path {
        return path.clone();
    }
    let info = root.read("/etc/ascend_install.info", LARGEST).unwrap_or_default();
    let prefix = value(&String::from_utf8_lossy(&info), "Driver_Install_Path_Param")
        .map(|prefix| prefix.trim_end_matches('/').to_owned())
        .filter(|prefix| prefix.starts_with('/'));
    prefix.map_or_else(|| USUAL.to_owned(), |prefix| format!("{prefix}/driver"))
}

/// Whether the driver is loaded: the cheapest proof that MindCluster itself relies on.
pub(crate) fn loaded(root: &HostRoot) -> Finding {
    let majors = match majors(root) {
        Ok(majors) => majors,
        Err(MajorsError::Look(error)) => {
            return unseen(root, PROC_DEVICES, &error, Reason::HostPathNotMounted, "mount /proc of the host");
        }
        Err(MajorsError::Content) => {
            let message = format!("{PROC_DEVICES} isn't what a kernel writes; mount /proc of the host");
            return Finding::at(PROC_DEVICES, Reason::NotUnderstood, message);
        }
    };
    if majors.is_empty() {
        let message = format!(
            "no line of {PROC_DEVICES} names {}; load the driver (`lsmod`, `dmesg` tell why it isn't), or reinstall it for this kernel",
            CDEVS[0]
        );
        Finding::at(PROC_DEVICES, Reason::DriverNotLoaded, message)
    } else {
        Finding::at(PROC_DEVICES, Reason::DriverLoaded, format!("{PROC_DEVICES} names {}", CDEVS[0]))
    }
}

/// Why the majors aren't known.
pub(crate) enum MajorsError {
    Look(LookError),
    Content,
}

/// The majors that the driver has registered.
pub(crate) fn majors(root: &HostRoot) -> Result<Vec<u32>, MajorsError> {
    let content = root.read(PROC_DEVICES, LARGEST).map_err(MajorsError::Look)?;
    let devices = procfs::Devices::from_read(&content[..]).map_err(|_| MajorsError::Content)?;
    let ours = devices.char_devices.into_iter().filter(|device| CDEVS.contains(&device.name.as_str()));
    Ok(ours.map(|device| device.major).collect())
}

/// The version in `version.info`, and whether it is new enough.
pub(super) fn version(root: &HostRoot, driver: &str, minimum: Option<&Version>) -> Finding {
    let path = format!("{driver}/version.info");
    let content = match root.read(&path, LARGEST) {
        Ok(content) => content,
        Err(LookError::OtherKind(_)) => {
            let message = format!("{path} isn't a file; reinstall the driver");
            return Finding::at(path, Reason::NotAFile, message);
        }
        Err(error) => {
            let advice = "install the driver, or set `driver.path` if it is elsewhere";
            return unseen(root, &path, &error, Reason::FileMissing, advice);
        }
    };
    let content = String::from_utf8_lossy(&content);
    let Some(text) = value(&content, "Version").filter(|text| !text.is_empty()) else {
        let message = format!("{path} has no line `Version=`; reinstall the driver");
        return Finding::at(path, Reason::VersionMissing, message);
    };
    let Some(minimum) = minimum else {
        let message = format!("the driver is {text} (`driver.minimumVersion` demands none)");
        return Finding::at(path, Reason::VersionSufficient, message);
    };
    match text.parse::<Version>() {
        Err(_) => {
            let message = format!(
                "the driver calls itself {text:?}, which can't be compared with {minimum}; look at it"
            );
            Finding::at(path, Reason::VersionNotComparable, message)
        }
        Ok(version) if version < *minimum => {
            let message = format!("the driver is {version}, at least {minimum} is demanded; upgrade it");
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

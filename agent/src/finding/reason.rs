//! Reasons of findings.

use serde::Serialize;

use super::Status;

/// Why a check passes, fails or couldn't find out. Each reason belongs to exactly one status.
///
/// The documentation of a variant is its meaning, the `message` says what to do.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    strum::EnumMessage,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum Reason {
    /// The file or device exists and is of the right kind.
    #[strum(message = "Nothing to do.")]
    Present,
    /// This product family doesn't have it.
    #[strum(message = "Nothing to do.")]
    NotOnThisProduct,
    /// The driver has registered its devices.
    #[strum(message = "Nothing to do.")]
    DriverLoaded,
    /// The driver's version is at least the required one.
    #[strum(message = "Nothing to do.")]
    VersionSufficient,
    /// The libraries are shared objects for this machine, and their dependencies exist.
    #[strum(message = "Nothing to do.")]
    LibrariesValid,
    /// The ports are free.
    #[strum(message = "Reserve the ports in net.ipv4.ip_local_reserved_ports.")]
    PortsFree,
    /// The ports are free, and the kernel gives them to no client by chance.
    #[strum(message = "Nothing to do.")]
    PortsReserved,
    /// Only Pods use the ports, which is their purpose.
    #[strum(message = "Nothing to do.")]
    PortsUsedByPods,
    /// ClusterD accepts connections.
    #[strum(message = "Nothing to do.")]
    ClusterdReachable,
    /// The clock shows a plausible time.
    #[strum(message = "Nothing to do.")]
    ClockPlausible,

    /// The device node is missing.
    #[strum(message = "Load the driver, or reinstall it if `npu-smi info` fails too.")]
    DeviceMissing,
    /// The path of a device node holds something else.
    #[strum(message = "Remove it and load the driver.")]
    NotADevice,
    /// The device node has a major number that no loaded driver owns.
    #[strum(message = "Reload the driver.")]
    DeviceNodeStale,
    /// There are fewer NPUs than expected.
    #[strum(message = "Check `npu-smi info` and `lspci` for a card that dropped off the bus.")]
    DevicesMissing,
    /// There are more NPUs than expected.
    #[strum(message = "Correct `npus` in the configuration.")]
    DevicesUnexpected,
    /// The driver isn't loaded.
    #[strum(message = "Load the driver, or reinstall it for this kernel.")]
    DriverNotLoaded,
    /// The file or folder is missing.
    #[strum(message = "Install it, or correct its path in the configuration.")]
    FileMissing,
    /// The path's symbolic links form a loop.
    #[strum(message = "Replace the links.")]
    LinkLoop,
    /// The path is a symbolic link where only a regular file is accepted.
    #[strum(message = "Replace the link by the file.")]
    LinkNotAccepted,
    /// The path holds something other than a file, often a folder that a container runtime created.
    #[strum(message = "Remove it and reinstall the file.")]
    NotAFile,
    /// The path holds something other than a folder.
    #[strum(message = "Remove it and reinstall the folder.")]
    NotAFolder,
    /// The file is empty.
    #[strum(message = "Reinstall the file.")]
    FileEmpty,
    /// The file isn't an ELF file.
    #[strum(message = "Reinstall the file.")]
    NotElf,
    /// The ELF file is truncated.
    #[strum(message = "Reinstall the file.")]
    ElfTruncated,
    /// The ELF file is for another word size.
    #[strum(message = "Install the 64-bit library.")]
    WrongClass,
    /// The ELF file isn't a shared object.
    #[strum(message = "Reinstall the file.")]
    NotASharedObject,
    /// The library is for another processor.
    #[strum(message = "Install the library for this node's processor.")]
    WrongMachine,
    /// The library needs another library that the loader wouldn't find.
    #[strum(message = "Reinstall the package of the missing library.")]
    DependencyMissing,
    /// MindCluster's components refuse the library: others than root can write it, a link to it or a folder above it.
    #[strum(message = "Restore owner and mode of the path in the message.")]
    NotTrusted,
    /// The program isn't executable.
    #[strum(message = "Reinstall the program.")]
    NotExecutable,
    /// A mounted folder was replaced on the host; the agent's container shows the deleted one.
    #[strum(message = "Restart the agent's Pod and the other Pods that mount the folder.")]
    MountStale,
    /// The version file contains no version.
    #[strum(message = "Reinstall the driver.")]
    VersionMissing,
    /// The version is older than required.
    #[strum(message = "Upgrade the driver.")]
    VersionTooOld,
    /// A program outside of Pods uses a port that hostNetwork jobs need.
    #[strum(message = "Move the program to another port.")]
    PortInUse,
    /// ClusterD's address refuses connections.
    #[strum(message = "Check that ClusterD runs, and NetworkPolicies and firewalls.")]
    ClusterdRefused,
    /// ClusterD's address didn't answer in time.
    #[strum(message = "Check that ClusterD runs, and NetworkPolicies and firewalls.")]
    ClusterdTimeout,
    /// The clock shows a time that ClusterD refuses.
    #[strum(message = "Set the clock and synchronise it by NTP.")]
    ClockBeforeClusterd,
    /// The clock shows a time before the driver's installation.
    #[strum(message = "Set the clock and synchronise it by NTP.")]
    ClockBeforeDriver,
    /// The clock differs from the cluster's.
    #[strum(message = "Set the clock and synchronise it by NTP.")]
    ClockSkewed,

    /// The product family is unknown, and only some families have this.
    #[strum(message = "Set `family` in the configuration.")]
    FamilyUnknown,
    /// This part of the host's file system isn't mounted below the host root.
    #[strum(message = "Mount it below --host-root.")]
    HostPathNotMounted,
    /// The agent has no permission to read it.
    #[strum(message = "Let the agent read it.")]
    NotReadable,
    /// The file's content is malformed.
    #[strum(message = "Check the file, or what is mounted there.")]
    Malformed,
    /// The version's spelling can't be compared.
    #[strum(message = "Compare the version by hand, or remove `driver.minimumVersion`.")]
    VersionNotComparable,
    /// A port is in use, and the agent has no permission to see by which process.
    #[strum(message = "Run `ss -anp` on the node.")]
    PortOwnerUnknown,
    /// This host's resolver doesn't know ClusterD's name.
    #[strum(message = "Set `clusterd.address` to an address that the host can reach.")]
    ClusterdNotResolved,
    /// The connection to ClusterD couldn't be attempted.
    #[strum(message = "Check the host's network.")]
    ClusterdDialFailed,
}

impl Reason {
    /// The status that the reason belongs to.
    pub const fn status(self) -> Status {
        match self {
            Self::Present
            | Self::NotOnThisProduct
            | Self::DriverLoaded
            | Self::VersionSufficient
            | Self::LibrariesValid
            | Self::PortsFree
            | Self::PortsReserved
            | Self::PortsUsedByPods
            | Self::ClusterdReachable
            | Self::ClockPlausible => Status::Pass,
            Self::FamilyUnknown
            | Self::HostPathNotMounted
            | Self::NotReadable
            | Self::Malformed
            | Self::VersionNotComparable
            | Self::PortOwnerUnknown
            | Self::ClusterdNotResolved
            | Self::ClusterdDialFailed => Status::Unknown,
            _ => Status::Fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;
    use swansong_api::documented::Documented as _;

    use super::*;

    #[test]
    fn every_reason_has_a_meaning_and_a_remedy() {
        for reason in Reason::VARIANTS {
            for sentence in [reason.meaning(), reason.remedy()] {
                assert!(sentence.ends_with('.') && !sentence.contains(". "), "{reason:?}: {sentence}");
            }
        }
    }
}

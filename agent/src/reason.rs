//! The one vocabulary of findings about a node.
//!
//! The same names appear in the report, the node's condition, events, logs and metric labels. A reason belongs to
//! exactly one status, so that no finding can say "pass" and mean something else.

use serde::{Serialize, Serializer};

use crate::report::Status;

macro_rules! reasons {
    ($($status:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ })+) => {
        /// Why a check passes, fails or can't tell.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($($(#[doc = $doc])+ $name,)+)+ }

        impl Reason {
            /// Every reason, in the order of documentation.
            pub const ALL: &'static [Self] = &[$($(Self::$name,)+)+];

            /// The CamelCase name.
            pub const fn as_str(self) -> &'static str {
                match self { $($(Self::$name => stringify!($name),)+)+ }
            }

            /// One sentence of explanation.
            pub const fn description(self) -> &'static str {
                match self { $($(Self::$name => concat!($($doc,)+).trim_ascii(),)+)+ }
            }

            /// What a finding with this reason says.
            pub const fn status(self) -> Status {
                match self { $($(Self::$name => Status::$status,)+)+ }
            }
        }
    };
}

reasons! {
    Pass {
        /// It is there and of the right kind.
        Present,
        /// This product family has no such thing.
        NotOnThisProduct,
        /// The driver has registered its devices.
        DriverLoaded,
        /// The version is known and as new as demanded.
        VersionSufficient,
        /// The libraries are shared objects for this machine.
        LibrariesSound,
        /// Nobody holds the ports.
        PortsFree,
        /// Nobody holds the ports, and the kernel keeps them for those who ask by number.
        PortsReserved,
        /// Only pods hold the ports, which is what they are for.
        PortsHeldByPods,
        /// ClusterD accepts connections.
        ClusterdReachable,
        /// The clock shows a time that can be.
        ClockPlausible,
    }
    Fail {
        /// The device node is missing.
        DeviceMissing,
        /// Something else stands where a device node belongs.
        NotADevice,
        /// The device node has a major number that no loaded driver owns.
        DeviceNodeStale,
        /// There are fewer NPUs than expected.
        DevicesMissing,
        /// There are more NPUs than expected.
        DevicesUnexpected,
        /// The driver isn't loaded.
        DriverNotLoaded,
        /// The file or folder is missing.
        FileMissing,
        /// Its links go round in circles.
        LinkLoop,
        /// A link stands where only a file is accepted.
        LinkNotAccepted,
        /// Something else stands where a file belongs, often a folder that a container runtime made.
        NotAFile,
        /// Something else stands where a folder belongs.
        NotAFolder,
        /// The file is empty.
        FileEmpty,
        /// The file isn't an ELF file.
        NotElf,
        /// The ELF file ends before its contents do.
        ElfTruncated,
        /// The ELF file is for another word size.
        WrongClass,
        /// The ELF file isn't a shared object.
        NotASharedObject,
        /// The library is for another processor.
        WrongMachine,
        /// MindCluster's components would refuse the library: it, a link or a folder above it can be written by others than root.
        NotTrusted,
        /// The program can't be run.
        NotExecutable,
        /// What is mounted has been deleted on the host: the agent looks at a ghost.
        MountStale,
        /// The version file names no version.
        VersionMissing,
        /// The version is older than demanded.
        VersionTooOld,
        /// A program outside of pods holds a port that hostNetwork jobs need.
        PortTaken,
        /// ClusterD's address refuses connections.
        ClusterdRefused,
        /// ClusterD's address doesn't answer.
        ClusterdSilent,
        /// The clock shows a time that ClusterD refuses.
        ClockBeforeClusterd,
        /// The clock shows a time before the installation of the driver.
        ClockBehindDriver,
        /// The clock differs from that of the cluster.
        ClockSkewed,
    }
    Unknown {
        /// The product family couldn't be told, and only some families have this.
        FamilyUnknown,
        /// The part of the host's file system isn't mounted where the agent looks.
        HostPathNotMounted,
        /// The agent may not look at it.
        NotReadable,
        /// The file has contents that the agent can't understand.
        NotUnderstood,
        /// The version is spelled in a way that can't be compared.
        VersionNotComparable,
        /// Somebody holds a port, and the agent may not see who.
        PortOwnerUnknown,
        /// ClusterD's name isn't known to this host's resolver.
        ClusterdNotResolved,
        /// The connection couldn't be tried.
        ClusterdNotTried,
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

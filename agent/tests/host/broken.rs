//! A healthy A2 host broken in each way.

use std::path::Path;

use object::elf::{EM_386, ET_EXEC};
use swansong_agent::checks::Family;
use swansong_agent::finding::{CheckName, Reason, Status};

use swansong_fixtures::host::{DRIVER, Elf, Host, TABLE_HEAD, tcp};

type Break = fn(&Host);

/// Description, damage to a healthy A2 host, and the check, reason and path that report it.
const BROKEN: &[(&str, Break, CheckName, Reason, &str)] = {
    use CheckName::{
        DeviceHdc, DeviceManager, DeviceSvm, DriverLibs, DriverLoaded, DriverVersion, NpuDevices, NpuSmi,
        Ports,
    };
    const LIB: &str = "/usr/local/Ascend/driver/lib64";
    const HAL: &str = "/usr/local/Ascend/driver/lib64/driver/libascend_hal.so";
    const DCMI: &str = "/usr/local/Ascend/driver/lib64/driver/libdcmi.so";
    const INFO: &str = "/usr/local/Ascend/driver/version.info";
    const SMI: &str = "/usr/local/bin/npu-smi";
    const TCP: &str = "/proc/1/net/tcp";
    &[
        (
            "manager gone",
            |h| h.remove("/dev/davinci_manager"),
            DeviceManager,
            Reason::DeviceMissing,
            "/dev/davinci_manager",
        ),
        (
            "manager a folder",
            |h| h.folder("/dev/davinci_manager"),
            DeviceManager,
            Reason::NotADevice,
            "/dev/davinci_manager",
        ),
        (
            "manager a file",
            |h| h.file("/dev/davinci_manager", ""),
            DeviceManager,
            Reason::NotADevice,
            "/dev/davinci_manager",
        ),
        (
            "manager in a loop",
            |h| h.link("/dev/davinci_manager", "davinci_manager"),
            DeviceManager,
            Reason::LinkLoop,
            "/dev/davinci_manager",
        ),
        (
            "manager dangling",
            |h| h.link("/dev/davinci_manager", "/dev/gone"),
            DeviceManager,
            Reason::DeviceMissing,
            "/dev/davinci_manager",
        ),
        ("no /dev", |h| h.remove("/dev"), DeviceManager, Reason::HostPathNotMounted, "/dev/davinci_manager"),
        (
            "empty /dev",
            |h| h.folder("/dev"),
            DeviceManager,
            Reason::HostPathNotMounted,
            "/dev/davinci_manager",
        ),
        ("hdc gone", |h| h.remove("/dev/hisi_hdc"), DeviceHdc, Reason::DeviceMissing, "/dev/hisi_hdc"),
        ("svm gone", |h| h.remove("/dev/devmm_svm"), DeviceSvm, Reason::DeviceMissing, "/dev/devmm_svm"),
        ("svm a folder", |h| h.folder("/dev/devmm_svm"), DeviceSvm, Reason::NotADevice, "/dev/devmm_svm"),
        ("one card gone", |h| h.remove("/dev/davinci3"), NpuDevices, Reason::DevicesMissing, "/dev/davinci*"),
        (
            "all cards gone",
            |h| (0..8).for_each(|n| h.remove(&format!("/dev/davinci{n}"))),
            NpuDevices,
            Reason::DevicesMissing,
            "/dev/davinci*",
        ),
        (
            "a card too many",
            |h| h.device("/dev/davinci8"),
            NpuDevices,
            Reason::DevicesUnexpected,
            "/dev/davinci*",
        ),
        ("a card a file", |h| h.file("/dev/davinci3", ""), NpuDevices, Reason::NotADevice, "/dev/davinci3"),
        ("no /dev for cards", |h| h.remove("/dev"), NpuDevices, Reason::HostPathNotMounted, "/dev"),
        (
            "nodes of an earlier load",
            |h| h.file("/proc/devices", "Character devices:\n236 devdrv-cdev\n"),
            NpuDevices,
            Reason::DeviceNodeStale,
            "/dev/davinci0",
        ),
        (
            "not loaded",
            |h| h.file("/proc/devices", "Character devices:\n  1 mem\n"),
            DriverLoaded,
            Reason::DriverNotLoaded,
            "/proc/devices",
        ),
        ("no /proc", |h| h.remove("/proc"), DriverLoaded, Reason::HostPathNotMounted, "/proc/devices"),
        (
            "malformed /proc/devices",
            |h| h.file("/proc/devices", "hello\nworld\n"),
            DriverLoaded,
            Reason::Malformed,
            "/proc/devices",
        ),
        ("no version.info", |h| h.remove(INFO), DriverVersion, Reason::FileMissing, INFO),
        ("version.info a folder", |h| h.folder(INFO), DriverVersion, Reason::NotAFile, INFO),
        (
            "no Version",
            |h| h.file(INFO, "Innerversion=V1\npackage_version=24.1.0\n"),
            DriverVersion,
            Reason::VersionMissing,
            INFO,
        ),
        ("old", |h| h.file(INFO, "Version=23.0.7\n"), DriverVersion, Reason::VersionTooOld, INFO),
        (
            "malformed version",
            |h| h.file(INFO, "Version=newest\n"),
            DriverVersion,
            Reason::VersionNotComparable,
            INFO,
        ),
        (
            "huge version.info",
            |h| h.file(INFO, vec![b'x'; 2 << 20]),
            DriverVersion,
            Reason::NotReadable,
            INFO,
        ),
        ("no driver", |h| h.remove(DRIVER), DriverLibs, Reason::FileMissing, LIB),
        ("no /usr", |h| h.remove("/usr"), DriverLibs, Reason::HostPathNotMounted, LIB),
        ("lib64 a file", |h| h.file(LIB, ""), DriverLibs, Reason::NotAFolder, LIB),
        (
            "lib64/driver gone",
            |h| h.remove("/usr/local/Ascend/driver/lib64/driver"),
            DriverLibs,
            Reason::FileMissing,
            "/usr/local/Ascend/driver/lib64/driver",
        ),
        ("library a folder", |h| h.folder(HAL), DriverLibs, Reason::NotAFile, HAL),
        ("library a device", |h| h.device(HAL), DriverLibs, Reason::NotAFile, HAL),
        ("library empty", |h| h.file(HAL, ""), DriverLibs, Reason::FileEmpty, HAL),
        ("library a text", |h| h.file(HAL, "INPUT(libx.so)"), DriverLibs, Reason::NotElf, HAL),
        (
            "library of the other processor",
            |h| h.file(HAL, Elf::ARM.bytes()),
            DriverLibs,
            Reason::WrongMachine,
            HAL,
        ),
        (
            "library of 32 bits",
            |h| h.file(HAL, Elf { wide: false, machine: EM_386, ..Elf::X86 }.bytes()),
            DriverLibs,
            Reason::WrongClass,
            HAL,
        ),
        (
            "library a program",
            |h| h.file(HAL, Elf { kind: ET_EXEC, ..Elf::X86 }.bytes()),
            DriverLibs,
            Reason::NotASharedObject,
            HAL,
        ),
        (
            "truncated library",
            |h| h.file(HAL, &Elf::X86.bytes()[..2000]),
            DriverLibs,
            Reason::ElfTruncated,
            HAL,
        ),
        (
            "library with a truncated header",
            |h| h.file(HAL, &Elf::X86.bytes()[..20]),
            DriverLibs,
            Reason::ElfTruncated,
            HAL,
        ),
        ("library dangling", |h| h.link(HAL, "libascend_hal.so.1"), DriverLibs, Reason::FileMissing, HAL),
        ("library in a loop", |h| h.link(HAL, HAL), DriverLibs, Reason::LinkLoop, HAL),
        (
            "libdcmi gone",
            |h| h.remove(DCMI),
            DriverLibs,
            Reason::FileMissing,
            "/usr/local/Ascend/driver/lib64/libdcmi.so",
        ),
        ("libdcmi writable", |h| h.mode(DCMI, 0o664), DriverLibs, Reason::NotTrusted, DCMI),
        ("its folder writable", |h| h.mode("/usr/local", 0o775), DriverLibs, Reason::NotTrusted, DCMI),
        ("npu-smi gone", |h| h.remove(SMI), NpuSmi, Reason::FileMissing, SMI),
        ("npu-smi a folder", |h| h.folder(SMI), NpuSmi, Reason::NotAFile, SMI),
        ("npu-smi empty", |h| h.file(SMI, ""), NpuSmi, Reason::FileEmpty, SMI),
        ("npu-smi not executable", |h| h.mode(SMI, 0o644), NpuSmi, Reason::NotExecutable, SMI),
        ("npu-smi, no /usr", |h| h.remove("/usr"), NpuSmi, Reason::HostPathNotMounted, SMI),
        ("no network of the host", |h| h.remove(TCP), Ports, Reason::HostPathNotMounted, TCP),
        (
            "malformed table",
            |h| h.file(TCP, format!("{TABLE_HEAD} 0: x:1F40 y\n")),
            Ports,
            Reason::Malformed,
            TCP,
        ),
        (
            "port used by an unknown process",
            |h| h.file(TCP, TABLE_HEAD.to_owned() + &tcp("00000000:1F40", "0A", 77)),
            Ports,
            Reason::PortOwnerUnknown,
            TCP,
        ),
        (
            "no reservation",
            |h| h.file("/proc/sys/net/ipv4/ip_local_reserved_ports", "\n"),
            Ports,
            Reason::PortsFree,
            TCP,
        ),
    ]
};

#[test]
fn every_damage_is_reported() {
    for (name, damage, check, reason, path) in BROKEN {
        let host = Host::healthy(Family::A2);
        damage(&host);
        let finding = host.finding(&host.settings(), *check);
        assert_eq!(finding.reason, *reason, "{name}: {finding:?}");
        assert_eq!(finding.path.as_deref(), Some(Path::new(path)), "{name}: {finding:?}");
        if finding.status() != Status::Pass {
            assert!(finding.message.contains([';', ':', ',']), "{name} has no advice: {}", finding.message);
        }
    }
}

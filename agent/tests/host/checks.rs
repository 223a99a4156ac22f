//! Every check on hosts of every product family, healthy and broken in each way.

use swansong_agent::check::{self, CheckName, Family, Trust};
use swansong_agent::config::Config;
use swansong_agent::reason::Reason;
use swansong_agent::report::{Ready, Status};
use swansong_fixtures::host::{DRIVER, Elf, Host, TABLE_HEAD, tcp, tcp6};

#[test]
fn every_family_is_healthy_and_told_by_its_host() {
    for family in Family::ALL {
        let host = Host::healthy(family);
        let mut config = host.config();
        let product = check::product(&host.root(), &config);
        if family == Family::Atlas200 {
            assert_eq!(product.family, None, "nothing tells it");
            config.family = Some(family);
        } else {
            assert_eq!(product.family, Some(family), "{product:?}");
        }
        let checks = host.check(&config);
        for check in &checks {
            assert_eq!(check.finding.status(), Status::Pass, "{family}: {check:?}");
        }
        assert_eq!(Ready::of(&checks), Ready::True);
    }
}

#[test]
fn what_a_family_lacks_is_not_demanded() {
    for family in Family::ALL {
        let host = Host::healthy(family);
        host.remove("/dev/dvpp_cmdlist");
        let config = Config { family: Some(family), ..host.config() };
        for (name, has) in
            [(CheckName::DeviceSvm, family.profile().svm), (CheckName::DeviceHdc, family.profile().hdc)]
        {
            let expected = if has { Reason::Present } else { Reason::NotOnThisProduct };
            assert_eq!(host.finding(&config, name).reason, expected, "{family} {name:?}");
        }
    }
}

#[test]
fn an_unknown_family_is_asked_for_only_where_families_differ() {
    let host = Host::healthy(Family::A2);
    host.remove("/sys");
    let config = host.config();
    assert_eq!(Ready::of(&host.check(&config)), Ready::True, "all there is all right for any family");
    host.remove("/dev/devmm_svm");
    let finding = host.finding(&config, CheckName::DeviceSvm);
    assert_eq!(finding.reason, Reason::FamilyUnknown);
    assert!(finding.message.contains("set `family`"), "{}", finding.message);
    host.remove("/dev/davinci_manager");
    assert_eq!(host.finding(&config, CheckName::DeviceManager).reason, Reason::DeviceMissing);
}

#[test]
fn families_by_configuration_and_by_contradiction() {
    let host = Host::healthy(Family::A2);
    host.file("/sys/bus/pci/devices/0000:09:00.0/vendor", "0x19e5\n");
    host.file("/sys/bus/pci/devices/0000:09:00.0/device", "0xd500\n");
    let product = check::product(&host.root(), &host.config());
    assert_eq!(product.family, None);
    assert_eq!(product.evidence, "its PCI ids say 310P and A2");
    let host = Host::healthy(Family::A5);
    host.remove("/dev/uburma");
    host.file("/sys/bus/pci/devices/0000:00:00.0/device", "0xd8ff\n");
    let mut config = host.config();
    assert_eq!(check::product(&host.root(), &config).family, None);
    config.pci_ids.insert(0xd8ff, Family::A5);
    assert_eq!(check::product(&host.root(), &config).family, Some(Family::A5));
    let host = Host::healthy(Family::A5);
    host.remove("/sys/bus/pci");
    host.remove("/dev/uburma");
    host.folder("/sys/class/unified_bus");
    assert_eq!(check::product(&host.root(), &host.config()).family, Some(Family::A5));
}

/// NVIDIA/k8s-device-plugin#1743, #1371 and gpustack#3284: container paths against host paths.
#[test]
fn absolute_links_are_those_of_the_host() {
    let host = Host::healthy(Family::A2);
    for (from, to) in [("/usr/local/Ascend", "/opt/Ascend"), ("/usr/local/bin/npu-smi", "/opt/bin/npu-smi")] {
        let target = host.path(to);
        std::fs::create_dir_all(target.parent().expect("below")).expect("made");
        std::fs::rename(host.path(from), target).expect("moved");
        host.link(from, to);
    }
    host.mode("/opt", 0o755);
    assert_eq!(Ready::of(&host.check(&host.config())), Ready::True, "{:?}", host.check(&host.config()));
    host.mode("/opt", 0o777);
    let finding = host.finding(&host.config(), CheckName::DriverLibs);
    assert_eq!(finding.reason, Reason::NotTrusted);
    assert!(finding.message.contains("because of /opt:"), "{}", finding.message);
}

#[test]
fn npu_smi_has_two_places() {
    let host = Host::healthy(Family::A2);
    host.remove("/usr/local/bin/npu-smi");
    host.program("/usr/local/sbin/npu-smi");
    let finding = host.finding(&host.config(), CheckName::NpuSmi);
    assert_eq!((finding.reason, finding.path), (Reason::Present, Some("/usr/local/sbin/npu-smi".into())));
    let config = Config { npu_smi: vec!["/opt/npu-smi".to_owned()], ..host.config() };
    assert_eq!(host.finding(&config, CheckName::NpuSmi).reason, Reason::HostPathNotMounted);
    host.folder("/opt/bin");
    assert_eq!(host.finding(&config, CheckName::NpuSmi).reason, Reason::FileMissing);
    host.program("/opt/npu-smi");
    assert_eq!(host.finding(&config, CheckName::NpuSmi).reason, Reason::Present);
}

#[test]
fn another_install_path_is_found() {
    let host = Host::healthy(Family::A2);
    let info = "UserName=HwHiAiUser\nDriver_Install_Type=full\nDriver_Install_Path_Param=/opt/npu/\n";
    host.file("/etc/ascend_install.info", info);
    let moved = host.path("/opt/npu/driver");
    std::fs::create_dir_all(moved.parent().expect("below")).expect("made");
    std::fs::rename(host.path(DRIVER), moved).expect("moved");
    host.mode("/opt", 0o755);
    host.mode("/opt/npu", 0o755);
    assert_eq!(Ready::of(&host.check(&host.config())), Ready::True, "{:?}", host.check(&host.config()));
    let mut config = host.config();
    config.driver.path = Some(DRIVER.to_owned());
    assert_eq!(host.finding(&config, CheckName::DriverVersion).reason, Reason::FileMissing);
}

#[test]
fn a_dangling_link_is_told_with_its_target() {
    let host = Host::healthy(Family::A2);
    host.link("/dev/hisi_hdc", "/dev/gone");
    let finding = host.finding(&host.config(), CheckName::DeviceHdc);
    assert!(
        finding.message.starts_with("/dev/hisi_hdc is a link to /dev/gone, which is missing;"),
        "{finding:?}"
    );
}

/// MindCluster passes over what it doesn't trust and takes the next; so does the check.
#[test]
fn the_library_that_the_components_would_load_is_judged() {
    let host = Host::healthy(Family::A2);
    host.file("/usr/local/dcmi/libdcmi.so", Elf::X86.bytes());
    let untrusted = format!("{DRIVER}/lib64/driver/libdcmi.so");
    host.mode(&untrusted, 0o666);
    assert_eq!(host.finding(&host.config(), CheckName::DriverLibs).reason, Reason::LibrariesSound);
    host.file("/usr/local/dcmi/libdcmi.so", "");
    let finding = host.finding(&host.config(), CheckName::DriverLibs);
    assert_eq!(
        (finding.reason, finding.path),
        (Reason::FileEmpty, Some("/usr/local/dcmi/libdcmi.so".into()))
    );
    host.remove("/usr/local/dcmi");
    let mut config = host.config();
    assert_eq!(host.finding(&config, CheckName::DriverLibs).reason, Reason::NotTrusted);
    config.driver.trust = Trust::Owner(host.owner() + 1);
    let finding = host.finding(&config, CheckName::DriverLibs);
    assert!(finding.message.contains("owns it"), "{}", finding.message);
    config.driver.trust = Trust::Anyone;
    assert_eq!(host.finding(&config, CheckName::DriverLibs).reason, Reason::LibrariesSound);
    config.driver.libraries.push("liblingqu-dcmi.so".to_owned());
    assert_eq!(host.finding(&config, CheckName::DriverLibs).reason, Reason::FileMissing);
}

#[test]
fn libraries_of_the_host_are_looked_at_when_configured() {
    let host = Host::healthy(Family::A2);
    let (cann, taskd) = ("/usr/local/Ascend/cann/lib64/libmspti.so", "/opt/taskd/libtaskd.so");
    host.folder("/opt/bin");
    let config = Config {
        host_libmspti: Some(cann.to_owned()),
        host_libtaskd: Some(taskd.to_owned()),
        paths: vec!["/etc/hccn.conf".to_owned()],
        ..host.config()
    };
    for name in [CheckName::CannMspti, CheckName::TaskdLib, CheckName::ExtraPaths] {
        assert_eq!(host.finding(&config, name).reason, Reason::FileMissing, "{name:?}");
        assert!(host.check(&host.config()).iter().all(|check| check.name != name), "not asked for: {name:?}");
    }
    host.file("/etc/hccn.conf", "address_0=10.0.0.1\n");
    host.file("/usr/local/Ascend/cann-8.5.0/lib64/libmspti.so", Elf::X86.bytes());
    host.link("/usr/local/Ascend/cann", "/usr/local/Ascend/cann-8.5.0");
    host.file("/opt/taskd/real.so", Elf::X86.bytes());
    host.link(taskd, "real.so");
    assert_eq!(host.finding(&config, CheckName::CannMspti).reason, Reason::Present);
    assert_eq!(host.finding(&config, CheckName::ExtraPaths).reason, Reason::Present);
    assert_eq!(host.finding(&config, CheckName::TaskdLib).reason, Reason::LinkNotAccepted);
    host.file(taskd, Elf::X86.bytes());
    assert_eq!(host.finding(&config, CheckName::TaskdLib).reason, Reason::Present);
    host.mode("/usr/local/Ascend/cann-8.5.0", 0o775);
    assert_eq!(host.finding(&config, CheckName::CannMspti).reason, Reason::NotTrusted);
}

#[test]
fn who_holds_a_port_decides() {
    const POD: &str =
        "0::/kubepods/burstable/pod0f4cbf1a-2b37-4c1d-9a8e-5d1c3b2a1f00/5a0b6c2d3e4f5061728394a5\n";
    let any = "00000000000000000000000000000000:2581";
    for (cgroup, table, line, expected) in [
        ("0::/system.slice/sshd.service\n", "tcp", tcp("0100007F:2582", "0A", 4711), Reason::PortTaken),
        ("0::/system.slice/sshd.service\n", "tcp6", tcp6(any, "0A", 4711), Reason::PortTaken),
        // The local end of a connection that the kernel gave to some client.
        ("0::/user.slice\n", "tcp", tcp("0100000A:2581", "01", 4711), Reason::PortTaken),
        ("0::/user.slice\n", "tcp", tcp("0100000A:2581", "06", 0), Reason::PortsReserved),
        ("0::/user.slice\n", "tcp", tcp("00000000:0016", "0A", 4711), Reason::PortsReserved),
        (POD, "tcp", tcp("00000000:1F40", "0A", 4711), Reason::PortsHeldByPods),
        (POD, "tcp6", tcp6(any, "0A", 4711), Reason::PortsHeldByPods),
    ] {
        let host = Host::healthy(Family::A2);
        host.file(&format!("/proc/1/net/{table}"), TABLE_HEAD.to_owned() + &line);
        host.file("/proc/321/cgroup", cgroup);
        host.file("/proc/321/stat", "321 (a (odd) name) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 100 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n");
        host.link("/proc/321/fd/3", "socket:[4711]");
        let finding = host.finding(&host.config(), CheckName::Ports);
        assert_eq!(finding.reason, expected, "{line} {finding:?}");
    }
}

#[test]
fn reservations_of_another_network_do_not_count() {
    let host = Host::healthy(Family::A2);
    host.file("/proc/7/net/tcp", TABLE_HEAD);
    host.link("/proc/self", "7");
    assert_eq!(host.finding(&host.config(), CheckName::Ports).reason, Reason::PortsFree);
}

#[test]
fn what_the_surroundings_tell() {
    let host = Host::healthy(Family::A2);
    let (root, config) = (host.root(), host.config());
    let find = |surroundings: &check::Surroundings, name| {
        let check = check::run(&root, &config, surroundings).into_iter().find(|check| check.name == name);
        check.map(|check| check.finding.reason)
    };
    let mut surroundings = swansong_fixtures::host::surroundings();
    surroundings.dead_mounts = vec![DRIVER.into()];
    assert_eq!(find(&surroundings, CheckName::DriverLibs), Some(Reason::MountStale));
    surroundings.expected_npus = Some(9);
    assert_eq!(
        find(&surroundings, CheckName::NpuDevices),
        Some(Reason::Present),
        "what is configured goes first"
    );
    let config = Config { npus: None, ..host.config() };
    let find = |surroundings: &check::Surroundings, name| {
        let check = check::run(&root, &config, surroundings).into_iter().find(|check| check.name == name);
        check.map(|check| check.finding.reason)
    };
    assert_eq!(find(&surroundings, CheckName::NpuDevices), Some(Reason::DevicesMissing));
    surroundings.clusterd = Some(check::Dialled::Refused);
    assert_eq!(find(&surroundings, CheckName::Clusterd), Some(Reason::ClusterdRefused));
    surroundings.clusterd = None;
    assert_eq!(find(&surroundings, CheckName::Clusterd), None);
    surroundings.now = std::time::SystemTime::UNIX_EPOCH;
    assert_eq!(find(&surroundings, CheckName::Clock), Some(Reason::ClockBeforeClusterd));
}

#[test]
fn this_machine_is_checked_without_a_fault_of_the_agent() {
    let root = swansong_agent::root::HostRoot::open(std::path::Path::new("/")).expect("opened");
    let mut config = Config::default();
    config.clusterd.dial = false;
    let surroundings = check::Surroundings::look(&root, &config);
    let checks = check::run(&root, &config, &surroundings);
    assert_ne!(Ready::of(&checks), Ready::Unknown, "no NPU here, or one: {checks:?}");
}

//! Every check on hosts of every product family, healthy and broken in each way.

use strum::VariantArray as _;
use swansong_agent::checks::{self, CheckContext, DialOutcome, Family, Settings, Trust};
use swansong_agent::finding::{CheckName, Ready, Reason, Status};
use swansong_fixtures::host::{DRIVER, Elf, Host, TABLE_HEAD, tcp, tcp6};

#[test]
fn healthy_hosts_of_every_family_pass() {
    for &family in Family::VARIANTS {
        let host = Host::healthy(family);
        let mut settings = host.settings();
        let product = checks::product(&host.root(), &settings);
        if family == Family::Atlas200 {
            assert_eq!(product.family, None, "not detectable");
            settings.family = Some(family);
        } else {
            assert_eq!(product.family, Some(family), "{product:?}");
        }
        let checks = host.check(&settings);
        for check in &checks {
            assert_eq!(check.finding.status(), Status::Pass, "{family}: {check:?}");
        }
        assert_eq!(Ready::of(&checks), Ready::True);
    }
}

#[test]
fn devices_that_a_family_lacks_are_not_required() {
    for &family in Family::VARIANTS {
        let host = Host::healthy(family);
        host.remove("/dev/dvpp_cmdlist");
        let settings = Settings { family: Some(family), ..host.settings() };
        for (name, has) in
            [(CheckName::DeviceSvm, family.profile().svm), (CheckName::DeviceHdc, family.profile().hdc)]
        {
            let expected = if has { Reason::Present } else { Reason::NotOnThisProduct };
            assert_eq!(host.finding(&settings, name).reason, expected, "{family} {name:?}");
        }
    }
}

#[test]
fn an_unknown_family_matters_only_where_families_differ() {
    let host = Host::healthy(Family::A2);
    host.remove("/sys");
    let settings = host.settings();
    assert_eq!(Ready::of(&host.check(&settings)), Ready::True, "no family requires more");
    host.remove("/dev/devmm_svm");
    let finding = host.finding(&settings, CheckName::DeviceSvm);
    assert_eq!(finding.reason, Reason::FamilyUnknown);
    assert!(finding.message.contains("set `family`"), "{}", finding.message);
    host.remove("/dev/davinci_manager");
    assert_eq!(host.finding(&settings, CheckName::DeviceManager).reason, Reason::DeviceMissing);
}

#[test]
fn detects_families_and_reports_contradictions() {
    let host = Host::healthy(Family::A2);
    host.file("/sys/bus/pci/devices/0000:09:00.0/vendor", "0x19e5\n");
    host.file("/sys/bus/pci/devices/0000:09:00.0/device", "0xd500\n");
    let product = checks::product(&host.root(), &host.settings());
    assert_eq!(product.family, None);
    assert_eq!(product.evidence, "its PCI ids are of 310P and A2");
    let host = Host::healthy(Family::A5);
    host.remove("/dev/uburma");
    host.file("/sys/bus/pci/devices/0000:00:00.0/device", "0xd8ff\n");
    let mut settings = host.settings();
    assert_eq!(checks::product(&host.root(), &settings).family, None);
    settings.pci_ids.insert(0xd8ff, Family::A5);
    assert_eq!(checks::product(&host.root(), &settings).family, Some(Family::A5));
    let host = Host::healthy(Family::A5);
    host.remove("/sys/bus/pci");
    host.remove("/dev/uburma");
    host.folder("/sys/class/unified_bus");
    assert_eq!(checks::product(&host.root(), &host.settings()).family, Some(Family::A5));
}

/// NVIDIA/k8s-device-plugin#1743, #1371 and gpustack#3284: container paths against host paths.
#[test]
fn absolute_links_resolve_on_the_host() {
    let host = Host::healthy(Family::A2);
    for (from, to) in [("/usr/local/Ascend", "/opt/Ascend"), ("/usr/local/bin/npu-smi", "/opt/bin/npu-smi")] {
        let target = host.path(to);
        std::fs::create_dir_all(target.parent().expect("below")).expect("made");
        std::fs::rename(host.path(from), target).expect("moved");
        host.link(from, to);
    }
    host.mode("/opt", 0o755);
    assert_eq!(Ready::of(&host.check(&host.settings())), Ready::True, "{:?}", host.check(&host.settings()));
    host.mode("/opt", 0o777);
    let finding = host.finding(&host.settings(), CheckName::DriverLibs);
    assert_eq!(finding.reason, Reason::NotTrusted);
    assert!(finding.message.contains("because of /opt:"), "{}", finding.message);
}

#[test]
fn npu_smi_has_two_usual_paths() {
    let host = Host::healthy(Family::A2);
    host.remove("/usr/local/bin/npu-smi");
    host.program("/usr/local/sbin/npu-smi");
    let finding = host.finding(&host.settings(), CheckName::NpuSmi);
    assert_eq!((finding.reason, finding.path), (Reason::Present, Some("/usr/local/sbin/npu-smi".into())));
    let settings = Settings { npu_smi: vec!["/opt/npu-smi".to_owned()], ..host.settings() };
    assert_eq!(host.finding(&settings, CheckName::NpuSmi).reason, Reason::HostPathNotMounted);
    host.folder("/opt/bin");
    assert_eq!(host.finding(&settings, CheckName::NpuSmi).reason, Reason::FileMissing);
    host.program("/opt/npu-smi");
    assert_eq!(host.finding(&settings, CheckName::NpuSmi).reason, Reason::Present);
}

#[test]
fn finds_another_install_path() {
    let host = Host::healthy(Family::A2);
    let info = "UserName=HwHiAiUser\nDriver_Install_Type=full\nDriver_Install_Path_Param=/opt/npu/\n";
    host.file("/etc/ascend_install.info", info);
    let moved = host.path("/opt/npu/driver");
    std::fs::create_dir_all(moved.parent().expect("below")).expect("made");
    std::fs::rename(host.path(DRIVER), moved).expect("moved");
    host.mode("/opt", 0o755);
    host.mode("/opt/npu", 0o755);
    assert_eq!(Ready::of(&host.check(&host.settings())), Ready::True, "{:?}", host.check(&host.settings()));
    let mut settings = host.settings();
    settings.driver.path = Some(DRIVER.to_owned());
    assert_eq!(host.finding(&settings, CheckName::DriverVersion).reason, Reason::FileMissing);
}

#[test]
fn a_dangling_link_is_reported_with_its_target() {
    let host = Host::healthy(Family::A2);
    host.link("/dev/hisi_hdc", "/dev/gone");
    let finding = host.finding(&host.settings(), CheckName::DeviceHdc);
    assert!(
        finding.message.starts_with("/dev/hisi_hdc is a link to /dev/gone, which is missing;"),
        "{finding:?}"
    );
}

/// As MindCluster does, the check skips untrusted libraries.
#[test]
fn checks_the_library_that_the_components_load() {
    let host = Host::healthy(Family::A2);
    host.file("/usr/local/dcmi/libdcmi.so", Elf::X86.bytes());
    let untrusted = format!("{DRIVER}/lib64/driver/libdcmi.so");
    host.mode(&untrusted, 0o666);
    assert_eq!(host.finding(&host.settings(), CheckName::DriverLibs).reason, Reason::LibrariesValid);
    host.file("/usr/local/dcmi/libdcmi.so", "");
    let finding = host.finding(&host.settings(), CheckName::DriverLibs);
    assert_eq!(
        (finding.reason, finding.path),
        (Reason::FileEmpty, Some("/usr/local/dcmi/libdcmi.so".into()))
    );
    host.remove("/usr/local/dcmi");
    let mut settings = host.settings();
    assert_eq!(host.finding(&settings, CheckName::DriverLibs).reason, Reason::NotTrusted);
    settings.driver.trust = Trust::Owner(host.owner() + 1);
    let finding = host.finding(&settings, CheckName::DriverLibs);
    assert!(finding.message.contains("owns it"), "{}", finding.message);
    settings.driver.trust = Trust::Anyone;
    assert_eq!(host.finding(&settings, CheckName::DriverLibs).reason, Reason::LibrariesValid);
    settings.driver.libraries.push("liblingqu-dcmi.so".to_owned());
    assert_eq!(host.finding(&settings, CheckName::DriverLibs).reason, Reason::FileMissing);
}

#[test]
fn libraries_of_the_host_are_checked_if_configured() {
    let host = Host::healthy(Family::A2);
    let (cann, taskd) = ("/usr/local/Ascend/cann/lib64/libmspti.so", "/opt/taskd/libtaskd.so");
    host.folder("/opt/bin");
    let settings = Settings {
        host_libmspti: Some(cann.to_owned()),
        host_libtaskd: Some(taskd.to_owned()),
        paths: vec!["/etc/hccn.conf".to_owned()],
        ..host.settings()
    };
    for name in [CheckName::CannMspti, CheckName::TaskdLib, CheckName::ExtraPaths] {
        assert_eq!(host.finding(&settings, name).reason, Reason::FileMissing, "{name:?}");
        assert!(
            host.check(&host.settings()).iter().all(|check| check.name != name),
            "not configured: {name:?}"
        );
    }
    host.file("/etc/hccn.conf", "address_0=10.0.0.1\n");
    host.file("/usr/local/Ascend/cann-8.5.0/lib64/libmspti.so", Elf::X86.bytes());
    host.link("/usr/local/Ascend/cann", "/usr/local/Ascend/cann-8.5.0");
    host.file("/opt/taskd/real.so", Elf::X86.bytes());
    host.link(taskd, "real.so");
    assert_eq!(host.finding(&settings, CheckName::CannMspti).reason, Reason::Present);
    assert_eq!(host.finding(&settings, CheckName::ExtraPaths).reason, Reason::Present);
    assert_eq!(host.finding(&settings, CheckName::TaskdLib).reason, Reason::LinkNotAccepted);
    host.file(taskd, Elf::X86.bytes());
    assert_eq!(host.finding(&settings, CheckName::TaskdLib).reason, Reason::Present);
    host.mode("/usr/local/Ascend/cann-8.5.0", 0o775);
    assert_eq!(host.finding(&settings, CheckName::CannMspti).reason, Reason::NotTrusted);
}

#[test]
fn the_owner_of_a_port_decides() {
    const POD: &str =
        "0::/kubepods/burstable/pod0f4cbf1a-2b37-4c1d-9a8e-5d1c3b2a1f00/5a0b6c2d3e4f5061728394a5\n";
    let any = "00000000000000000000000000000000:2581";
    for (cgroup, table, line, expected) in [
        ("0::/system.slice/sshd.service\n", "tcp", tcp("0100007F:2582", "0A", 4711), Reason::PortInUse),
        ("0::/system.slice/sshd.service\n", "tcp6", tcp6(any, "0A", 4711), Reason::PortInUse),
        // The local end of a connection that the kernel gave to some client.
        ("0::/user.slice\n", "tcp", tcp("0100000A:2581", "01", 4711), Reason::PortInUse),
        ("0::/user.slice\n", "tcp", tcp("0100000A:2581", "06", 0), Reason::PortsReserved),
        ("0::/user.slice\n", "tcp", tcp("00000000:0016", "0A", 4711), Reason::PortsReserved),
        (POD, "tcp", tcp("00000000:1F40", "0A", 4711), Reason::PortsUsedByPods),
        (POD, "tcp6", tcp6(any, "0A", 4711), Reason::PortsUsedByPods),
    ] {
        let host = Host::healthy(Family::A2);
        host.file(&format!("/proc/1/net/{table}"), TABLE_HEAD.to_owned() + &line);
        host.file("/proc/321/cgroup", cgroup);
        host.file("/proc/321/stat", "321 (a (nested) name) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 100 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n");
        host.link("/proc/321/fd/3", "socket:[4711]");
        let finding = host.finding(&host.settings(), CheckName::Ports);
        assert_eq!(finding.reason, expected, "{line} {finding:?}");
    }
}

#[test]
fn reservations_of_another_network_do_not_apply() {
    let host = Host::healthy(Family::A2);
    host.file("/proc/7/net/tcp", TABLE_HEAD);
    host.link("/proc/self", "7");
    assert_eq!(host.finding(&host.settings(), CheckName::Ports).reason, Reason::PortsFree);
}

#[test]
fn fewer_devices_than_pci_functions_fail_unless_a_number_is_configured() {
    let host = Host::healthy(Family::A2);
    for number in 1..8 {
        host.file(&format!("/sys/bus/pci/devices/0000:c{number}:00.0/vendor"), "0x19e5\n");
        host.file(&format!("/sys/bus/pci/devices/0000:c{number}:00.0/device"), "0xd802\n");
    }
    let settings = Settings { npus: None, ..host.settings() };
    assert_eq!(host.finding(&settings, CheckName::NpuDevices).reason, Reason::Present);
    host.remove("/dev/davinci5");
    let finding = host.finding(&settings, CheckName::NpuDevices);
    assert_eq!(finding.reason, Reason::DevicesMissing);
    assert!(finding.message.starts_with("PCI shows 8 NPUs and /dev has 7 device nodes"), "{finding:?}");
    let configured = Settings { npus: Some(7), ..host.settings() };
    assert_eq!(host.finding(&configured, CheckName::NpuDevices).reason, Reason::Present);
    // Neither a virtual function nor one that a virtual machine uses has a device node.
    host.link("/sys/bus/pci/devices/0000:c1:00.0/physfn", "../0000:c2:00.0");
    assert_eq!(host.finding(&settings, CheckName::NpuDevices).reason, Reason::Present);
    host.remove("/dev/davinci6");
    host.link("/sys/bus/pci/devices/0000:c3:00.0/driver", "../../../bus/pci/drivers/vfio-pci");
    assert_eq!(host.finding(&settings, CheckName::NpuDevices).reason, Reason::Present);
}

/// As in the driver, libdcmi.so needs a library that itself needs another.
#[test]
fn missing_dependencies_of_a_library_are_reported() {
    let host = Host::healthy(Family::A2);
    let folder = |name: &str| host.path(&format!("{DRIVER}/lib64/{name}"));
    let build = |name: &str, folder: &std::path::Path, needs: &[&str]| {
        let source = host.path("/library.c");
        std::fs::write(&source, "int swansong_fake(void) { return 0; }\n").expect("written");
        let library = folder.join(name);
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed"])
            .arg(format!("-Wl,-soname,{name}"))
            .arg("-o")
            .arg(&library)
            .arg(source);
        cc.args(needs.iter().map(|needed| folder.join(needed)));
        assert!(cc.status().expect("cc").success(), "{name}");
        host.mode(&format!("/{}", library.strip_prefix(host.path("/")).expect("below").display()), 0o644);
    };
    let (driver, common) = (folder("driver"), folder("common"));
    build("libc_sec.so", &driver, &[]);
    build("libascend_hal.so", &driver, &["libc_sec.so"]);
    build("libdcmi.so", &driver, &["libascend_hal.so"]);
    std::fs::rename(driver.join("libc_sec.so"), common.join("libc_sec.so")).expect("moved");
    let mut settings = host.settings();
    let check = |settings: &Settings| {
        let context = CheckContext {
            machine: swansong_agent::host::Machine::HOST,
            ..swansong_fixtures::host::context()
        };
        let mut checks = checks::run(&host.root(), settings, &context).into_iter();
        checks.find(|check| check.name == CheckName::DriverLibs).expect("checked").finding
    };
    host.file(
        &format!("{DRIVER}/lib64/common/libmmpa.so.1"),
        std::fs::read(common.join("libc_sec.so")).expect("read"),
    );
    assert_eq!(check(&settings).reason, Reason::LibrariesValid, "{:?}", check(&settings));
    host.remove(&format!("{DRIVER}/lib64/common/libc_sec.so"));
    let finding = check(&settings);
    assert_eq!(finding.reason, Reason::DependencyMissing);
    assert!(
        finding.message.contains("libascend_hal.so needs") && finding.message.contains("libc_sec.so"),
        "{finding:?}"
    );
    // The host's loader finds libraries in its configured folders too.
    host.file("/etc/ld.so.conf.d/ascend.conf", "# the driver\n/opt/ascend/lib\n");
    host.file("/opt/ascend/lib/libc_sec.so", std::fs::read(driver.join("libdcmi.so")).expect("read"));
    assert_eq!(check(&settings).reason, Reason::LibrariesValid);
    host.remove("/opt/ascend");
    settings.driver.libraries.clear();
    assert_eq!(check(&settings).reason, Reason::LibrariesValid);
}

#[test]
fn an_empty_list_of_ports_needs_no_proc() {
    let host = Host::healthy(Family::A2);
    host.remove("/proc/1");
    let settings = Settings { ports: Vec::new(), ..host.settings() };
    assert!(host.check(&settings).iter().all(|check| check.name != CheckName::Ports));
}

#[test]
fn uses_the_context() {
    let host = Host::healthy(Family::A2);
    let (root, settings) = (host.root(), host.settings());
    let find = |context: &CheckContext, name| {
        let check = checks::run(&root, &settings, context).into_iter().find(|check| check.name == name);
        check.map(|check| check.finding.reason)
    };
    let mut context = swansong_fixtures::host::context();
    context.stale_mounts = vec![DRIVER.into()];
    assert_eq!(find(&context, CheckName::DriverLibs), Some(Reason::MountStale));
    context.expected_npus = Some(9);
    assert_eq!(
        find(&context, CheckName::NpuDevices),
        Some(Reason::Present),
        "the configuration has precedence"
    );
    let settings = Settings { npus: None, ..host.settings() };
    let find = |context: &CheckContext, name| {
        let check = checks::run(&root, &settings, context).into_iter().find(|check| check.name == name);
        check.map(|check| check.finding.reason)
    };
    assert_eq!(find(&context, CheckName::NpuDevices), Some(Reason::DevicesMissing));
    context.clusterd = Some(DialOutcome::Refused);
    assert_eq!(find(&context, CheckName::Clusterd), Some(Reason::ClusterdRefused));
    context.clusterd = None;
    assert_eq!(find(&context, CheckName::Clusterd), None);
    context.now = std::time::SystemTime::UNIX_EPOCH;
    assert_eq!(find(&context, CheckName::Clock), Some(Reason::ClockBeforeClusterd));
}

#[test]
fn checks_this_machine() {
    let root = swansong_agent::host::HostRoot::open(std::path::Path::new("/")).expect("opened");
    let mut settings = Settings::default();
    settings.clusterd.dial = false;
    let context = CheckContext::gather(&root, &settings);
    let checks = checks::run(&root, &settings, &context);
    assert_ne!(Ready::of(&checks), Ready::Unknown, "no NPU here, or one: {checks:?}");
}

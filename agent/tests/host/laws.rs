//! Arbitrary trees cause no panic, no unfounded health and no hang.

use proptest::prelude::*;
use strum::VariantArray as _;
use swansong_agent::checks::{Family, Settings};
use swansong_agent::finding::{CheckName, Ready, Report, Status};

use swansong_fixtures::host::{DRIVER, Elf, Host};

/// Paths that checks read.
const PATHS: &[&str] = &[
    "/dev",
    "/dev/davinci_manager",
    "/dev/davinci0",
    "/dev/davinci1",
    "/dev/hisi_hdc",
    "/dev/devmm_svm",
    "/dev/uburma",
    "/etc/ascend_install.info",
    "/proc/devices",
    "/proc/1/net/tcp",
    "/proc/1/net/tcp6",
    "/proc/self",
    "/proc/321/cgroup",
    "/proc/sys/net/ipv4/ip_local_reserved_ports",
    "/sys/bus/pci/devices",
    "/sys/bus/pci/devices/0000:00:00.0/vendor",
    "/sys/bus/pci/devices/0000:00:00.0/device",
    "/usr/local",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend",
    "/usr/local/Ascend/driver",
    "/usr/local/Ascend/driver/version.info",
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/lib64/driver",
    "/usr/local/Ascend/driver/lib64/driver/libdcmi.so",
    "/usr/local/Ascend/driver/lib64/driver/libascend_hal.so",
];

#[derive(Debug, Clone)]
enum Damage {
    Remove,
    Folder,
    Device,
    Bytes(Vec<u8>),
    /// A library with some bytes changed and its end cut off.
    Mangled(Vec<(usize, u8)>, usize),
    Link(&'static str),
    Mode(u32),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Remove),
        Just(Damage::Folder),
        Just(Damage::Device),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Damage::Bytes),
        "([a-zA-Z_]{0,8}=[0-9.rc]{0,8}\n|0: 00000000:1F40 00000000:0000 0A |\n|x){0,6}"
            .prop_map(|text| Damage::Bytes(text.into_bytes())),
        (prop::collection::vec((0..128_usize, any::<u8>()), 0..6), 0..4097_usize)
            .prop_map(|(changes, length)| Damage::Mangled(changes, length)),
        prop::sample::select(PATHS).prop_map(Damage::Link),
        prop::sample::select(&[0o000_u32, 0o444, 0o777][..]).prop_map(Damage::Mode),
    ]
}

fn apply(host: &Host, path: &str, damage: &Damage) {
    // The folder above may be a file, a broken link, or a link to a folder of this machine, by an earlier damage.
    let above = host.path(path);
    let real = |path: &std::path::Path| path.canonicalize().ok().filter(|path| path.is_dir());
    let (root, parent) = (real(&host.path("/")), above.parent().and_then(real));
    if !root.zip(parent).is_some_and(|(root, parent)| parent.starts_with(root)) {
        return;
    }
    match damage {
        Damage::Remove => host.remove(path),
        Damage::Folder => host.folder(path),
        Damage::Device => host.device(path),
        Damage::Bytes(bytes) => host.file(path, bytes),
        Damage::Mangled(changes, length) => {
            let mut bytes = Elf::X86.bytes();
            for &(at, byte) in changes {
                bytes[at] = byte;
            }
            host.file(path, &bytes[..*length]);
        }
        Damage::Link(target) => host.link(path, target),
        Damage::Mode(bits) => {
            if above.exists() && !above.is_symlink() {
                host.mode(path, *bits);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_damage_is_handled(
        family in prop::sample::select(Family::VARIANTS),
        set in any::<bool>(),
        damages in prop::collection::vec((prop::sample::select(PATHS), damage()), 0..5),
    ) {
        let host = Host::healthy(family);
        for (path, damage) in &damages {
            apply(&host, path, damage);
        }
        let settings = Settings { family: set.then_some(family), ..host.settings() };
        let report = Report::new("n", host.check(&settings));
        serde_json::to_string(&report).expect("serialised");
        let has_escape_sequence = report.to_string().contains(char::from(27));
        prop_assert!(!has_escape_sequence);
        let gone = !host.path("/dev/davinci_manager").exists();
        if gone && !host.path("/dev/davinci_manager").is_symlink() && family != Family::Ascend310B {
            prop_assert_ne!(report.ready, Ready::True);
        }
        for check in &report.checks {
            prop_assert!(!check.finding.message.is_empty());
        }
    }
}

/// Opening a pipe for reading blocks.
#[test]
fn pipes_do_not_block() {
    for path in [
        "/proc/devices",
        "/proc/1/net/tcp",
        "/usr/local/bin/npu-smi",
        &format!("{DRIVER}/version.info"),
        &format!("{DRIVER}/lib64/driver/libdcmi.so"),
    ] {
        let host = Host::healthy(Family::A2);
        host.pipe(path);
        let checks = host.check(&host.settings());
        assert!(checks.iter().any(|check| check.finding.status() != Status::Pass), "{path}");
    }
}

#[test]
fn reports_are_sorted() {
    let host = Host::healthy(Family::A2);
    let names: Vec<CheckName> = host.check(&host.settings()).iter().map(|check| check.name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted);
}

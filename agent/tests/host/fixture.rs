//! Hosts made of files: healthy ones of every product family, to be broken by the tests.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::stat::{Mode, SFlag, mknod};
use object::Endianness;
use object::elf::{EM_AARCH64, EM_X86_64, ET_DYN, PF_R, PT_LOAD};
use object::write::elf::{FileHeader, ProgramHeader, Writer};
use swansong_agent::Machine;
use swansong_agent::check::{self, CheckName, Dialled, Family, Surroundings, Trust};
use swansong_agent::config::Config;
use swansong_agent::report::{Check, Finding};
use swansong_agent::root::HostRoot;

pub(crate) const DRIVER: &str = "/usr/local/Ascend/driver";

/// An ELF file of 4 kB with one segment.
#[derive(Clone, Copy)]
pub(crate) struct Elf {
    pub(crate) wide: bool,
    pub(crate) kind: u16,
    pub(crate) machine: u16,
}

impl Elf {
    pub(crate) const X86: Self = Self { wide: true, kind: ET_DYN, machine: EM_X86_64 };
    pub(crate) const ARM: Self = Self { machine: EM_AARCH64, ..Self::X86 };

    pub(crate) fn bytes(self) -> Vec<u8> {
        const LENGTH: usize = 4096;
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Endianness::Little, self.wide, &mut bytes);
        writer.reserve_file_header();
        writer.reserve_program_headers(1);
        writer.reserve_until(LENGTH);
        let header = FileHeader {
            os_abi: 0,
            abi_version: 0,
            e_type: self.kind,
            e_machine: self.machine,
            e_entry: 0,
            e_flags: 0,
        };
        writer.write_file_header(&header).expect("a header");
        writer.write_align_program_headers();
        writer.write_program_header(&ProgramHeader {
            p_type: PT_LOAD,
            p_flags: PF_R,
            p_offset: 0,
            p_vaddr: 0,
            p_paddr: 0,
            p_filesz: LENGTH as u64,
            p_memsz: LENGTH as u64,
            p_align: 0x1000,
        });
        writer.pad_until(LENGTH);
        bytes
    }
}

/// A tree of files that stands for a host.
pub(crate) struct Host {
    folder: tempfile::TempDir,
    pub(crate) family: Option<Family>,
}

impl Host {
    /// A host without anything but the folders that every Linux has.
    pub(crate) fn bare() -> Self {
        let host = Self { folder: tempfile::tempdir().expect("a temporary folder"), family: None };
        host.file("/etc/hostname", "bare\n");
        host.file("/usr/lib/os-release", "");
        host.file("/proc/devices", "Character devices:\n  1 mem\n\nBlock devices:\n259 blkext\n");
        host.file("/proc/1/net/tcp", TABLE_HEAD);
        host.file("/proc/1/net/tcp6", TABLE_HEAD);
        host.link("/proc/self", "1");
        host.file("/proc/sys/net/ipv4/ip_local_reserved_ports", "8000,9601-9602\n");
        host.device("/dev/null");
        host
    }

    /// A host on which every check passes.
    pub(crate) fn healthy(family: Family) -> Self {
        let mut host = Self::bare();
        host.family = Some(family);
        // The fixture's device nodes have major 0, which anybody may make; see `device`.
        host.file(
            "/proc/devices",
            "Character devices:\n  1 mem\n  0 devdrv-cdev\n\nBlock devices:\n259 blkext\n",
        );
        host.shared_devices(family);
        let npus = host.npus();
        (0..npus).for_each(|number| host.device(&format!("/dev/davinci{number}")));
        host.file(&format!("{DRIVER}/version.info"), VERSION_INFO);
        let library = Elf::X86.bytes();
        if family.profile().library_folders {
            host.file(&format!("{DRIVER}/lib64/driver/libascend_hal.so"), &library);
            host.file(&format!("{DRIVER}/lib64/common/libmmpa.so.1"), &library);
            host.file(&format!("{DRIVER}/lib64/driver/libdcmi.so"), &library);
            host.program("/usr/local/bin/npu-smi");
        } else {
            host.file(&format!("{DRIVER}/lib64/libascend_hal.so"), &library);
            host.file("/usr/lib64/libdcmi.so", &library);
            host.program("/usr/local/sbin/npu-smi");
        }
        host
    }

    fn shared_devices(&self, family: Family) {
        let ids: &[&str] = match family {
            Family::Ascend310 => &["0xd100"],
            Family::Ascend310P => &["0xd500"],
            Family::Ascend910A => &["0xd801"],
            Family::A2 => &["0xd802"],
            Family::A3 => &["0xd803"],
            Family::A5 => &["0xd806"],
            Family::Ascend310B | Family::Atlas200ISoc | Family::Atlas200 => &[],
        };
        // A network card of the same vendor, as most hosts have.
        for (index, id) in ids.iter().chain(&["0x1822"]).enumerate() {
            let device = format!("/sys/bus/pci/devices/0000:0{index}:00.0");
            self.file(&format!("{device}/vendor"), "0x19e5\n");
            self.file(&format!("{device}/device"), format!("{id}\n"));
        }
        let nodes: &[&str] = match family {
            Family::A5 => &["davinci_manager", "hisi_hdc", "uburma/0"],
            Family::Ascend310B => &["davinci_manager_docker", "davinci_manager", "svm0", "log_drv", "acodec"],
            Family::Atlas200ISoc => {
                &["davinci_manager", "spi_smbus", "user_config", "svm0", "memory_bandwidth"]
            }
            Family::Atlas200 => &["davinci_manager"],
            _ => &["davinci_manager", "hisi_hdc", "devmm_svm", "dvpp_cmdlist"],
        };
        for node in nodes {
            self.device(&format!("/dev/{node}"));
        }
    }

    /// How many NPUs a healthy host of this family has.
    pub(crate) fn npus(&self) -> u32 {
        match self.family {
            Some(Family::A3) => 16,
            Some(Family::Ascend910A | Family::A2 | Family::A5) => 8,
            Some(Family::Ascend310 | Family::Ascend310P) => 4,
            _ => 1,
        }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn root(&self) -> HostRoot {
        HostRoot::open(self.folder.path()).expect("a root")
    }

    /// Writes a file, in place of whatever is there.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let real = self.clear(path);
        fs::write(&real, content).expect(path);
        mode(&real, 0o644);
    }

    pub(crate) fn program(&self, path: &str) {
        self.file(path, "#!/bin/sh\n");
        mode(&self.path(path), 0o755);
    }

    pub(crate) fn folder(&self, path: &str) {
        let real = self.clear(path);
        fs::create_dir(&real).expect(path);
        mode(&real, 0o755);
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        symlink(target, self.clear(path)).expect(path);
    }

    /// A device node 0:0, which the kernel (5.8 and later) lets everybody make.
    pub(crate) fn device(&self, path: &str) {
        mknod(&self.clear(path), SFlag::S_IFCHR, Mode::from_bits_truncate(0o600), 0).expect(path);
    }

    pub(crate) fn pipe(&self, path: &str) {
        mknod(&self.clear(path), SFlag::S_IFIFO, Mode::from_bits_truncate(0o600), 0).expect(path);
    }

    pub(crate) fn remove(&self, path: &str) {
        let real = self.path(path);
        match fs::symlink_metadata(&real) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(real).expect(path),
            Ok(_) => fs::remove_file(real).expect(path),
            Err(_) => {}
        }
    }

    pub(crate) fn mode(&self, path: &str, bits: u32) {
        mode(&self.path(path), bits);
    }

    /// Makes room and the folders above, with modes that don't depend on the umask.
    fn clear(&self, path: &str) -> PathBuf {
        self.remove(path);
        let real = self.path(path);
        let above = real.parent().expect("below the root");
        fs::create_dir_all(above).expect(path);
        for folder in above.ancestors().take_while(|folder| folder.starts_with(self.folder.path())) {
            // A link leads to a folder that has its mode already.
            if fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir()) {
                mode(folder, 0o755);
            }
        }
        real
    }

    /// Who owns the fixtures: trust is demanded of this user instead of root.
    pub(crate) fn owner(&self) -> u32 {
        fs::metadata(self.folder.path()).expect("there").uid()
    }

    /// What a careful operator would configure.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config { npus: Some(self.npus()), ..Config::default() };
        config.driver.trust = Trust::Owner(self.owner());
        config.driver.minimum_version = Some("24.1.rc1".parse().expect("a version"));
        config
    }

    pub(crate) fn check(&self, config: &Config) -> Vec<Check> {
        check::run(&self.root(), config, &surroundings())
    }

    pub(crate) fn finding(&self, config: &Config, name: CheckName) -> Finding {
        let check = self.check(config).into_iter().find(|check| check.name == name);
        check.unwrap_or_else(|| panic!("no check {name:?}")).finding
    }
}

pub(crate) fn surroundings() -> Surroundings {
    Surroundings {
        // The files of the fixture are new.
        now: SystemTime::now() + Duration::from_secs(1),
        reference: None,
        clusterd: Some(Dialled::Connected),
        machine: Machine::X86_64,
        dead_mounts: Vec::new(),
        port_owners: std::sync::Arc::default(),
        expected_npus: None,
    }
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).expect("a mode");
}

/// As a host has it (keys of MindCluster's `environment_check.zip`).
pub(crate) const VERSION_INFO: &str = "Version=24.1.rc1\nascendhal_version=7.35.19\naicpu_version=1.0\ntdt_version=1.0\nlog_version=1.0\nprof_version=2.0\ndvppkernels_version=1.1\ntsfw_version=1.0\nInnerversion=V100R001C15SPC006B220\ncompatible_version=[V100R001C29],[V100R001C30]\ncompatible_version_fw=[7.0.0,7.1.99]\npackage_version=24.1.rc1\n";

pub(crate) const TABLE_HEAD: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

/// A line of `/proc/net/tcp`.
pub(crate) fn tcp(local: &str, state: &str, inode: u64) -> String {
    format!(
        "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
    )
}

/// Its twin in `/proc/net/tcp6`.
pub(crate) fn tcp6(local: &str, state: &str, inode: u64) -> String {
    format!(
        "   0: {local} 00000000000000000000000000000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
    )
}

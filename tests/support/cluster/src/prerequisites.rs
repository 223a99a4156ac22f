//! What has to be installed, what isn't, and how to get it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::Uid;

use crate::Tier;

/// Go from 1.21 on fetches the newer version that a module asks for by itself.
const OLDEST_GO: (u32, u32) = (1, 21);

/// Something that has to be there and isn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub what: String,
    pub needed_for: &'static str,
    /// How to get it.
    pub remedy: Remedy,
}

/// How to get something that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A package of Debian and Ubuntu.
    Package(&'static str),
    /// Something else, in words.
    Advice(String),
}

/// A tool of the node tier: the file name, its package, its purpose.
const NODE_TOOLS: [(&str, &str, &str); 8] = [
    ("containerd", "containerd", "running containers"),
    ("ctr", "containerd", "loading images"),
    ("runc", "runc", "running containers"),
    ("ip", "iproute2", "the node's network"),
    ("nft", "nftables", "kube-proxy"),
    ("iptables", "iptables", "host ports of pods"),
    ("ipset", "ipset", "network policies"),
    ("mount", "mount", "volumes of pods"),
];

/// Where distributions put the CNI plugins.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Everything that a tier lacks on this machine, including what building its programs lacks.
pub fn check(tier: Tier) -> Vec<Missing> {
    let mut missing = for_running(tier);
    missing.extend(for_building(tier));
    missing
}

/// What running a tier lacks.
pub fn for_running(tier: Tier) -> Vec<Missing> {
    let mut missing = Vec::new();
    if tier == Tier::Api {
        return missing;
    }
    if !Uid::effective().is_root() {
        missing.push(Missing {
            what: "root".to_owned(),
            needed_for: "namespaces, mounts and containers of the node",
            remedy: Remedy::Advice(
                "run it as root, for example in a container or virtual machine".to_owned(),
            ),
        });
    }
    for (tool, package, needed_for) in NODE_TOOLS {
        if find(tool).is_none() {
            missing.push(Missing { what: tool.to_owned(), needed_for, remedy: Remedy::Package(package) });
        }
    }
    if cni_folder().is_none() {
        missing.push(Missing {
            what: "the CNI plugins ptp, host-local and portmap".to_owned(),
            needed_for: "addresses of pods",
            remedy: Remedy::Package("containernetworking-plugins"),
        });
    }
    missing
}

/// What building a tier's programs lacks.
pub fn for_building(tier: Tier) -> Vec<Missing> {
    let mut missing = Vec::new();
    let advice = |what: String| Missing {
        what,
        needed_for: "building the Kubernetes programs",
        remedy: Remedy::Advice(
            "put Go on the PATH, any version from 1.21 on; Debian has one in its backports: \
             apt-get install -y -t \"$(. /etc/os-release; echo $VERSION_CODENAME)-backports\" golang-go"
                .to_owned(),
        ),
    };
    match go_version() {
        None => missing.push(advice("Go".to_owned())),
        Some((version, numbers)) if numbers < OLDEST_GO => {
            missing.push(advice(format!("a newer Go than {version}")));
        }
        Some(_) => {}
    }
    if tier == Tier::Node {
        let lacks = |what: &str, package| Missing {
            what: what.to_owned(),
            needed_for: "building the pause program",
            remedy: Remedy::Package(package),
        };
        if find("cc").is_none() {
            missing.push(lacks("cc", "gcc"));
        }
        if !links_statically() {
            missing.push(lacks("the archive of the C library", "libc6-dev"));
        }
    }
    missing
}

fn links_statically() -> bool {
    let Ok(folder) = tempfile::tempdir() else { return true };
    let source = folder.path().join("a.c");
    if fs::write(&source, "int main(void) { return 0; }").is_err() {
        return true;
    }
    let output =
        Command::new("cc").args(["-static", "-o"]).args([&folder.path().join("a"), &source]).output();
    output.is_ok_and(|output| output.status.success())
}

/// The list of what is missing and one command that gets all of it.
pub(crate) fn explain(missing: &[Missing]) -> String {
    let mut lines = vec!["the test cluster needs what this machine lacks:".to_owned()];
    let mut packages: Vec<&str> = Vec::new();
    for Missing { what, needed_for, remedy } in missing {
        match remedy {
            Remedy::Package(package) => {
                lines.push(format!("  - {what} (for {needed_for})"));
                if !packages.contains(package) {
                    packages.push(package);
                }
            }
            Remedy::Advice(advice) => lines.push(format!("  - {what} (for {needed_for}): {advice}")),
        }
    }
    if !packages.is_empty() {
        let packages = packages.join(" ");
        lines.push(format!("  apt-get update && apt-get install -y --no-install-recommends {packages}"));
    }
    lines.join("\n")
}

/// The folder that holds the CNI plugins.
pub(crate) fn cni_folder() -> Option<PathBuf> {
    let holds = |folder: &Path| {
        ["ptp", "host-local", "portmap", "loopback"].iter().all(|name| folder.join(name).is_file())
    };
    CNI_FOLDERS.iter().map(PathBuf::from).find(|folder| holds(folder))
}

/// Finds a program on the PATH, and where a PATH without `sbin` hides it.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

fn go_version() -> Option<(String, (u32, u32))> {
    // Outside of any module, so that no go.mod makes it fetch another version just to answer.
    let output = Command::new("go").args(["env", "GOVERSION"]).current_dir("/").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    let numbers = parse_go_version(&version)?;
    Some((version, numbers))
}

fn parse_go_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("go")?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_are_read() {
        assert_eq!(parse_go_version("go1.26.8"), Some((1, 26)));
        assert_eq!(parse_go_version("go1.22rc1"), Some((1, 22)));
        assert_eq!(parse_go_version("devel"), None);
    }

    #[test]
    fn the_script_installs_the_same_packages() {
        let script = include_str!("../prerequisites.sh");
        for (tool, package, _) in NODE_TOOLS {
            assert!(script.contains(&format!("need {tool} {package}\n")), "{tool}");
        }
        for folder in CNI_FOLDERS {
            assert!(script.contains(folder), "{folder}");
        }
    }

    #[test]
    fn the_explanation_ends_in_one_command() {
        let missing = |what: &str, package| Missing {
            what: what.to_owned(),
            needed_for: "a test",
            remedy: Remedy::Package(package),
        };
        let text = explain(&[
            missing("ctr", "containerd"),
            missing("containerd", "containerd"),
            missing("ip", "iproute2"),
        ]);
        assert!(text.ends_with("install -y --no-install-recommends containerd iproute2"), "{text}");
    }
}

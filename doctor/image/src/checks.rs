//! The checks of an image.

use std::collections::BTreeMap;

use serde::Serialize;
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};
use swansong_api::documented::Documented as _;
use swansong_api::preload::LIBTASKD_IN_SITE;
use swansong_trainer::TrainerReason;

use crate::files::{FileError, FileFacts, ImageFiles};
use crate::go_build::GoBuild;
use crate::search::{Found, Search};

/// The import that MindCluster's Dockerfile adds to torch's launcher.
const PATCH: &str = "taskd.python.adaptor.patch";
const RUN_PY: &str = "torch/distributed/run.py";
/// Packages whose releases are reported, as their `dist-info` spells them.
const PACKAGES: [&str; 6] = ["taskd", "mindio_ttp", "mindio_acp", "torch", "torch_npu", "mindspore"];
/// Folders with C libraries.
const LIBRARY_FOLDERS: [&str; 6] =
    ["/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/lib", "/usr/lib"];
/// Loaders of musl, as Alpine has them.
const MUSL: [&str; 2] = ["/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1"];

/// What an image is asked for. The doc comment is its meaning, and the strum message what to do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumMessage, IntoStaticStr, Serialize, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum ImageCheck {
    /// The TaskD wheel is installed, and its library is a regular file for the image's processor.
    #[strum(message = "Install the TaskD wheel with pip in the Python that runs the training.")]
    Taskd,
    /// The MindIO-TTP wheel is installed beside TaskD.
    #[strum(message = "Install the MindIO-TTP wheel with pip in the Python that runs the training.")]
    Mindio,
    /// CANN has the library of its profiling interface. A dump doesn't need it, TaskD's profiling does.
    #[strum(message = "Install CANN, or set `swansong.dev/libmspti` to the path in the image.")]
    Libmspti,
    /// A training framework is installed, and torch's launcher imports TaskD's patch.
    #[strum(
        message = "Install the framework or a TaskD with the patch, if that is missing. Otherwise set `dump.launcherPatch` or `zeroTouch`, or add the import to the image's `torch/distributed/run.py`."
    )]
    Launcher,
    /// The image has `/bin/sh`, which `libraries.discover` and the TaskD Manager as a sidecar need.
    #[strum(message = "Use an image with `/bin/sh`, or leave `libraries.discover` and `manager` off for it.")]
    Shell,
    /// The C library is glibc, in a version that libtaskd.so can use.
    #[strum(
        message = "Build the image on a distribution with glibc, in the version that libtaskd.so needs or a newer one."
    )]
    Glibc,
    /// The releases of TaskD and MindIO-TTP have no known defect that concerns the dump.
    #[strum(message = "Install the release that the message names.")]
    Releases,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// A dump may be possible nevertheless.
    Warning,
    /// Without it there is no dump.
    Missing,
}

/// The result of one check, with a message and the path that decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: ImageCheck,
    pub status: Status,
    pub message: String,
    pub path: Option<String>,
}

/// The installed release of a package.
pub type Release = (String, String);

/// The results of all checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub findings: Vec<Finding>,
    /// Releases by the name of the package.
    pub releases: BTreeMap<String, String>,
    /// The site directory that has TaskD.
    pub site: Option<String>,
}

impl Report {
    /// Whether a check found something missing or doubtful.
    pub fn has_warnings(&self) -> bool {
        self.findings.iter().any(|finding| finding.status != Status::Ok)
    }
}

impl ImageCheck {
    fn ok(self, message: impl Into<String>, path: Option<String>) -> Finding {
        Finding { check: self, status: Status::Ok, message: message.into(), path }
    }

    fn problem(self, status: Status, message: impl Into<String>, path: Option<String>) -> Finding {
        Finding { check: self, status, message: message.into(), path }
    }
}

/// Checks an image.
///
/// # Errors
///
/// When a file or folder can't be read.
pub fn check(files: &dyn ImageFiles, search: Search) -> Result<Report, FileError> {
    let found = Found::search(files, search)?;
    let site = found.taskd_sites.first().cloned();
    let mut releases = releases(files, &found)?;
    let libtaskd = match &site {
        Some(site) => files.file(&format!("{site}/{LIBTASKD_IN_SITE}"))?,
        None => None,
    };
    // The library has its version too; the wheel's folder may be missing.
    if let Some(version) = libtaskd.as_ref().and_then(|library| library.go_build.version.clone()) {
        releases.entry("taskd".to_owned()).or_insert(version);
    }
    let findings = vec![
        taskd(files, &found, libtaskd.as_ref(), &releases)?,
        mindio(files, &found, &releases)?,
        libmspti(&found),
        launcher(files, &found, &releases)?,
        shell(files)?,
        glibc(files, libtaskd.as_ref())?,
        known_defects(&releases),
    ];
    Ok(Report { findings, releases, site })
}

/// The releases by the `dist-info` folders of the site directories, the one with TaskD first.
fn releases(files: &dyn ImageFiles, found: &Found) -> Result<BTreeMap<String, String>, FileError> {
    let mut releases = BTreeMap::new();
    for site in &found.sites {
        for name in files.list(site)? {
            if let Some((package, release)) = release(&name) {
                releases.entry(package.to_owned()).or_insert_with(|| release.to_owned());
            }
        }
    }
    Ok(releases)
}

/// Package and release of a folder such as `taskd-7.2.0.dist-info`.
fn release(name: &str) -> Option<(&'static str, &str)> {
    let (package, release) = name.strip_suffix(".dist-info")?.split_once('-')?;
    let package = package.to_ascii_lowercase().replace('-', "_");
    Some((PACKAGES.into_iter().find(|known| *known == package)?, release))
}

fn taskd(
    files: &dyn ImageFiles,
    found: &Found,
    library: Option<&FileFacts>,
    releases: &BTreeMap<String, String>,
) -> Result<Finding, FileError> {
    let check = ImageCheck::Taskd;
    let Some(site) = found.taskd_sites.first() else {
        let message = if found.is_incomplete {
            "no package taskd was found, but the image has too many folders to see all of them"
        } else {
            "no site directory has the package taskd"
        };
        return Ok(check.problem(Status::Missing, message, None));
    };
    let path = format!("{site}/{LIBTASKD_IN_SITE}");
    let Some(library) = library else {
        return Ok(check.problem(Status::Missing, "the package taskd has no libtaskd.so", Some(path)));
    };
    if files.is_link(&path)? {
        let message = "libtaskd.so is a symbolic link, which TaskD refuses to load; put the file there";
        return Ok(check.problem(Status::Missing, message, Some(path)));
    }
    if !library.elf.is_some_and(|elf| elf.is_shared_object) {
        return Ok(check.problem(Status::Missing, "libtaskd.so isn't a shared library", Some(path)));
    }
    if let [_, others @ ..] = found.taskd_sites.as_slice()
        && !others.is_empty()
    {
        let message = format!("TaskD is in several site directories, also in {}", others.join(", "));
        return Ok(check.problem(Status::Warning, message, Some(path)));
    }
    let release = releases.get("taskd").map_or("of an unknown release", String::as_str);
    let GoBuild { go, version } = &library.go_build;
    let built = [version, go].into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
    let built = if built.is_empty() { built } else { format!(" (libtaskd.so: {built})") };
    Ok(check.ok(format!("taskd {release}{built}"), Some(path)))
}

fn mindio(
    files: &dyn ImageFiles,
    found: &Found,
    releases: &BTreeMap<String, String>,
) -> Result<Finding, FileError> {
    let check = ImageCheck::Mindio;
    for site in &found.sites {
        let path = format!("{site}/mindio_ttp");
        if !files.list(&path)?.is_empty() {
            let release = releases.get("mindio_ttp").map_or("of an unknown release", String::as_str);
            let beside = releases.get("mindio_acp").map(|release| {
                format!("; mindio_acp {release} is beside it: {}", TrainerReason::AcpBeside.meaning())
            });
            let beside = beside.unwrap_or_default();
            return Ok(match found.taskd_sites.first() {
                Some(with_taskd) if with_taskd != site => check.problem(
                    Status::Warning,
                    format!("mindio_ttp isn't in the site directory of TaskD, {with_taskd}"),
                    Some(path),
                ),
                _ => check.ok(format!("mindio_ttp {release}{}", beside.trim_end_matches('.')), Some(path)),
            });
        }
    }
    Ok(check.problem(Status::Missing, "no site directory has the package mindio_ttp", None))
}

fn libmspti(found: &Found) -> Finding {
    let check = ImageCheck::Libmspti;
    match &found.libmspti {
        Some(path) => check.ok("there", Some(path.clone())),
        None => check.problem(Status::Warning, "none of the usual places of CANN has libmspti.so", None),
    }
}

fn launcher(
    files: &dyn ImageFiles,
    found: &Found,
    releases: &BTreeMap<String, String>,
) -> Result<Finding, FileError> {
    let check = ImageCheck::Launcher;
    let adaptor = |site: &str| format!("{site}/taskd/python/adaptor/patch");
    let has_patch = match found.taskd_sites.first() {
        Some(site) => {
            files.file(&format!("{}.py", adaptor(site)))?.is_some() || !files.list(&adaptor(site))?.is_empty()
        }
        None => true,
    };
    for site in &found.sites {
        let path = format!("{site}/{RUN_PY}");
        let Some(run_py) = files.file(&path)? else { continue };
        let torch =
            format!("torch {}", releases.get("torch").map_or("of an unknown release", String::as_str));
        return Ok(if !has_patch {
            let message = format!("{torch}: this TaskD has no {PATCH}, so its launcher can't be patched");
            check.problem(Status::Missing, message, Some(path))
        } else if imports_patch(&run_py.text) {
            check.ok(format!("{torch}, its launcher imports TaskD's patch"), Some(path))
        } else {
            let message = format!("{torch}: its launcher doesn't import {PATCH}");
            check.problem(Status::Warning, message, Some(path))
        });
    }
    Ok(match releases.get("mindspore") {
        Some(release) => check.ok(format!("mindspore {release}, whose launcher needs no patch"), None),
        None => check.problem(Status::Missing, "neither torch nor mindspore is installed", None),
    })
}

fn imports_patch(run_py: &str) -> bool {
    let mut lines = run_py.lines().map(str::trim_start);
    lines.any(|line| !line.starts_with('#') && line.contains(PATCH) && line.contains("import"))
}

fn known_defects(releases: &BTreeMap<String, String>) -> Finding {
    let check = ImageCheck::Releases;
    let mut messages = Vec::new();
    let mut is_known = false;
    for (package, release) in releases {
        if let Some(defects) = swansong_trainer::releases::known_defects(package, release) {
            is_known = true;
            // There is nothing to do about one that no release has fixed.
            let fixed = defects.iter().filter(|defect| defect.fixed_in.is_some());
            messages.extend(fixed.map(|defect| defect.message(package, release)));
        }
    }
    if messages.is_empty() {
        let message = if is_known {
            "no defects that a newer release has fixed"
        } else {
            "unknown: the installed releases aren't in the table of known defects"
        };
        check.ok(message, None)
    } else {
        check.problem(Status::Warning, messages.join(". "), None)
    }
}

fn shell(files: &dyn ImageFiles) -> Result<Finding, FileError> {
    let path = Some("/bin/sh".to_owned());
    Ok(match files.file("/bin/sh")? {
        Some(shell) if shell.is_executable => ImageCheck::Shell.ok("there", path),
        Some(_) => ImageCheck::Shell.problem(Status::Warning, "/bin/sh isn't executable", path),
        None => ImageCheck::Shell.problem(Status::Warning, "there is no /bin/sh", None),
    })
}

fn glibc(files: &dyn ImageFiles, libtaskd: Option<&FileFacts>) -> Result<Finding, FileError> {
    let check = ImageCheck::Glibc;
    for folder in LIBRARY_FOLDERS {
        let path = format!("{folder}/libc.so.6");
        let Some(libc) = files.file(&path)? else { continue };
        let elf = |facts: &FileFacts| facts.elf.map(|elf| elf.machine);
        if let Some(libtaskd) = libtaskd
            && elf(libtaskd).is_some()
            && elf(libtaskd) != elf(&libc)
        {
            let message = "libtaskd.so is for another processor than the image's C library";
            return Ok(check.problem(Status::Missing, message, Some(path)));
        }
        let needed = libtaskd.and_then(|libtaskd| libtaskd.needs_glibc);
        return Ok(match (libc.glibc, needed) {
            (Some(glibc), Some(needed)) if glibc < needed => check.problem(
                Status::Missing,
                format!("glibc {glibc}, but libtaskd.so needs {needed}"),
                Some(path),
            ),
            (Some(glibc), _) => check.ok(format!("glibc {glibc}"), Some(path)),
            (None, _) => check.ok("glibc of an unknown version", Some(path)),
        });
    }
    for path in MUSL {
        if files.file(path)?.is_some() {
            let message = "the C library is musl, for which TaskD and MindIO aren't built";
            return Ok(check.problem(Status::Missing, message, Some(path.to_owned())));
        }
    }
    Ok(check.problem(Status::Missing, "there is no C library", None))
}

#[cfg(test)]
mod tests {
    use swansong_api::documented::Documented as _;

    use super::*;

    #[test]
    fn releases_of_dist_info_folders() {
        for (name, expected) in [
            ("taskd-7.2.0.dist-info", Some(("taskd", "7.2.0"))),
            ("mindio_ttp-26.0.0.dist-info", Some(("mindio_ttp", "26.0.0"))),
            ("torch_npu-2.1.0.post8.dist-info", Some(("torch_npu", "2.1.0.post8"))),
            ("torchvision-0.16.dist-info", None),
            ("taskd", None),
        ] {
            assert_eq!(release(name), expected, "{name}");
        }
    }

    #[test]
    fn import_of_the_patch_is_recognised() {
        for (run_py, expected) in [
            ("import os\nimport taskd.python.adaptor.patch\n", true),
            ("from taskd.python.adaptor.patch import x", true),
            ("try:\n    import taskd.python.adaptor.patch\n", true),
            ("# import taskd.python.adaptor.patch\n", false),
            ("import os\n", false),
        ] {
            assert_eq!(imports_patch(run_py), expected, "{run_py}");
        }
    }

    #[test]
    fn every_check_has_a_meaning_and_a_remedy() {
        for check in ImageCheck::VARIANTS {
            assert!(check.meaning().ends_with('.') && check.remedy().ends_with('.'), "{check}");
        }
    }
}

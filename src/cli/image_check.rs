//! `swansong image-check`: shows what a training image lacks for a dying checkpoint.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use swansong_api::documented::Documented as _;

use anyhow::{Context as _, bail};
use swansong_agent::host::{HostRoot, running_container};
use swansong_image::{Archive, ImageFiles, Report, Search, check};

use super::files::printable;
use super::report_options::ReportOptions;

/// Show what a training image lacks for a dying checkpoint
///
/// The image is a tar file of `docker save`, of an OCI layout or of a root file system, or a folder with one. Nothing is
/// unpacked. With --container it is the one of a container that runs on this host, which needs the host's processes and
/// root. The JSON object is
/// {"findings": [{"check", "status", "message", "path"}], "releases": {package: release}, "site"}.
///
/// Exit status: 0; 1 if the image can't be read; with --fail-on-warning 2 if something is missing or doubtful.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct ImageCheck {
    /// A tar file, or a folder that is the image's root
    #[arg(value_name = "IMAGE", group = "what")]
    image: Option<PathBuf>,
    /// A running container: its id or the beginning of it, or the name or UID of a Pod
    #[arg(long, value_name = "NAME", group = "what")]
    container: Option<String>,
    /// Where the host's /proc is, for --container
    #[arg(long, value_name = "FOLDER", default_value = "/proc")]
    proc: PathBuf,
    #[command(flatten)]
    report: ReportOptions,
}

impl ImageCheck {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let report = match (&self.image, &self.container) {
            (Some(image), _) => of_path(image).with_context(|| image.display().to_string())?,
            (None, Some(name)) => self.of_container(name).with_context(|| format!("container {name}"))?,
            (None, None) => bail!("name an image or a container"),
        };
        self.report.print(&report, report.has_warnings(), page)
    }

    fn of_container(&self, name: &str) -> anyhow::Result<Report> {
        let process = match running_container(&self.proc, name)?.as_slice() {
            [process] => *process,
            [] => bail!("no process of it was found below {}", self.proc.display()),
            several => bail!("{} containers have this name; give the id of one", several.len()),
        };
        let root = HostRoot::open(&self.proc.join(process.to_string()).join("root"))?;
        Ok(check(&root, Search::Whole)?)
    }
}

fn of_path(path: &Path) -> anyhow::Result<Report> {
    let files: Box<dyn ImageFiles> =
        if path.is_dir() { Box::new(HostRoot::open(path)?) } else { Box::new(Archive::open(path)?) };
    Ok(check(files.as_ref(), Search::Whole)?)
}

fn page(report: &Report) -> String {
    let mut page = String::new();
    for finding in &report.findings {
        // Writing to a String can't fail.
        let (check, status) = (finding.check.to_string(), finding.status.to_string());
        let _ = writeln!(page, "{check:9} {status:8} {}", printable(&finding.message));
        if let Some(path) = &finding.path {
            let _ = writeln!(page, "{:18} {}", "", printable(path));
        }
        if finding.status != swansong_image::Status::Ok {
            let _ = writeln!(page, "{:18} {}", "", finding.check.remedy());
        }
    }
    page
}

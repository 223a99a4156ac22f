//! `swansong clusterd-config`: the file that makes ClusterD take Swansong's faults.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use swansong_clusterd::customization::{BUILT_IN, Customized, FILE, FOLDER, customize};
use swansong_clusterd::{Class, RESOURCE};

use super::files::{print, read_text};

/// Write the publicCustomization.json that makes ClusterD take Swansong's faults
///
/// Adds Swansong as a sender, and its fault codes, to the file given by -f; all that is there stays as it is, and what
/// has them already comes out unchanged. Without -f it starts from the list that is built into ClusterD, since the
/// file stands in that list's place. What was added is told on standard error. Install the result on the host of
/// ClusterD as /user1/mindx-dl/clusterd/publicCustomization.json, readable by ClusterD's user.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterdConfig {
    /// The publicCustomization.json that is there; `-` is standard input [default: ClusterD's built-in list]
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ClusterdConfig {
    /// Reads, adds, prints.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let (name, text) = match &self.file {
            Some(file) => read_text(file)?,
            None => ("the built-in list".to_owned(), BUILT_IN.to_owned()),
        };
        let customized =
            customize(&text).map_err(|refused| anyhow!(refused)).with_context(|| name.clone())?;
        tell(&name, &customized);
        print(&customized.text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What became of it, for people.
fn tell(name: &str, customized: &Customized) {
    let Customized { resource_added, added, elsewhere, .. } = customized;
    if *resource_added {
        eprintln!("added to {name}: sender {RESOURCE}");
    }
    for class in added {
        let (code, list) = (class.code(), class.list());
        eprintln!("added to {name}: {code} to {list}: {}", class.description());
    }
    for (class, list) in elsewhere {
        let (code, own) = (class.code(), Class::list(*class));
        eprintln!("warning: {name}: {code} stands in {list} instead of {own} and is left there");
    }
    if *resource_added || !added.is_empty() {
        eprintln!("install it as {FOLDER}/{FILE} on the host of ClusterD, which reads it within seconds");
    } else {
        eprintln!("nothing to add to {name}");
    }
}

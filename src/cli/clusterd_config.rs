//! `swansong clusterd-config`: writes the file that registers Swansong's faults with ClusterD.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use swansong_clusterd::customization::{BUILT_IN, Customized, FILE, FOLDER, customize};
use swansong_clusterd::{Class, RESOURCE};

use super::files::{print, read_text};

/// Write the publicCustomization.json that registers Swansong's faults with ClusterD
///
/// Adds Swansong as a sender, and its fault codes, to the file given by -f; existing entries are kept, and a file that
/// has them already is unchanged. Without -f it starts from ClusterD's built-in list, which the file replaces. A list of
/// what was added goes to standard error. Install the result on the host of
/// ClusterD as /user1/mindx-dl/clusterd/publicCustomization.json, readable by ClusterD's user.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterdConfig {
    /// The existing publicCustomization.json; `-` is standard input [default: ClusterD's built-in list]
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ClusterdConfig {
    /// Prints the customized file.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let (name, text) = match &self.file {
            Some(file) => read_text(file)?,
            None => ("the built-in list".to_owned(), BUILT_IN.to_owned()),
        };
        let customized = customize(&text).map_err(|error| anyhow!(error)).with_context(|| name.clone())?;
        report(&name, &customized);
        print(&customized.text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints what was added.
fn report(name: &str, customized: &Customized) {
    let Customized { resource_added, added, in_other_list, .. } = customized;
    if *resource_added {
        eprintln!("added to {name}: sender {RESOURCE}");
    }
    for class in added {
        let (code, list) = (class.code(), class.list());
        eprintln!("added to {name}: {code} to {list}: {}", class.description());
    }
    for (class, list) in in_other_list {
        let (code, own) = (class.code(), Class::list(*class));
        eprintln!("warning: {name}: {code} is in {list} instead of {own} and remains there");
    }
    if *resource_added || !added.is_empty() {
        eprintln!("install it as {FOLDER}/{FILE} on the host of ClusterD, which reads it within seconds");
    } else {
        eprintln!("nothing to add to {name}");
    }
}

//! The subcommand `testcluster image`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use swansong_testcluster::Error;
use swansong_testcluster::image::{DEFAULT_USER, ImageBuilder};

/// Make a container image from programs and files, without any registry.
#[derive(clap::Args)]
pub(crate) struct Image {
    /// Full name, such as localhost/swansong:dev.
    #[arg(long)]
    name: String,
    /// The tar file to write.
    #[arg(long, short)]
    output: PathBuf,
    /// A program, which brings the shared libraries it needs.
    #[arg(long = "program", value_name = "FILE=PATH", value_parser = parse_placement)]
    programs: Vec<(PathBuf, String)>,
    /// Any other file; its execute permission is kept in the image.
    #[arg(long = "file", value_name = "FILE=PATH", value_parser = parse_placement)]
    files: Vec<(PathBuf, String)>,
    /// An empty folder that all users may write to, such as /tmp.
    #[arg(long, value_name = "PATH")]
    scratch: Vec<String>,
    /// A word of the entrypoint; say it once for each word.
    #[arg(long, allow_hyphen_values = true)]
    entrypoint: Vec<String>,
    /// An environment variable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::parse_pair)]
    env: Vec<(String, String)>,
    /// Add a label to the image.
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::parse_pair)]
    label: Vec<(String, String)>,
    /// The user to run as.
    #[arg(long, default_value = DEFAULT_USER)]
    user: String,
    /// A folder to search first for shared libraries, for programs of another machine's kind.
    #[arg(long, value_name = "FOLDER")]
    library_path: Vec<PathBuf>,
    /// A shared library that no program needs by itself, but something that it loads.
    #[arg(long, value_name = "NAME")]
    library: Vec<String>,
}

impl Image {
    pub(crate) fn run(&self) -> Result<(), Error> {
        let mut image = ImageBuilder::new(&self.name).user(&self.user).entrypoint(self.entrypoint.clone());
        image = self.library_path.iter().fold(image, ImageBuilder::library_path);
        image = self.library.iter().fold(image, ImageBuilder::library);
        image = self.env.iter().fold(image, |image, (name, value)| image.env(name, value));
        image = self.label.iter().fold(image, |image, (name, value)| image.label(name, value));
        for (source, destination) in &self.programs {
            image = image.program(source, destination)?;
        }
        for (source, destination) in &self.files {
            let runs = fs::metadata(source).is_ok_and(|data| data.permissions().mode() & 0o111 != 0);
            image = image.file(source, destination, if runs { 0o755 } else { 0o644 })?;
        }
        for path in &self.scratch {
            image = image.folder(path, 0o1777)?;
        }
        let digest = image.write(&self.output)?;
        let _ = writeln!(io::stdout(), "{digest}");
        Ok(())
    }
}

fn parse_placement(text: &str) -> Result<(PathBuf, String), String> {
    let (source, destination) = super::parse_pair(text)?;
    Ok((source.into(), destination))
}

//! A container image that plays a training image.
//!
//! It holds stand-ins for libmspti.so and libtaskd.so where the documentation has them, and one
//! program, `train`, which prints what it sees (`training/train.c`). There is no shell in it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use swansong_inject::policy::{LIBMSPTI, LIBTASKD};
use swansong_testcluster::image::{ImageBuilder, ImageError};

/// The image's name.
pub const NAME: &str = "localhost/swansong-demo-training:1";

/// Where the training program is in the image.
pub const PROGRAM: &str = "/usr/local/bin/train";

const PRELOADED_SOURCE: &str = include_str!("../training/preloaded.c");
const TRAIN_SOURCE: &str = include_str!("../training/train.c");

/// Why the image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TrainingImageError {
    /// The C compiler refused the source.
    #[error("cc could not compile {what}: {output}")]
    Compile {
        what: String,
        /// What the compiler said.
        output: String,
    },
    /// A file or process operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        source: io::Error,
    },
    /// The image could not be put together.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Builds the image into `folder` and returns its tar file.
pub fn build(folder: &Path) -> Result<PathBuf, TrainingImageError> {
    let mut image = ImageBuilder::new(NAME).entrypoint([PROGRAM]);
    for path in [LIBMSPTI, LIBTASKD] {
        let library = compile_library(folder, file_name(path))?;
        image = image.file(&library, path, 0o755)?;
    }
    // The libraries need no more than the C library, which the program brings along.
    image = image.program(&compile_program(folder)?, PROGRAM)?;
    let tar = folder.join("swansong-demo-training.tar");
    image.write(&tar)?;
    Ok(tar)
}

/// Compiles the training program alone.
fn compile_program(folder: &Path) -> Result<PathBuf, TrainingImageError> {
    compile(folder, "train", TRAIN_SOURCE, &[])
}

fn compile_library(folder: &Path, name: &str) -> Result<PathBuf, TrainingImageError> {
    compile(folder, name, PRELOADED_SOURCE, &["-shared", "-fPIC", &format!("-DNAME=\"{name}\"")])
}

fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> Result<PathBuf, TrainingImageError> {
    let failed = |source| TrainingImageError::Io { what: format!("compile {name} with cc"), source };
    let path = folder.join(format!("{name}.c"));
    std::fs::write(&path, source).map_err(failed)?;
    let output = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-s", "-Wall", "-Wextra", "-Werror"]).args(flags);
    let result = cc.arg("-o").args([&output, &path]).stdin(Stdio::null()).output().map_err(failed)?;
    if result.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&result.stderr).trim().to_owned();
    Err(TrainingImageError::Compile { what: name.to_owned(), output: said })
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The program with nothing of this process's environment.
    fn train(program: &Path, env: &[(&str, &str)]) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn lines(output: &[u8]) -> Vec<String> {
        String::from_utf8_lossy(output).lines().map(|line| line.replace("swansong-demo: ", "")).collect()
    }

    #[test]
    fn a_rank_without_preload_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let program = compile_program(folder.path()).unwrap();
        let said = train(&program, &[]).output().unwrap();
        let said = lines(&said.stdout);
        let expected = [
            "rank 0 of 1",
            "not mapped libmspti.so",
            "not mapped libtaskd.so",
            "unset TTP_PORT",
            "unset POD_IP",
        ];
        assert_eq!(said[..expected.len()], expected);
    }

    #[test]
    fn preloaded_libraries_are_seen_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let program = compile_program(folder.path()).unwrap();
        let libraries =
            ["libmspti.so", "libtaskd.so"].map(|name| compile_library(folder.path(), name).unwrap());
        let preload = libraries.each_ref().map(|path| path.to_str().unwrap()).join(":");
        let said = train(&program, &[("LD_PRELOAD", &preload), ("POD_IP", "127.0.0.1")]).output().unwrap();
        assert!(said.status.success());
        let said = lines(&said.stdout);
        for library in &libraries {
            let name = library.file_name().unwrap().to_str().unwrap();
            assert!(said.contains(&format!("loaded {name}")), "{said:?}");
            assert!(said.contains(&format!("mapped {}", library.display())), "{said:?}");
        }
        assert!(said.contains(&"env POD_IP=127.0.0.1".to_owned()), "{said:?}");
    }

    #[test]
    fn ranks_find_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let program = compile_program(folder.path()).unwrap();
        // An address of loopback that no other test has, since 9601 can't be chosen.
        let address = "127.96.1.1";
        let ttp_port = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port().to_string();
        let common = [("TTP_PORT", ttp_port.as_str()), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2")];
        let zero = [("RANK", "0"), ("POD_IP", address)];
        let one = [("RANK", "1"), ("MASTER_ADDR", address)];
        // Rank 1 first: it has to try until rank 0 is there.
        let one = train(&program, &[&common[..], &one].concat()).spawn().unwrap();
        let zero = train(&program, &[&common[..], &zero].concat()).spawn().unwrap();
        let (one, zero) = (one.wait_with_output().unwrap(), zero.wait_with_output().unwrap());
        assert!(one.status.success() && zero.status.success());
        let (one, zero) = (lines(&one.stdout), lines(&zero.stdout));
        for (port, name) in [(ttp_port.as_str(), "ttp-port"), ("9601", "taskd-port")] {
            assert!(one.contains(&format!("reached {address}:{port} {name}")), "{one:?}");
            assert!(zero.contains(&format!("accepted rank 1 on {port}")), "{zero:?}");
        }
    }

    #[test]
    fn the_image_has_the_libraries_where_the_documentation_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let tar = build(folder.path()).unwrap();
        let listing = Command::new("tar").arg("-xOf").arg(&tar).arg("index.json").output().unwrap();
        assert!(String::from_utf8_lossy(&listing.stdout).contains(NAME));
    }
}

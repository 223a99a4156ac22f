//! A container image with Python and the fakes of torchrun, TaskD and MindIO, from this machine's own files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use swansong_api::preload::LIBMSPTI_PATHS;
use swansong_inject::policy::LIBMSPTI;
use swansong_testcluster::Error;
use swansong_testcluster::image::ImageBuilder;

use crate::install::repository;
use crate::io_error;

/// The image's name.
pub const NAME: &str = "localhost/swansong-fake-training:1";

/// The same with Python and TaskD at a place that no documentation has.
pub const UNUSUAL_NAME: &str = "localhost/swansong-fake-training-unusual:1";
/// The folder above its Python.
pub const UNUSUAL_PREFIX: &str = "/srv/py";

/// libtaskd.so in a site directory.
const LIBTASKD_IN_SITE: &str = "taskd/python/cython_api/libs/libtaskd.so";
/// Packages of the standard library that the fakes and the start of Python need.
const PACKAGES: [&str; 6] = ["collections", "encodings", "importlib", "json", "re", "urllib"];
/// The interpreter that `python3` starts, its standard library, and its version.
const QUERY: &str = "import os, sys, sysconfig; \
    print(os.path.realpath(sys.executable), sysconfig.get_path('stdlib'), '%d.%d' % sys.version_info[:2])";

/// The Python of a distribution that keeps what pip installs in `/usr/local`, as Debian and Ubuntu do.
struct Python {
    program: PathBuf,
    library: PathBuf,
    /// Such as 3.11.
    version: String,
    /// Where pip installs TaskD.
    site: String,
}

static PYTHON: LazyLock<Result<Python, String>> = LazyLock::new(|| {
    let output = Command::new("/usr/bin/python3").args(["-c", QUERY]).output();
    let output = output.map_err(|error| format!("/usr/bin/python3: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let [program, library, version] = text.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(format!("/usr/bin/python3: {}", String::from_utf8_lossy(&output.stderr)));
    };
    let site = format!("/usr/local/lib/python{version}/dist-packages");
    Ok(Python { program: program.into(), library: library.into(), version: version.to_owned(), site })
});

fn python() -> Result<&'static Python, Error> {
    PYTHON.as_ref().map_err(|reason| Error::Command { command: "python3".to_owned(), output: reason.clone() })
}

/// The image's site directory.
pub fn site() -> Result<&'static str, Error> {
    Ok(&python()?.site)
}

/// Where TaskD's wheel puts its library.
pub fn libtaskd() -> Result<String, Error> {
    Ok(format!("{}/{LIBTASKD_IN_SITE}", site()?))
}

/// The same in the image with the unusual places.
pub fn unusual_libtaskd() -> Result<String, Error> {
    Ok(format!("{}/{LIBTASKD_IN_SITE}", unusual_site()?))
}

fn unusual_library() -> Result<String, Error> {
    Ok(format!("{UNUSUAL_PREFIX}/lib/python{}", python()?.version))
}

fn unusual_site() -> Result<String, Error> {
    Ok(format!("{}/dist-packages", unusual_library()?))
}

/// Builds the image into `folder` and returns its tar file.
pub fn build(folder: &Path) -> Result<PathBuf, Error> {
    let Python { program, library, site, .. } = python()?;
    let image = ImageBuilder::new(NAME).program(program, "/usr/bin/python3")?;
    let image = image.file(&preloaded_library(folder)?, LIBMSPTI, 0o755)?;
    let tar = folder.join("fake-training.tar");
    complete(image, folder, &library.display().to_string(), site)?.write(&tar)?;
    Ok(tar)
}

/// Builds the image with everything at other places.
pub fn build_unusual(folder: &Path) -> Result<PathBuf, Error> {
    let Python { program, .. } = python()?;
    let mut image =
        ImageBuilder::new(UNUSUAL_NAME).program(program, &format!("{UNUSUAL_PREFIX}/bin/python3"))?;
    for program in ["find", "ln", "mkdir"] {
        image = image.program(&Path::new("/usr/bin").join(program), &format!("/usr/bin/{program}"))?;
    }
    let image = image.file(&preloaded_library(folder)?, LIBMSPTI_PATHS[1], 0o755)?;
    let tar = folder.join("fake-training-unusual.tar");
    complete(image, folder, &unusual_library()?, &unusual_site()?)?.write(&tar)?;
    Ok(tar)
}

/// Adds what both images have.
fn complete(
    mut image: ImageBuilder,
    folder: &Path,
    library: &str,
    site: &str,
) -> Result<ImageBuilder, Error> {
    image = image
        .program(Path::new("/bin/sh"), "/bin/sh")?
        .file(&folder.join("libtaskd.so"), &format!("{site}/{LIBTASKD_IN_SITE}"), 0o755)?
        // Without this folder Python warns at each start.
        .folder(&format!("{library}/lib-dynload"), 0o755)?;
    let standard = &python()?.library;
    let mut files = sources(standard, false)?;
    for package in PACKAGES {
        files.extend(sources(&standard.join(package), true)?);
    }
    let fakes = repository().join("tests/support/fake-training");
    let fakes_files = sources(&fakes, true)?;
    let of = |from: &Path, to: &str, files: Vec<PathBuf>| -> Vec<(PathBuf, String)> {
        let name = |file: &Path| file.strip_prefix(from).unwrap_or(file).display().to_string();
        files.into_iter().map(|file| (file.clone(), format!("{to}/{}", name(&file)))).collect()
    };
    for (file, name) in of(standard, library, files).into_iter().chain(of(&fakes, site, fakes_files)) {
        image = image.file(&file, &name, 0o644)?;
    }
    Ok(image)
}

/// A library without content that can be preloaded in place of both.
fn preloaded_library(folder: &Path) -> Result<PathBuf, Error> {
    let (source, output) = (folder.join("libtaskd.c"), folder.join("libtaskd.so"));
    fs::write(&source, "").map_err(io_error(format!("write {}", source.display())))?;
    let mut cc = Command::new("cc");
    let status = cc.args(["-shared", "-o"]).args([&output, &source]).status().map_err(io_error("run cc"))?;
    if status.success() {
        return Ok(output);
    }
    Err(Error::Command { command: "cc -shared".to_owned(), output: status.to_string() })
}

/// The Python files in a folder, and in those below it.
fn sources(folder: &Path, recursive: bool) -> Result<Vec<PathBuf>, Error> {
    let unreadable = || io_error(format!("read {}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable())? {
        let path = entry.map_err(unreadable())?.path();
        if path.is_dir() && recursive {
            files.extend(sources(&path, true)?);
        } else if path.extension().is_some_and(|extension| extension == "py") {
            files.push(path);
        }
    }
    Ok(files)
}

//! A container image with Python and the fakes of torchrun, TaskD and MindIO, from this machine's own files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use swansong_api::preload::LIBMSPTI_PATHS;
use swansong_inject::policy::LIBMSPTI;
use swansong_testcluster::image::ImageBuilder;

/// The image's name.
pub(crate) const NAME: &str = "localhost/swansong-fake-training:1";
/// The site directory of Debian's Python, where pip installs TaskD.
pub(crate) const SITE: &str = "/usr/local/lib/python3.11/dist-packages";
/// Where TaskD's wheel puts its library.
pub(crate) const LIBTASKD: &str =
    "/usr/local/lib/python3.11/dist-packages/taskd/python/cython_api/libs/libtaskd.so";

/// The same with Python and TaskD at a place that no documentation has.
pub(crate) const UNUSUAL_NAME: &str = "localhost/swansong-fake-training-unusual:1";
/// The place, and its site directory.
pub(crate) const UNUSUAL_PREFIX: &str = "/srv/py";
const UNUSUAL_SITE: &str = "/srv/py/lib/python3.11/dist-packages";

/// libtaskd.so in a site directory.
const LIBTASKD_IN_SITE: &str = "taskd/python/cython_api/libs/libtaskd.so";
const STANDARD_LIBRARY: &str = "/usr/lib/python3.11";
/// Packages of the standard library that the fakes and the start of Python need.
const PACKAGES: [&str; 6] = ["collections", "encodings", "importlib", "json", "re", "urllib"];

/// Builds the image into `folder` and returns its tar file.
pub(crate) fn build(folder: &Path) -> PathBuf {
    let image =
        ImageBuilder::new(NAME).program(Path::new("/usr/bin/python3.11"), "/usr/bin/python3").unwrap();
    let image = image.file(&library(folder), LIBMSPTI, 0o755).unwrap();
    let tar = folder.join("fake-training.tar");
    complete(image, folder, STANDARD_LIBRARY, SITE).write(&tar).unwrap();
    tar
}

/// Builds the image with everything at other places.
pub(crate) fn build_unusual(folder: &Path) -> PathBuf {
    let python = format!("{UNUSUAL_PREFIX}/bin/python3");
    let mut image =
        ImageBuilder::new(UNUSUAL_NAME).program(Path::new("/usr/bin/python3.11"), &python).unwrap();
    for program in ["find", "head", "ln", "mkdir"] {
        image = image.program(&Path::new("/usr/bin").join(program), &format!("/usr/bin/{program}")).unwrap();
    }
    let image = image.file(&library(folder), LIBMSPTI_PATHS[1], 0o755).unwrap();
    let tar = folder.join("fake-training-unusual.tar");
    complete(image, folder, &format!("{UNUSUAL_PREFIX}/lib/python3.11"), UNUSUAL_SITE).write(&tar).unwrap();
    tar
}

/// Adds what both images have.
fn complete(mut image: ImageBuilder, folder: &Path, standard_library: &str, site: &str) -> ImageBuilder {
    image = image
        .program(Path::new("/bin/sh"), "/bin/sh")
        .and_then(|image| {
            image.file(&folder.join("libtaskd.so"), &format!("{site}/{LIBTASKD_IN_SITE}"), 0o755)
        })
        // Without this folder Python warns at each start.
        .and_then(|image| image.folder(&format!("{standard_library}/lib-dynload"), 0o755))
        .unwrap();
    let standard = Path::new(STANDARD_LIBRARY);
    let packages = PACKAGES.iter().flat_map(|package| sources(&standard.join(package), true));
    for file in sources(standard, false).into_iter().chain(packages) {
        let name = file.strip_prefix(standard).unwrap().to_str().unwrap();
        image = image.file(&file, &format!("{standard_library}/{name}"), 0o644).unwrap();
    }
    let fakes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake-training");
    for file in sources(&fakes, true) {
        let name = file.strip_prefix(&fakes).unwrap().to_str().unwrap();
        image = image.file(&file, &format!("{site}/{name}"), 0o644).unwrap();
    }
    image
}

/// A library without content that can be preloaded in place of both.
fn library(folder: &Path) -> PathBuf {
    let (source, output) = (folder.join("libtaskd.c"), folder.join("libtaskd.so"));
    fs::write(&source, "").unwrap();
    let status = Command::new("cc").args(["-shared", "-o"]).args([&output, &source]).status().unwrap();
    assert!(status.success());
    output
}

/// The Python files in a folder, and in those below it.
fn sources(folder: &Path, recursive: bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() && recursive {
            files.extend(sources(&path, true));
        } else if path.extension().is_some_and(|extension| extension == "py") {
            files.push(path);
        }
    }
    files
}

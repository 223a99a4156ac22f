use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;

use super::*;

fn unpack(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        files.insert(name, contents);
    }
    files
}

fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let contents = &files[&format!("blobs/sha256/{digest}")];
    assert_eq!(crate::cache::hex(&<sha2::Sha256 as sha2::Digest>::digest(contents)), digest);
    assert_eq!(descriptor["size"].as_u64().unwrap(), contents.len() as u64);
    contents
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn everything_in_an_image_is_reached_from_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let tar = folder.path().join("image.tar");
    let image =
        ImageBuilder::new("localhost/a:b").entrypoint(["/a"]).arguments(["x"]).env("K", "V").label("l", "m");
    let digest = image.contents("hello", "/etc/a/hello", 0o644).unwrap().write(&tar).unwrap();

    let files = unpack(&tar);
    let index = json(&files["index.json"]);
    let entry = &index["manifests"][0];
    assert_eq!(entry["digest"], digest.as_str());
    assert_eq!(entry["annotations"]["io.containerd.image.name"], "localhost/a:b");
    let manifest = json(blob(&files, entry));
    let config = json(blob(&files, &manifest["config"]));
    assert_eq!(config["config"]["User"], DEFAULT_USER);
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/a"]));
    assert_eq!(config["config"]["Cmd"], serde_json::json!(["x"]));
    assert_eq!(config["config"]["Env"], serde_json::json!(["K=V"]));
    assert_eq!(config["config"]["Labels"]["l"], "m");
    assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);

    let layer = folder.path().join("layer.tar");
    fs::write(&layer, blob(&files, &manifest["layers"][0])).unwrap();
    let layer = unpack(&layer);
    assert_eq!(layer.keys().collect::<Vec<_>>(), ["etc/", "etc/a/", "etc/a/hello"]);
    assert_eq!(layer["etc/a/hello"], b"hello");
}

#[test]
fn the_same_contents_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, order: [&str; 2]| {
        let tar = folder.path().join(name);
        let image = order
            .iter()
            .try_fold(ImageBuilder::new("localhost/a:b"), |image, path| image.contents(*path, path, 0o644));
        image.unwrap().write(&tar).unwrap();
        fs::read(tar).unwrap()
    };
    assert_eq!(write("one", ["/a", "/b/c"]), write("two", ["/b/c", "/a"]));
}

#[test]
fn a_program_brings_its_loader_and_libraries() {
    let me = std::env::current_exe().unwrap();
    let image = ImageBuilder::new("localhost/me:1").program(&me, "/me").unwrap();
    let files = image.files();
    assert!(files.contains(&"me"));
    assert!(files.iter().any(|file| file.ends_with("/libc.so.6")), "{files:?}");
    assert!(files.iter().any(|file| file.contains("ld-linux")), "{files:?}");
    assert_eq!(image.architecture, Some(Architecture::HOST));
    // A second program with the same libraries fits beside it.
    image.program(&me, "/again").unwrap();
}

#[test]
fn a_program_brings_what_it_may_load() {
    let me = std::env::current_exe().unwrap();
    let brings = |image: ImageBuilder| {
        let image = image.program(&me, "/me").unwrap();
        image.files().iter().any(|file| file.ends_with("/libresolv.so.2"))
    };
    assert!(!brings(ImageBuilder::new("localhost/me:1")));
    assert!(brings(ImageBuilder::new("localhost/me:1").library("libresolv.so.2")));
    let missing = ImageBuilder::new("localhost/me:1").library("libnone.so.1").program(&me, "/me");
    assert!(matches!(missing, Err(ImageError::Library { .. })));
}

/// The header of an ELF file for AArch64 and nothing else.
fn foreign_program() -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[16] = 2; // type: executable file
    header[18] = 183; // machine: 64-bit ARM
    header[20] = 1;
    header[52] = 64;
    header
}

#[test]
#[cfg(target_arch = "x86_64")]
fn programs_for_two_machines_make_no_image() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), foreign_program()).unwrap();
    let image = ImageBuilder::new("localhost/a:b").program(file.path(), "/foreign").unwrap();
    assert_eq!(image.architecture, Some(Architecture::Arm64));
    let result = image.program(&std::env::current_exe().unwrap(), "/own");
    assert!(matches!(result, Err(ImageError::Architectures(..))));
}

#[test]
fn a_text_file_is_no_program() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "#!/bin/sh\n").unwrap();
    let result = ImageBuilder::new("localhost/a:b").program(file.path(), "/a");
    assert!(matches!(result, Err(ImageError::Elf { .. })));
}

#[test]
fn a_path_is_taken_once() {
    let image = ImageBuilder::new("localhost/a:b").contents("1", "/a", 0o644).unwrap();
    let image = image.contents("1", "/a", 0o644).unwrap();
    assert!(matches!(image.contents("2", "/a", 0o644), Err(ImageError::Taken(_))));
    let image = ImageBuilder::new("localhost/a:b").contents("1", "/a", 0o644).unwrap();
    assert!(matches!(image.contents("2", "/a/b", 0o644), Err(ImageError::Taken(_))));
}

#[test]
fn paths_stay_inside() {
    for path in ["a", "", "/", "/../a", "/a/../../b", "/./a"] {
        let result = ImageBuilder::new("localhost/a:b").contents("", path, 0o644);
        assert!(matches!(result, Err(ImageError::Path(_))), "{path}");
    }
}

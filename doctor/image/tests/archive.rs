//! Images in tar files: the formats, their layers, and what an image lacks.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use swansong_image::{Archive, ArchiveError, ImageCheck, Report, Search, Status, check};
use tempfile::TempDir;

const SITE: &str = "srv/py/lib/python3.11/site-packages";

enum Member<'m> {
    File(String, Vec<u8>),
    Link(&'m str, &'m str),
    HardLink(&'m str, &'m str),
    Folder(&'m str),
}
use Member::{File, Folder, HardLink, Link};

fn file(path: &str) -> Member<'_> {
    File(path.to_owned(), b"text".to_vec())
}

fn in_site<'m>(path: &str, content: &[u8]) -> Member<'m> {
    File(format!("{SITE}/{path}"), content.to_vec())
}

/// An x86-64 library with this text in it.
fn library(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    (bytes[16], bytes[18]) = (3, 62);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// An image that lacks nothing, with Python at an unusual place.
fn complete() -> Vec<Member<'static>> {
    vec![
        in_site("taskd/__init__.py", b""),
        in_site("taskd/python/cython_api/libs/libtaskd.so", &library("GLIBC_2.17\0GLIBC_2.4\0")),
        in_site("taskd/python/adaptor/patch.py", b""),
        in_site("taskd-99.0.0.dist-info/METADATA", b""),
        in_site("mindio_ttp/__init__.py", b""),
        in_site("mindio_ttp-99.0.0.dist-info/METADATA", b""),
        in_site("torch/distributed/run.py", b"import taskd.python.adaptor.patch\n"),
        in_site("torch-2.1.0.dist-info/METADATA", b""),
        Link("usr/local/Ascend/cann", "cann-8.5"),
        File("usr/local/Ascend/cann-8.5/lib64/libmspti.so".to_owned(), library("")),
        Link("bin", "usr/bin"),
        Link("usr/bin/sh", "dash"),
        file("usr/bin/dash"),
        Link("lib64", "usr/lib64"),
        File("usr/lib64/libc.so.6".to_owned(), library("stable release version 2.31.\n")),
    ]
}

fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    for member in members {
        let (kind, size) = match member {
            File(_, content) => (tar::EntryType::Regular, content.len()),
            Link(..) => (tar::EntryType::Symlink, 0),
            HardLink(..) => (tar::EntryType::Link, 0),
            Folder(_) => (tar::EntryType::Directory, 0),
        };
        header.set_entry_type(kind);
        header.set_size(size as u64);
        match member {
            File(path, content) => builder.append_data(&mut header, path, content.as_slice()).unwrap(),
            Link(path, target) | HardLink(path, target) => {
                builder.append_link(&mut header, path, target).unwrap();
            }
            Folder(path) => builder.append_data(&mut header, path, &[][..]).unwrap(),
        }
    }
    builder.into_inner().unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn docker(layers: &[Vec<u8>]) -> Vec<u8> {
    let name = |index: usize| format!("{index}/layer.tar");
    let mut members: Vec<Member<'_>> =
        layers.iter().enumerate().map(|(index, layer)| File(name(index), layer.clone())).collect();
    let names: Vec<String> = (0..layers.len()).map(|index| format!("{:?}", name(index))).collect();
    let manifest = format!("[{{\"Config\": \"c.json\", \"Layers\": [{}]}}]", names.join(","));
    members.push(File("manifest.json".to_owned(), manifest.into_bytes()));
    tar(&members)
}

fn oci(layers: &[Vec<u8>]) -> Vec<u8> {
    let digest = |index: usize| format!("{{\"digest\": \"sha256:{index}\"}}");
    let blob = |name: &str, content: &[u8]| File(format!("blobs/sha256/{name}"), content.to_vec());
    let mut members: Vec<Member<'_>> =
        layers.iter().enumerate().map(|(index, layer)| blob(&index.to_string(), &gzip(layer))).collect();
    let layers: Vec<String> = (0..layers.len()).map(digest).collect();
    members.push(blob("m", format!("{{\"layers\": [{}]}}", layers.join(",")).as_bytes()));
    let platforms = [("unknown", "unknown", "x"), ("linux", "arm64", "m"), ("linux", "amd64", "m")];
    let manifests = platforms.map(|(os, architecture, name)| {
        format!("{{\"digest\": \"sha256:{name}\", \"platform\": {{\"os\": {os:?}, \"architecture\": {architecture:?}}}}}")
    });
    members.push(blob("i", format!("{{\"manifests\": [{}]}}", manifests.join(",")).as_bytes()));
    members.push(File("index.json".to_owned(), b"{\"manifests\": [{\"digest\": \"sha256:i\"}]}".to_vec()));
    tar(&members)
}

fn written(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.tar");
    std::fs::write(&path, content).unwrap();
    (folder, path)
}

fn report(image: &[u8]) -> Report {
    let (_folder, path) = written(image);
    check(&Archive::open(&path).unwrap(), Search::Whole).unwrap()
}

fn problems(report: &Report) -> Vec<(ImageCheck, Status)> {
    let findings = report.findings.iter().filter(|finding| finding.status != Status::Ok);
    findings.map(|finding| (finding.check, finding.status)).collect()
}

#[test]
fn complete_image_is_read_in_each_format() {
    let layers = [tar(&complete()[..7]), tar(&complete()[7..])];
    for image in [docker(&layers), oci(&layers), tar(&complete())] {
        let report = report(&image);
        assert_eq!(problems(&report), [], "{report:?}");
        assert_eq!(report.site.as_deref(), Some(format!("/{SITE}").as_str()));
        let releases: Vec<_> =
            report.releases.iter().map(|(name, release)| format!("{name} {release}")).collect();
        assert_eq!(releases, ["mindio_ttp 99.0.0", "taskd 99.0.0", "torch 2.1.0"]);
    }
}

#[test]
fn each_missing_part_is_named() {
    let missing = Status::Missing;
    let taskd = format!("{SITE}/taskd/python/cython_api/libs/libtaskd.so");
    let moved = format!("{SITE}/moved.so");
    let cases: [(Vec<&str>, Vec<Member<'_>>, ImageCheck, Status); 13] = [
        (vec!["/taskd"], vec![], ImageCheck::Taskd, missing),
        (vec!["libtaskd.so"], vec![], ImageCheck::Taskd, missing),
        (
            vec!["libtaskd.so"],
            vec![File(moved.clone(), library("")), Link(&taskd, "../../../../moved.so")],
            ImageCheck::Taskd,
            missing,
        ),
        (vec!["libtaskd.so"], vec![file(&taskd)], ImageCheck::Taskd, missing),
        (vec!["mindio_ttp"], vec![], ImageCheck::Mindio, missing),
        (
            vec!["taskd-99"],
            vec![in_site("taskd-7.1.0.dist-info/METADATA", b"")],
            ImageCheck::Releases,
            Status::Warning,
        ),
        (vec!["libmspti"], vec![], ImageCheck::Libmspti, Status::Warning),
        (vec!["torch"], vec![], ImageCheck::Launcher, missing),
        (vec!["adaptor"], vec![], ImageCheck::Launcher, missing),
        (
            vec!["run.py"],
            vec![in_site("torch/distributed/run.py", b"import os\n")],
            ImageCheck::Launcher,
            Status::Warning,
        ),
        (vec!["bin/"], vec![], ImageCheck::Shell, Status::Warning),
        (vec!["libc.so"], vec![file("lib/ld-musl-x86_64.so.1")], ImageCheck::Glibc, missing),
        (
            vec!["libc.so"],
            vec![File("usr/lib64/libc.so.6".to_owned(), library("release version 2.12"))],
            ImageCheck::Glibc,
            missing,
        ),
    ];
    for (removed, added, expected, status) in cases {
        let mut members = complete();
        members.retain(|member| match member {
            File(path, _) => !removed.iter().any(|part| path.contains(part)),
            _ => true,
        });
        members.extend(added);
        let report = report(&tar(&members));
        let found: Vec<_> = problems(&report).into_iter().filter(|(check, _)| *check == expected).collect();
        assert_eq!(found, [(expected, status)], "{removed:?}: {report:?}");
    }
}

#[test]
fn upper_layers_remove_from_lower_ones() {
    let lower = tar(&complete());
    let whiteout = |path: &str| File(path.to_owned(), Vec::new());
    for (upper, lost) in [
        (vec![whiteout("srv/py/lib/python3.11/site-packages/.wh.mindio_ttp")], Some(ImageCheck::Mindio)),
        (
            vec![whiteout("srv/py/lib/python3.11/site-packages/mindio_ttp/.wh..wh..opq")],
            Some(ImageCheck::Mindio),
        ),
        // The new file of the same layer stays in any order.
        (
            vec![
                in_site("mindio_ttp/new.py", b""),
                whiteout("srv/py/lib/python3.11/site-packages/mindio_ttp/.wh..wh..opq"),
            ],
            None,
        ),
        (vec![whiteout(".wh.srv")], Some(ImageCheck::Taskd)),
        (vec![Folder("usr/bin/sh")], Some(ImageCheck::Shell)),
        (vec![HardLink("usr/bin/bash", "usr/bin/dash"), Link("usr/bin/sh", "bash")], None),
    ] {
        let report = report(&docker(&[lower.clone(), tar(&upper)]));
        let found = problems(&report).into_iter().map(|(check, _)| check).next();
        assert_eq!(found, lost, "{report:?}");
    }
}

#[test]
fn unreadable_images_are_refused_with_the_remedy() {
    let layer = tar(&complete());
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd];
    zstd.extend_from_slice(&layer);
    let cut = docker(std::slice::from_ref(&layer));
    let several = tar(&[File("manifest.json".to_owned(), b"[{\"Layers\": []}, {\"Layers\": []}]".to_vec())]);
    let nowhere = tar(&[File("manifest.json".to_owned(), b"[{\"Layers\": [\"x\"]}]".to_vec())]);
    for (image, expected) in [
        (gzip(&layer), "decompress it first"),
        (docker(&[zstd]), "zstd"),
        (cut[..cut.len() / 2].to_vec(), "end of file"),
        (several, "2 images"),
        (nowhere, "x isn't in the tar file"),
        (tar(&[File("manifest.json".to_owned(), b"{}".to_vec())]), "manifest.json isn't as docker"),
        (tar(&[File("index.json".to_owned(), b"{\"manifests\": []}".to_vec())]), "no layers"),
        (docker(&[gzip(&layer)[..200].to_vec()]), "deflate"),
        (b"not a tar file, but long enough to be one ".repeat(20), "isn't a tar file"),
    ] {
        let (_folder, path) = written(&image);
        let error = Archive::open(&path).map(|_| ()).expect_err(expected).to_string();
        assert!(error.to_lowercase().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn long_names_are_read_and_endless_ones_refused() {
    let deep = format!("srv/{}/site-packages", "x".repeat(150));
    let member = |path: &str| File(format!("{deep}/{path}"), library(""));
    let image = tar(&[member("taskd/python/cython_api/libs/libtaskd.so"), member("taskd/__init__.py")]);
    assert_eq!(report(&image).site, Some(format!("/{deep}")));

    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    let (_folder, path) = written(header.as_bytes());
    assert!(matches!(Archive::open(&path), Err(ArchiveError::Io(_))));
}

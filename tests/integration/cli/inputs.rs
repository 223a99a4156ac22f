//! Job files of MindCluster's repository and programs, if they are available.

use std::path::{Path, PathBuf};

use crate::support::{files, run};

/// The files in the folder beside the repository; empty, with a message, if it doesn't exist.
fn inputs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/inputs");
    if !folder.is_dir() {
        eprintln!("skipped: {} isn't there", folder.display());
        return Vec::new();
    }
    files(&folder).into_iter().chain(files(&folder.join("pods"))).collect()
}

#[test]
fn a_second_injection_changes_nothing() {
    for path in inputs() {
        let once = run(&["inject", "-f", &path.to_string_lossy()], "").output();
        assert!(run(&["inject"], &once).output() == once, "{}", path.display());
    }
}

#[test]
fn uninject_restores_the_same_bytes() {
    for path in inputs() {
        let original = std::fs::read_to_string(&path).expect("a text");
        let injected = run(&["inject"], &original).output();
        assert!(run(&["uninject"], &injected).output() == original, "{}", path.display());
    }
}

#[test]
fn only_lines_are_added_to_yaml() {
    for path in inputs().into_iter().filter(|path| path.extension().is_some_and(|it| it == "yaml")) {
        let original = std::fs::read_to_string(&path).expect("a text");
        let injected = run(&["inject"], &original).output();
        let mut lines = injected.lines();
        assert!(original.lines().all(|line| lines.any(|other| other == line)), "{}", path.display());
    }
}

#[test]
fn every_input_can_be_explained() {
    for path in inputs() {
        let name = path.to_string_lossy().into_owned();
        let text = run(&["explain", "-f", &name], "").output();
        let json = run(&["explain", "-o", "json", "-f", &name], "").json();
        let documents = json[0]["documents"].as_array().expect("an array");
        assert!(!documents.is_empty(), "{name}");
        for document in documents {
            assert!(text.contains(document["name"].as_str().expect("a name")), "{name}\n{text}");
        }
    }
}

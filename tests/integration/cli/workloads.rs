//! Injection of the fixtures: the output, a second injection and the undo.

use std::path::{Path, PathBuf};

use crate::support::{assert_expected, files, run, workloads};

fn all() -> impl Iterator<Item = (String, PathBuf)> {
    files(&workloads()).into_iter().map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, path)
    })
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a text")
}

#[test]
fn injected_files_are_as_expected() {
    for (name, _) in all() {
        let run = run(&["inject", "-f", &name], "");
        assert_expected(&format!("{name}.warnings"), &run.stderr);
        assert_expected(&name, &run.output());
    }
}

#[test]
fn explanations_are_as_expected() {
    for (name, _) in all() {
        assert_expected(&format!("{name}.txt"), &run(&["explain", "-f", &name], "").output());
    }
}

#[test]
fn a_second_injection_changes_nothing() {
    for (name, _) in all() {
        let once = run(&["inject", "-f", &name], "").output();
        assert!(run(&["inject"], &once).output() == once, "{name}");
    }
}

#[test]
fn uninject_restores_the_same_bytes() {
    for (name, path) in all() {
        let injected = run(&["inject", "-f", &name], "").output();
        let undone = run(&["uninject"], &injected).output();
        let original = text(&path);
        if name == "shared.yaml" || name == "volcano-job.yaml" || name == "pods-unusual.yaml" {
            // Aliases were expanded, `~` became `null`, and a folded scalar a plain one.
            let objects = |text: &str| run(&["inject", "-o", "json"], text).json();
            assert_eq!(objects(&undone), objects(&original), "{name}");
        } else {
            assert!(undone == original, "{name}:\n{undone}");
        }
    }
}

#[test]
fn comments_are_kept() {
    for (name, path) in all().filter(|(name, _)| name != "shared.yaml" && name != "volcano-job.yaml") {
        let injected = run(&["inject", "-f", &name], "").output();
        let mut lines = injected.lines();
        let lost: Vec<_> = text(&path)
            .lines()
            .filter(|line| line.trim_start().starts_with('#'))
            .filter(|comment| !lines.any(|line| line == *comment))
            .map(str::to_owned)
            .collect();
        assert!(lost.is_empty(), "{name}: {lost:?}");
    }
}

#[test]
fn json_and_yaml_output_are_equal() {
    for (name, _) in all() {
        let yaml = run(&["inject", "-f", &name], "").output();
        let json = run(&["inject", "-o", "json", "-f", &name], "").output();
        assert_eq!(run(&["inject", "-o", "json"], yaml).output(), json, "{name}");
    }
}

#[test]
fn the_patch_results_in_the_injected_object() {
    for (name, path) in all() {
        let original = text(&path);
        // Without a strategy the output is the unchanged input as JSON.
        let plain = original.replace("recover-strategy", "not-a-strategy");
        let restore = |value: serde_json::Value| {
            let text = value.to_string().replace("not-a-strategy", "recover-strategy");
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
        };
        let mut before: Vec<_> =
            run(&["inject", "-o", "json"], plain).json().into_iter().map(restore).collect();
        let after = run(&["inject", "-o", "json", "-f", &name], "").json();
        let patches = run(&["inject", "-o", "patch", "-f", &name], "").json().remove(0);
        for entry in patches.as_array().expect("an array") {
            let patch: json_patch::Patch = serde_json::from_value(entry["patch"].clone()).expect("a patch");
            let target = before
                .iter_mut()
                .find(|object| {
                    object["kind"] == entry["kind"]
                        && object["metadata"]["name"].as_str().unwrap_or_default() == entry["name"]
                })
                .expect("the object");
            json_patch::patch(target, &patch).expect("it applies");
        }
        assert_eq!(before, after, "{name}");
    }
}

//! What each crate may depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::env;

use serde_json::Value;

use crate::{files, output, read};

/// Crates that know no runtime, client or server.
const PURE: &[&str] =
    &["swansong-api", "swansong-clusterd", "swansong-fault-model", "swansong-inject", "swansong-trainer"];

/// What a pure crate never depends on, directly or indirectly.
const IMPURE: &[&str] = &["axum", "hyper", "kube", "reqwest", "tokio", "tonic", "tower"];

/// A crate of this repository.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder, relative to the root; empty for the root package.
    pub(crate) folder: String,
    /// The crates of this repository that it is built with, without those that only its tests use.
    pub(crate) uses: BTreeSet<String>,
}

impl Package {
    /// Whether it is only used by tests, benchmarks and the demo.
    pub(crate) fn is_for_tests(&self) -> bool {
        self.folder.starts_with("tests/") || self.folder.ends_with("/fake")
    }
}

fn cargo() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// All crates of this repository, from `cargo metadata`. The prefix `swansong-` is left out of names.
pub(crate) fn packages() -> Vec<Package> {
    let metadata = output(&cargo(), &["metadata", "--format-version=1", "--no-deps", "--locked"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let short = |name: &Value| name.as_str().unwrap().trim_start_matches("swansong-").to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let read = |package: &Value| Package {
        name: short(&package["name"]),
        folder: package["manifest_path"].as_str().unwrap()[crate::ROOT.len() + 1..]
            .trim_end_matches("Cargo.toml")
            .trim_end_matches('/')
            .to_owned(),
        uses: package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|dependency| dependency["path"].is_string() && dependency["kind"].is_null())
            .map(|dependency| short(&dependency["name"]))
            .collect(),
    };
    let mut packages: Vec<Package> = packages.map(read).collect();
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    packages
}

/// The table in docs/architecture.md: what each crate may depend on.
fn may_use() -> BTreeMap<String, Vec<String>> {
    let page = read("docs/architecture.md");
    let table = page.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    let rows = table.map_while(|line| line.strip_prefix("| "));
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    rows.map(|row| {
        let mut cells = row.split('|');
        (names(cells.next().unwrap()).remove(0), names(cells.next().unwrap()))
    })
    .collect()
}

#[test]
fn crates_use_only_what_they_may() {
    let packages = packages();
    let may_use = may_use();
    let tests: BTreeSet<_> =
        packages.iter().filter(|package| package.is_for_tests()).map(|package| &package.name).collect();
    for Package { name, uses, .. } in packages.iter().filter(|package| !package.is_for_tests()) {
        let for_tests: Vec<_> = uses.iter().filter(|used| tests.contains(used)).collect();
        assert!(for_tests.is_empty(), "{name} is built with {for_tests:?}, which are for tests");
        if name == "swansong" {
            continue;
        }
        let allowed =
            may_use.get(name).unwrap_or_else(|| panic!("docs/architecture.md has no row for {name}"));
        let wrong: Vec<_> = uses.iter().filter(|used| !allowed.contains(used)).collect();
        assert!(wrong.is_empty(), "{name} uses {wrong:?} but may use only {allowed:?}");
    }
}

#[test]
fn pure_crates_know_no_runtime_client_or_server() {
    for name in PURE {
        let tree = output(
            &cargo(),
            &["tree", "--locked", "--edges=normal", "--prefix=none", "--format={p}", "--package", name],
        );
        let wrong: BTreeSet<_> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .filter(|used| IMPURE.contains(used))
            .collect();
        assert!(
            wrong.is_empty(),
            "{name} depends on {wrong:?}; cargo tree --package {name} --invert shows how"
        );
    }
}

/// Tests and benchmarks of one package may share a file.
#[test]
fn no_file_is_compiled_into_two_packages() {
    let folders: Vec<String> = packages().into_iter().map(|package| package.folder).collect();
    let owner = |file: &str| {
        folders.iter().filter(|folder| file.starts_with(*folder)).max_by_key(|folder| folder.len())
    };
    for file in
        files().iter().filter(|file| file.ends_with(".rs") && !file.starts_with("tests/integration/layout/"))
    {
        for other in
            read(file).lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.split('"').next())
        {
            let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
            let mut path: Vec<&str> = folder.split('/').collect();
            for step in other.split('/') {
                if step == ".." {
                    path.pop();
                } else {
                    path.push(step);
                }
            }
            assert_eq!(owner(&path.join("/")), owner(file), "{file}: share {other} through a crate");
        }
    }
}

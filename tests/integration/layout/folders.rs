//! The table of folders in CONTRIBUTING.md.

use std::collections::BTreeSet;
use std::path::Path;

use crate::crates::packages;
use crate::{files, read};

/// Folders whose own folders are listed, too.
const OPENED: &[&str] = &["src", "tests", "tests/e2e", "tests/integration", "tests/support"];

#[test]
fn contributing_lists_every_folder() {
    let table = read("CONTRIBUTING.md");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("/` |"));
    let listed: BTreeSet<String> = rows.map(|(folder, _)| folder.to_owned()).collect();
    let mut expected: BTreeSet<String> = packages().into_iter().map(|package| package.folder).collect();
    for file in files() {
        for (end, _) in file.match_indices('/') {
            let above = file[..end].rsplit_once('/').map_or("", |(above, _)| above);
            if above.is_empty() || OPENED.contains(&above) {
                expected.insert(file[..end].to_owned());
            }
        }
    }
    expected.remove("");
    let missing: Vec<_> = expected.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&expected).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "CONTRIBUTING.md lacks {missing:?} and lists {unknown:?}"
    );
}

/// Pages that name files of the repository from its root, or from the page's folder.
#[test]
fn files_that_pages_name_exist() {
    let mut missing = Vec::new();
    for page in ["CONTRIBUTING.md", "docs/architecture.md", "tests/README.md"] {
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
        let text = read(page);
        for name in
            text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs") && name.contains('/'))
        {
            let root = Path::new(crate::ROOT);
            if !root.join(name).is_file() && !root.join(folder).join(name).is_file() {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_root_has_at_most_ten_folders() {
    let files = files();
    let folders: BTreeSet<_> =
        files.iter().filter_map(|file| file.split_once('/')).map(|(folder, _)| folder).collect();
    let folders: Vec<_> = folders.into_iter().filter(|folder| !folder.starts_with('.')).collect();
    assert!(folders.len() <= 10, "{folders:?}");
}

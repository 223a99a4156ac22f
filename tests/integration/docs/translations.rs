//! Chinese pages against the English ones: the same structure, commands and files.

use std::path::PathBuf;

use crate::{prose, read, root};

/// The pages that exist in both languages.
fn pairs() -> [(PathBuf, PathBuf); 3] {
    let page = |path: &str| root().join(path);
    [
        (page("README.md"), page("README.zh.md")),
        (page("docs/install.md"), page("docs/zh/install.md")),
        (page("docs/troubleshooting.md"), page("docs/zh/troubleshooting.md")),
    ]
}

/// The level of each heading, such as `##`.
fn levels(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| line.chars().take_while(|c| *c == '#').collect()).collect()
}

/// The lines of fenced blocks without comments, which are translated.
fn commands(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            commands.push(line.to_owned());
        } else if fenced {
            let line = line.split("  #").next().unwrap_or_default().split(" # ").next().unwrap_or_default();
            let line = line.trim_end();
            if !line.trim_start().starts_with('#') {
                commands.push(line.to_owned());
            }
        }
    }
    commands
}

/// The commands within the cells of tables.
fn table_commands(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let spans = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    spans.filter(|span| span.starts_with("kubectl ") || span.starts_with("swansong ")).collect()
}

fn rows(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("| ")).count()
}

#[test]
fn translations_have_the_structure_and_commands_of_the_original() {
    for (english, chinese) in pairs() {
        let (original, translation) = (read(&english), read(&chinese));
        let page = chinese.display();
        assert_eq!(levels(&translation), levels(&original), "{page}");
        assert_eq!(commands(&translation), commands(&original), "{page}");
        assert_eq!(rows(&translation), rows(&original), "{page}");
        assert_eq!(table_commands(&translation), table_commands(&original), "{page}");
    }
}

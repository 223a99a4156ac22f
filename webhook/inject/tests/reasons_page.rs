//! docs/reasons.md lists every reason, in the order and words of the code.

use std::fs;

use swansong_inject::reason::Reason;

#[test]
fn the_page_lists_every_reason() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reasons.md");
    let page = fs::read_to_string(path).expect("docs/reasons.md");
    let rows: Vec<String> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").take(2).collect::<Vec<_>>().join(" | "))
        .collect();
    let expected: Vec<String> =
        Reason::ALL.iter().map(|reason| format!("| `{reason}` | {}", reason.description().trim())).collect();
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected, "docs/reasons.md");
    }
    assert_eq!(rows.len(), expected.len(), "docs/reasons.md has too few rows or too many");
}

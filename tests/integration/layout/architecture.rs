//! The picture of the crates in docs/architecture.md, drawn from `cargo metadata`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::crates::packages;
use crate::read;

const PAGE: &str = "docs/architecture.md";
const BEGIN: &str = "```mermaid\n";
const END: &str = "```\n";

/// The product's crates as a Mermaid diagram: arrows to what each uses, without those that follow from others.
fn picture() -> String {
    let packages = packages();
    let product: Vec<_> = packages.iter().filter(|package| !package.is_for_tests()).collect();
    let uses = |name: &str| product.iter().find(|package| package.name == name).map(|package| &package.uses);
    let mut picture = "graph TD\n".to_owned();
    for package in &product {
        let folder = if package.folder.is_empty() { "src" } else { &package.folder };
        writeln!(picture, "    {}[\"{}<br/>{folder}/\"]", package.name, package.name).unwrap();
    }
    for package in &product {
        for used in &package.uses {
            if !package.uses.iter().any(|other| other != used && reaches(&uses, other, used)) {
                writeln!(picture, "    {} --> {used}", package.name).unwrap();
            }
        }
    }
    picture
}

/// Whether the crate `from` depends on `to`, directly or through others.
fn reaches<'a>(uses: &dyn Fn(&str) -> Option<&'a BTreeSet<String>>, from: &str, to: &str) -> bool {
    uses(from).is_some_and(|used| used.contains(to) || used.iter().any(|next| reaches(uses, next, to)))
}

/// `INSTA_UPDATE=always` draws it again.
#[test]
fn the_picture_shows_the_crates_as_they_are() {
    let page = read(PAGE);
    let start = page.find(BEGIN).expect("a mermaid block") + BEGIN.len();
    let end = start + page[start..].find(END).expect("the end of the mermaid block");
    let picture = picture();
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        let page = format!("{}{picture}{}", &page[..start], &page[end..]);
        std::fs::write(std::path::Path::new(crate::ROOT).join(PAGE), page).unwrap();
        return;
    }
    assert_eq!(
        &page[start..end],
        picture,
        "renew {PAGE}: INSTA_UPDATE=always cargo test --test integration-layout"
    );
}

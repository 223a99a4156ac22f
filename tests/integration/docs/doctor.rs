//! The page of `swansong doctor` against its checks.

use std::fmt::Write as _;
use swansong_api::documented::Documented as _;

use strum::VariantArray as _;
use swansong_doctor::checks::{Area, Link};

use crate::{anchors, prose, read, root};

/// Everything behind this line is written by the test.
const MARK: &str = "## The checks\n";

fn title(area: Area) -> &'static str {
    match area {
        Area::Installation => "Installation",
        Area::Cluster => "MindCluster",
        Area::Job => "A job and what belongs to it",
        Area::Pods => "The Pods of a job",
        Area::Nodes => "Nodes",
    }
}

fn written() -> String {
    let mut text = format!(
        "{MARK}\nEach has the name that the output shows, what it reads, and what to do when it doesn't pass.\n"
    );
    for area in Area::VARIANTS {
        write!(text, "\n## {}\n", title(*area)).expect("memory");
        for link in Link::ALL.iter().filter(|link| link.area() == *area) {
            let (name, meaning, remedy) = (link.as_str(), link.meaning(), link.remedy());
            write!(text, "\n### {name}\n\n{meaning}\n**What to do:** {remedy}\n").expect("memory");
        }
    }
    text
}

#[test]
fn page_of_the_doctor_has_every_check() {
    let path = root().join("docs/doctor.md");
    let page = read(&path);
    let (before, shown) = page.split_once(MARK).expect("the heading of the checks");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, format!("{before}{}", written())).expect("writable");
        return;
    }
    assert_eq!(
        format!("{MARK}{shown}"),
        written(),
        "renew it: INSTA_UPDATE=always cargo test --test integration-docs"
    );
}

/// The output links to these places.
#[test]
fn places_that_the_doctor_names_exist() {
    let mut seen = 0;
    for link in Link::ALL {
        assert!(link.meaning().ends_with('.') && link.remedy().ends_with('.'), "{link:?}");
        let words = link.remedy().split_whitespace().map(str::to_owned);
        for place in words.filter(|word| word.starts_with("docs/")).chain([link.docs()]) {
            let (file, anchor) = place.split_once('#').expect("an anchor");
            assert!(anchors(&prose(&read(&root().join(file)))).contains(anchor), "{place}");
            seen += 1;
        }
    }
    assert!(seen > Link::ALL.len(), "{seen}");
}

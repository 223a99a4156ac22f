//! The tables of docs/trainer.md are generated from the code.

use std::{env, fs};
use swansong_api::documented::Documented as _;

use swansong_trainer::releases::defects;
use swansong_trainer::{Effect, TrainerReason};

#[test]
fn page_has_the_reasons_and_releases_of_the_code() {
    let reasons = TrainerReason::ALL.iter().map(|reason| {
        let effect: &str = reason.effect().into();
        format!("| `{reason}` | `{effect}` | {} | {} |\n", reason.meaning(), reason.remedy())
    });
    let releases = defects().into_iter().map(|defect| {
        let (since, fixed_in) =
            (defect.since.unwrap_or("always"), defect.fixed_in.unwrap_or("no release yet"));
        let (components, commits) = (defect.components.join(", "), defect.commits.join(", "));
        format!("| {components} | {} | {since} | {fixed_in} | {commits} |\n", defect.description)
    });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trainer.md");
    let page = fs::read_to_string(path).expect("docs/trainer.md");
    let expected = with_table(
        &page,
        "| reason | effect | meaning | what to do |\n|---|---|---|---|\n",
        &reasons.collect::<String>(),
    );
    let expected = with_table(
        &expected,
        "| component | defect | since | fixed in | commits |\n|---|---|---|---|---|\n",
        &releases.collect::<String>(),
    );
    if env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(path, &expected).expect("docs/trainer.md is writable");
    } else {
        assert!(
            page == expected,
            "run `INSTA_UPDATE=always cargo test -p swansong-trainer --test trainer_page`"
        );
    }
}

fn with_table(page: &str, header: &str, rows: &str) -> String {
    let (before, after) = page.split_once(header).expect("the table");
    let rest =
        if after.starts_with('|') { after.find("\n\n").map_or("", |end| &after[end + 1..]) } else { after };
    format!("{before}{header}{rows}{rest}")
}

#[test]
fn each_reason_has_a_meaning_and_a_remedy() {
    for reason in TrainerReason::ALL {
        for sentence in [reason.meaning(), reason.remedy()] {
            assert!(sentence.ends_with('.') && !sentence.contains('\n'), "{reason}: {sentence:?}");
        }
    }
    assert!(TrainerReason::ALL.iter().any(|reason| reason.effect() == Effect::Unsure));
}

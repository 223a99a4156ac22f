//! The table of docs/reasons.md is generated from the code.

use std::{env, fs};
use swansong_api::documented::Documented as _;

use swansong_inject::reason::Reason;

const HEADER: &str = "| reason | meaning | what to do |\n|---|---|---|\n";

#[test]
fn page_has_the_reasons_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reasons.md");
    let page = fs::read_to_string(path).expect("docs/reasons.md");
    let (before, after) = page.split_once(HEADER).expect("a table of reasons");
    let rows: Vec<String> = Reason::ALL
        .iter()
        .map(|reason| format!("| `{reason}` | {} | {} |\n", reason.meaning(), reason.remedy()))
        .collect();
    let rows = rows.concat();
    let rest = after.find("\n\n").map_or("", |end| &after[end + 1..]);
    let expected = format!("{before}{HEADER}{rows}{rest}");
    if env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(path, &expected).expect("docs/reasons.md is writable");
    } else {
        assert!(
            page == expected,
            "run `INSTA_UPDATE=always cargo test -p swansong-inject --test reasons_page`"
        );
    }
}

#[test]
fn each_reason_has_a_meaning_and_a_remedy() {
    for reason in Reason::ALL {
        for sentence in [reason.meaning(), reason.remedy()] {
            assert!(sentence.ends_with('.') && !sentence.contains('\n'), "{reason}: {sentence:?}");
        }
    }
}

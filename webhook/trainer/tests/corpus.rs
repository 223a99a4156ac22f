//! Start scripts with the verdicts and reasons that their first lines expect.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use swansong_api::documented::Documented as _;

use swansong_trainer::{Report, Setting, Source, read_script};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

struct Case {
    name: String,
    text: String,
}

impl Case {
    /// The value of a line `# KEY: VALUE`.
    fn header(&self, key: &str) -> Option<&str> {
        let start = format!("# {key}:");
        self.text.lines().take(8).find_map(|line| line.strip_prefix(&start)).map(str::trim)
    }

    fn read(&self) -> Report {
        let files: Vec<(String, String)> = self
            .header("files")
            .unwrap_or_default()
            .split_whitespace()
            .map(|name| (name.to_owned(), fs::read_to_string(folder().join("files").join(name)).expect(name)))
            .collect();
        let sources: Vec<Source<'_>> = files.iter().map(|(path, text)| Source { path, text }).collect();
        let arguments: Option<Vec<&str>> =
            self.header("arguments").map(|arguments| arguments.split_whitespace().collect());
        let setting = Setting { sources: &sources, ..Setting::default() };
        read_script("start.sh", &self.text, arguments.as_deref(), &setting)
    }
}

fn cases() -> Vec<Case> {
    let scripts = fs::read_dir(folder()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut cases: Vec<Case> = scripts
        .filter(|path| path.extension().is_some_and(|extension| extension == "sh"))
        .map(|path| Case {
            name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
            text: fs::read_to_string(&path).expect("a script"),
        })
        .collect();
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

#[test]
fn scripts_have_the_expected_verdicts_and_reasons() {
    let cases = cases();
    assert!(cases.len() >= 60, "{} scripts", cases.len());
    let mut wrong = String::new();
    for case in &cases {
        let report = case.read();
        let reasons: BTreeSet<&str> = report.all_findings().map(|finding| finding.reason.as_str()).collect();
        let expected: BTreeSet<&str> =
            case.header("reasons").unwrap_or_default().split_whitespace().collect();
        let verdict = report.verdict.to_string();
        if Some(verdict.as_str()) != case.header("verdict") || reasons != expected {
            let findings: Vec<String> = report.all_findings().map(ToString::to_string).collect();
            writeln!(wrong, "{}: {verdict}\n    {}", case.name, findings.join("\n    ")).expect("memory");
        }
    }
    assert!(wrong.is_empty(), "other than expected:\n{wrong}");
}

/// A verdict never gets better when a part of the script isn't known any more.
#[test]
fn an_unknown_word_never_makes_a_script_able_to_save() {
    let mut changed = 0;
    for case in cases() {
        if case.read().verdict.to_string() == "can" {
            continue;
        }
        for (at, _) in case.text.match_indices("--").step_by(3) {
            let line = case.text[..at].rfind('\n').map_or(0, |end| end + 1);
            if case.text[line..].starts_with('#') {
                continue;
            }
            let end = case.text[at..].find(|c: char| c.is_whitespace() || c == '"').unwrap_or(0) + at;
            if end == at {
                continue;
            }
            let text = format!("{}$UNKNOWN_WORD{}", &case.text[..at], &case.text[end..]);
            let verdict = Case { name: case.name.clone(), text }.read().verdict.to_string();
            assert_ne!(verdict, "can", "{} without {}", case.name, &case.text[at..end]);
            changed += 1;
        }
    }
    assert!(changed > 200, "{changed} words were replaced");
}

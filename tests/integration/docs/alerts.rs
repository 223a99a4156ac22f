//! docs/alerts.md and docs/metrics.md against `manifests/monitoring`.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::{anchors, prose, read, root};

const MAXIMUM: usize = 12;

fn rules() -> Vec<Value> {
    let rules: Value =
        serde_saphyr::from_str(&read(&root().join("manifests/monitoring/rules.yaml"))).expect("YAML");
    rules["groups"][0]["rules"].as_array().expect("rules").clone()
}

fn text<'a>(rule: &'a Value, pointer: &str) -> &'a str {
    rule.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {pointer}: {rule}"))
}

#[test]
fn generated_files_are_current() {
    let script = root().join("manifests/monitoring/generate");
    let output = Command::new(script).arg("--check").output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn each_alert_is_complete_and_explained() {
    let rules = rules();
    assert!(rules.len() <= MAXIMUM, "{} alerts", rules.len());
    let page = read(&root().join("docs/alerts.md"));
    let mut explained = Vec::new();
    for rule in &rules {
        let name = text(rule, "/alert");
        assert!(matches!(text(rule, "/labels/severity"), "critical" | "warning"), "{name}");
        assert!(text(rule, "/for").ends_with(['m', 'h']), "{name}");
        for sentence in ["/annotations/summary", "/annotations/description"] {
            assert!(text(rule, sentence).ends_with('.'), "{name}: {sentence}");
        }
        let link = text(rule, "/annotations/runbook_url");
        assert_eq!(link, format!("docs/alerts.md#{}", name.to_lowercase()));
        assert!(anchors(&prose(&page)).contains(&name.to_lowercase()), "{link}");
        explained.push(format!("## {name}"));
    }
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(headings, explained, "in the order of rules.yaml");
}

/// Each metric is in the alerts that its row names; one without alerts is on the dashboard, or has a reason for neither.
#[test]
fn every_metric_has_an_alert_or_a_panel() {
    let page = read(&root().join("docs/metrics.md"));
    let dashboard = read(&root().join("manifests/monitoring/dashboard.json"));
    let mut seen = 0;
    for row in page.lines().filter(|line| line.starts_with("| `swansong_")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, _, _, alert] = cells[..] else { panic!("not five cells: {row}") };
        let name = name.trim_matches('`');
        seen += 1;
        let uses = |expression: &str| {
            let mut words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            words.any(|word| word == name || word.strip_suffix("_bucket") == Some(name))
        };
        let actual: BTreeSet<String> = rules()
            .iter()
            .filter(|rule| uses(text(rule, "/expr")))
            .map(|rule| text(rule, "/alert").to_owned())
            .collect();
        let shown: BTreeSet<String> =
            alert.split('`').filter(|word| word.starts_with("Swansong")).map(str::to_owned).collect();
        assert_eq!(shown, actual, "{name}");
        if actual.is_empty() && !alert.starts_with("none: ") {
            assert!(
                alert == "dashboard" && uses(&dashboard),
                "{name} has no alert, panel or reason for neither"
            );
        }
    }
    assert!(seen > 40, "only {seen} metrics");
}

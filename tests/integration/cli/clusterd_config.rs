//! Tests of `swansong clusterd-config`.

use serde_json::Value;

use crate::support::{Run, run};

const OURS: [(&str, &str); 5] = [
    ("020011001", "SeparateNPUCodes"),
    ("120011001", "SeparateNPUCodes"),
    ("010011001", "SubHealthFaultCodes"),
    ("110011001", "SubHealthFaultCodes"),
    ("000011001", "NotHandleFaultCodes"),
];

fn config(input: &str) -> Run {
    run(&["clusterd-config", "-f", "-"], input)
}

#[test]
fn without_a_file_the_built_in_list_is_extended() {
    let made = run(&["clusterd-config"], "");
    assert!(made.stderr.contains("/user1/mindx-dl/clusterd/publicCustomization.json"), "{}", made.stderr);
    for (code, list) in OURS {
        assert!(made.stderr.contains(&format!("{code} to {list}")), "{}", made.stderr);
    }
    let file: Value = serde_json::from_str(&made.output()).expect("JSON");
    let holds = |list: &Value, wanted: &str| list.as_array().expect("a list").iter().any(|one| one == wanted);
    for (code, list) in
        OURS.into_iter().chain([("220001001", "SeparateNPUCodes"), ("110001022", "PreSeparateNPUCodes")])
    {
        assert!(holds(&file["publicFaultCode"][list], code), "{code}");
    }
    for sender in ["CCAE", "dtfsStorage", "swansong"] {
        assert!(holds(&file["publicFaultResource"], sender), "{sender}");
    }
}

#[test]
fn existing_content_is_kept_and_a_second_run_changes_nothing() {
    let text = "{\"publicFaultResource\": [ \"XXX\" ],\n \"note\": {\"a\": 1.50},\n \"publicFaultCode\": {\"SeparateNPUCodes\": [\"010001008\"]}}";
    let first = config(text).output();
    assert!(
        first.starts_with("{\"publicFaultResource\": [ \"XXX\", \"swansong\" ],\n \"note\": {\"a\": 1.50},"),
        "{first}"
    );
    let second = config(&first);
    assert!(second.stderr.contains("nothing to add to standard input"), "{}", second.stderr);
    assert_eq!(second.output(), first);
}

#[test]
fn a_code_in_another_list_is_kept_with_a_warning() {
    let made = config(r#"{"publicFaultCode": {"SubHealthFaultCodes": ["020011001"]}}"#);
    assert!(
        made.stderr.contains("warning: standard input: 020011001 is in SubHealthFaultCodes"),
        "{}",
        made.stderr
    );
    assert_eq!(made.output().matches("020011001").count(), 1);
}

#[test]
fn a_file_that_clusterd_would_refuse_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = [
        ("{\n  \"publicFaultCode\": {},\n}", "line 3, column 1", "isn't valid JSON"),
        ("{\"publicFaultResource\": \"swansong\"}", "line 1, column 25", "a list of strings"),
        ("{\"publicFaultCode\": {\"SeparateNPUCodes\": [1]}}", "line 1, column 43", "put it in quotes"),
        ("", "line 1, column 1", "isn't valid JSON"),
    ];
    for (text, place, problem) in cases {
        let file = folder.path().join("publicCustomization.json");
        std::fs::write(&file, text).expect("written");
        let path = file.to_str().expect("UTF-8");
        let error = run(&["clusterd-config", "-f", path], "").error();
        for word in [path, place, problem] {
            assert!(error.contains(word), "{word:?} isn't in {error:?}");
        }
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let error = run(&["clusterd-config", "-f", "nowhere.json"], "").error();
    assert!(error.contains("nowhere.json") && error.contains("no such file"), "{error}");
}

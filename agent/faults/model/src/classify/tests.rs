use proptest::prelude::*;
use serde_json::json;

use super::*;

fn code(text: &str) -> Code {
    text.parse().expect("a code")
}

fn read(text: &str) -> (Classifier, Vec<Warning>) {
    Classifier::from_json(text).expect("valid")
}

#[test]
fn parses_the_level_of_every_key() {
    let (classifier, warnings) = read(
        r#"{"NotHandleFaultCodes": ["1", "81078603"], "RestartRequestCodes": ["2"], "RestartBusinessCodes": ["3"],
            "FreeRestartNPUCodes": ["4"], "RestartNPUCodes": ["5"], "SeparateNPUCodes": ["6"], "PreSeparateNPUCodes": ["7"],
            "SubHealthFaultCodes": ["8"], "PreSeparateNPUNetworkCodes": ["81078607"],
            "SeparateNPUNetworkCodes": ["110000002"], "SubHealthFaultNetworkCodes": ["110001024"]}"#,
    );
    assert_eq!(warnings, []);
    for (text, level) in [
        ("1", Level::NotHandleFault),
        ("2", Level::RestartRequest),
        ("3", Level::RestartBusiness),
        ("4", Level::FreeRestartNPU),
        ("5", Level::RestartNPU),
        ("6", Level::SeparateNPU),
        ("7", Level::PreSeparateNPU),
        ("8", Level::SubHealthFault),
        ("81078603", Level::NotHandleFault),
        ("81078607", Level::PreSeparateNPU),
        ("110000002", Level::SeparateNPU),
        ("110001024", Level::SubHealthFault),
    ] {
        assert_eq!(
            classifier.level(&code(text), Some(Severity::Critical)),
            (level, LevelReason::Listed),
            "{text}"
        );
    }
    assert_eq!(classifier.len(), 12);
}

#[test]
fn classifies_unlisted_codes_by_severity() {
    let (classifier, _) = read(r#"{"NotHandleFaultCodes": ["1"]}"#);
    for (text, severity, expected) in [
        ("80E01801", None, (Level::SeparateNPU, LevelReason::Unknown)),
        (
            "80E01801",
            Some(Severity::Suggestion),
            (Level::NotHandleFault, LevelReason::Severity(Severity::Suggestion)),
        ),
        ("80E01801", Some(Severity::Minor), (Level::NotHandleFault, LevelReason::Severity(Severity::Minor))),
        ("80E01801", Some(Severity::Major), (Level::SeparateNPU, LevelReason::Severity(Severity::Major))),
        (
            "80E01801",
            Some(Severity::Critical),
            (Level::SeparateNPU, LevelReason::Severity(Severity::Critical)),
        ),
        ("81078603", Some(Severity::Minor), (Level::PreSeparateNPU, LevelReason::UnlistedNetwork)),
        ("110001024", None, (Level::PreSeparateNPU, LevelReason::UnlistedNetwork)),
    ] {
        assert_eq!(classifier.level(&code(text), severity), expected, "{text} {severity:?}");
    }
}

#[test]
fn classifies_documented_codes_without_a_file() {
    let classifier = Classifier::documented();
    for (text, level) in [
        ("81078603", Level::NotHandleFault),
        ("80E01801", Level::RestartBusiness),
        ("40F84E00", Level::RestartNPU),
        ("8C2FA009", Level::NotHandleFault),
    ] {
        assert_eq!(classifier.level(&code(text), None), (level, LevelReason::Listed), "{text}");
    }
    assert_eq!(classifier.level(&code("80C98000"), Some(Severity::Minor)).0, Level::NotHandleFault);
}

#[test]
fn network_faults_cannot_have_restart_levels() {
    for key in ["RestartRequestCodes", "RestartBusinessCodes", "FreeRestartNPUCodes", "RestartNPUCodes"] {
        let (classifier, warnings) = read(&json!({key: ["81078607"]}).to_string());
        assert_eq!(warnings, [Warning::LevelNotForNetwork { key, code: code("81078607") }]);
        assert_eq!(
            classifier.level(&code("81078607"), None),
            (Level::NotHandleFault, LevelReason::Listed),
            "{key}"
        );
        let text = warnings[0].to_string();
        assert!(text.contains(key) && text.contains("81078607") && text.contains("NotHandleFault"), "{text}");
    }
    let (classifier, warnings) = read(r#"{"SeparateNPUNetworkCodes": ["80E01801"]}"#);
    assert_eq!(
        warnings,
        [Warning::NotNetworkFault { key: "SeparateNPUNetworkCodes", code: code("80E01801") }, Warning::Empty]
    );
    assert_eq!(classifier.level(&code("80E01801"), None).1, LevelReason::Unknown);
    assert!(warnings[0].to_string().contains("81078603, 81078607, 110000002, 110001024"), "{}", warnings[0]);
}

#[test]
fn higher_of_two_levels_applies() {
    // As in the file of MindCluster 26.
    for text in [
        r#"{"RestartBusinessCodes": ["A2301001"], "SeparateNPUCodes": ["A2301001"]}"#,
        r#"{"SeparateNPUCodes": ["a2301001"], "RestartBusinessCodes": ["A2301001", " A2301001"]}"#,
    ] {
        let (classifier, warnings) = read(text);
        assert_eq!(classifier.level(&code("A2301001"), None).0, Level::SeparateNPU);
        assert!(warnings.contains(&Warning::ConflictingLevels {
            code: code("A2301001"),
            lower: Level::RestartBusiness,
            higher: Level::SeparateNPU
        }));
    }
}

#[test]
fn tolerates_what_mindcluster_tolerates() {
    let (classifier, warnings) = read(
        r#"{"notHandleFaultCodes": [" 80e01801 ", "80E01801", "0x80E01801"], "SeparateNPUCodes": null, "Comment": {"a": 1},
            "RestartNPUCodes": ["", "80E0180G", "80E01803"]}"#,
    );
    assert_eq!(classifier.level(&code("80E01801"), None).0, Level::NotHandleFault);
    assert_eq!(classifier.level(&code("80E01803"), None).0, Level::RestartNPU);
    let not_a_code =
        |text: &str| Warning::InvalidCode { key: "RestartNPUCodes".to_owned(), text: text.to_owned() };
    assert_eq!(
        warnings,
        [Warning::UnknownKey { key: "Comment".to_owned() }, not_a_code(""), not_a_code("80E0180G")]
    );
    // The last duplicate key applies, as in Go.
    let (classifier, _) = read(r#"{"SeparateNPUCodes": ["1"], "SeparateNPUCodes": ["2"]}"#);
    assert_eq!(classifier.len(), 1);
    assert_eq!(classifier.level(&code("2"), Some(Severity::Minor)).1, LevelReason::Listed);
    assert_eq!(read("{}").1, [Warning::Empty]);
}

#[test]
fn rejects_invalid_files() {
    let wrong_type = |key: &str| ParseError::WrongType {
        key: key.to_owned(),
        expected: "a list of texts, as [\"80E01801\"]",
    };
    assert_eq!(Classifier::from_json(r#"{"SeparateNPUCodes": "1"}"#), Err(wrong_type("SeparateNPUCodes")));
    assert_eq!(Classifier::from_json(r#"{"SeparateNPUCodes": [1]}"#), Err(wrong_type("SeparateNPUCodes")));
    for text in ["", "[]", "null", "{\"SeparateNPUCodes\": [\"1\"", "\u{feff}{}"] {
        assert!(matches!(Classifier::from_json(text), Err(ParseError::NotAnObject(_))), "{text:?}");
    }
    assert!(matches!(Classifier::from_json(&" ".repeat(1 << 21)), Err(ParseError::TooLarge(_))));
    assert!(matches!(Classifier::from_json(&"[".repeat(1 << 20)), Err(ParseError::NotAnObject(_))), "deep");
}

#[test]
fn warnings_are_bounded() {
    let list: Vec<String> = (0..5000).map(|number| format!("x{number}")).collect();
    let warnings = read(&json!({"RestartNPUCodes": list}).to_string()).1;
    assert_eq!(warnings.len(), 51);
    // `Warning::Empty` is among those omitted.
    assert_eq!(warnings[50], Warning::Omitted(4951));
}

proptest! {
    /// Each code has the highest of its levels; a network fault at a restart level gets `NotHandleFault`.
    #[test]
    fn highest_level_of_each_code_applies(lists in prop::collection::vec((0..8_usize, prop::collection::vec(0..6_u64, 0..4)), 0..8)) {
        const KEYS: [(&str, Level); 8] = [
            ("NotHandleFaultCodes", Level::NotHandleFault), ("SubHealthFaultCodes", Level::SubHealthFault),
            ("RestartRequestCodes", Level::RestartRequest), ("RestartBusinessCodes", Level::RestartBusiness),
            ("FreeRestartNPUCodes", Level::FreeRestartNPU), ("RestartNPUCodes", Level::RestartNPU),
            ("PreSeparateNPUCodes", Level::PreSeparateNPU), ("SeparateNPUCodes", Level::SeparateNPU),
        ];
        let pool = [0x80E0_1801, 0x8107_8603, 0x1_1000_1024, 1, 2, 0xFFFF_FFFF_FFFF_FFFF];
        let mut file = serde_json::Map::new();
        let mut expected = BTreeMap::<u64, Level>::new();
        for (place, codes) in lists {
            let (key, _) = KEYS[place];
            let texts: Vec<String> = codes.iter().map(|&code| format!(" {:x}", pool[usize::try_from(code).expect("small")])).collect();
            file.insert(key.to_owned(), json!(texts));
        }
        for (key, level) in KEYS {
            for text in file.get(key).and_then(|list| list.as_array()).into_iter().flatten() {
                let number = code(text.as_str().expect("a text")).number();
                let restarts = level > Level::SubHealthFault && level < Level::PreSeparateNPU;
                let level = if restarts && NETWORK_CODES.contains(&number) { Level::NotHandleFault } else { level };
                let known = expected.entry(number).or_insert(level);
                *known = (*known).max(level);
            }
        }
        let (classifier, _) = read(&serde_json::Value::Object(file).to_string());
        for number in pool {
            let (level, reason) = classifier.level(&code(&format!("{number:X}")), None);
            let found = (reason == LevelReason::Listed).then_some(level);
            prop_assert_eq!(found, expected.get(&number).copied());
        }
        prop_assert_eq!(classifier.len(), expected.len());
    }

    #[test]
    fn no_text_causes_a_panic(text in ".{0,200}") {
        let _ = Classifier::from_json(&text);
    }
}

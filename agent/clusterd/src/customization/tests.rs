use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn customized(text: &str) -> Customized {
    customize(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn error_of(text: &str) -> InvalidFile {
    customize(text).expect_err(text)
}

/// Whether ClusterD accepts all of our faults with this file.
fn accepts_our_faults(text: &str) -> bool {
    let file: Value = serde_json::from_str(text).expect("JSON");
    let contains =
        |list: &Value, wanted: &str| list.as_array().is_some_and(|list| list.iter().any(|v| v == wanted));
    let codes = &file[CODES];
    contains(&file[RESOURCES], RESOURCE)
        && Class::VARIANTS.iter().all(|class| LISTS.iter().any(|list| contains(&codes[list], class.code())))
}

#[test]
fn adds_entries_to_the_built_in_list() {
    let result = customized(BUILT_IN);
    assert!(accepts_our_faults(&result.text));
    assert!(result.resource_added);
    assert_eq!((result.added.len(), result.in_other_list.len()), (5, 0));
    // Without our entries the text is the old one.
    let mut without = result.text.clone();
    for ours in Class::VARIANTS.iter().map(|class| class.code()).chain([RESOURCE]) {
        without = without.replace(&format!(", \"{ours}\""), "");
    }
    assert_eq!(without, BUILT_IN);
}

#[test]
fn is_idempotent() {
    let first = customized(BUILT_IN).text;
    let second = customized(&first);
    assert_eq!(
        second,
        Customized { text: first, resource_added: false, added: vec![], in_other_list: vec![] }
    );
}

#[test]
fn keeps_the_style_of_the_file() {
    let text = "{\n\t\"publicFaultResource\": [\n\t\t\"CCAE\",\n\t\t\"XXX\"\n\t],\n\t\"mine\": 1e400,\n\t\"publicFaultCode\": {\"SeparateNPUCodes\": [\n  \"020001001\"\n], \"SubHealthFaultCodes\": []}\n}";
    let expected = "{\n\t\"publicFaultResource\": [\n\t\t\"CCAE\",\n\t\t\"XXX\",\n\t\t\"swansong\"\n\t],\n\t\"mine\": 1e400,\n\t\"publicFaultCode\": {\"SeparateNPUCodes\": [\n  \"020001001\",\n  \"020011001\",\n  \"120011001\"\n], \"SubHealthFaultCodes\": [\"010011001\", \"110011001\"], \"NotHandleFaultCodes\": [\"000011001\"]}\n}";
    assert_eq!(customized(text).text, expected);
}

#[test]
fn creates_absent_and_null_members() {
    for text in [
        "{}",
        " { } ",
        r#"{"a": 1}"#,
        r#"{"publicFaultCode": null, "publicFaultResource": null}"#,
        r#"{"publicFaultCode": {}, "publicFaultResource": []}"#,
        r#"{"publicFaultCode": {"SeparateNPUCodes": null, "SubHealthFaultCodes": [null]}}"#,
        r#"{"publicFaultCode": {"PreSeparateNPUCodes": ["110001022"], "NewCodes": {"x": 1}}}"#,
    ] {
        let result = customized(text);
        assert!(accepts_our_faults(&result.text), "{}", result.text);
        assert_eq!(customized(&result.text).text, result.text);
    }
}

#[test]
fn ignores_the_case_of_names_as_go_does() {
    let text =
        r#"{"PublicFaultCode": {"separatenpucodes": ["020011001"]}, "PUBLICFAULTRESOURCE": ["swansong"]}"#;
    let result = customized(text);
    assert!(!result.resource_added);
    assert!(!result.added.contains(&Class::ChipSeparate));
    assert_eq!(result.text.to_lowercase().matches("publicfaultcode").count(), 1, "{}", result.text);
}

#[test]
fn moved_codes_remain_in_their_list() {
    let text = r#"{"publicFaultCode": {"SubHealthFaultCodes": ["020011001"]}, "publicFaultResource": []}"#;
    let result = customized(text);
    assert_eq!(result.in_other_list, [(Class::ChipSeparate, "SubHealthFaultCodes")]);
    assert_eq!(result.text.matches("020011001").count(), 1, "{}", result.text);
}

#[test]
fn rejects_invalid_files_with_the_position() {
    let cases = [
        ("", (1, 1), "JSON"),
        ("{\n  \"publicFaultCode\": {},\n}", (3, 1), "isn't valid JSON"),
        ("{} {}", (1, 4), "trailing characters"),
        ("// a comment\n{}", (1, 1), "JSON"),
        ("[]", (1, 1), "the file is a list, it has to be an object"),
        ("{\"publicFaultCode\":\n []}", (2, 2), "`publicFaultCode` is a list, it has to be an object"),
        (
            "{\"publicFaultResource\": \"swansong\"}",
            (1, 25),
            "`publicFaultResource` is a string, it has to be a list",
        ),
        (
            "{\"publicFaultResource\": [\"a\",\n\n 7]}",
            (3, 2),
            "`publicFaultResource[1]` is a number, it has to be a string",
        ),
        (
            "{\"publicFaultCode\": {\"SeparateNPUCodes\": [20001001]}}",
            (1, 43),
            "`publicFaultCode.SeparateNPUCodes[0]`",
        ),
        (
            "{\"publicFaultCode\": {\"PreSeparateNPUCodes\": {}}}",
            (1, 45),
            "`publicFaultCode.PreSeparateNPUCodes` is an object",
        ),
        ("{\"ä\": 1, \"publicFaultCode\": true}", (1, 29), "a boolean"),
        ("{\"publicFaultCode\": {}, \"publicfaultcode\": {}}", (1, 44), "a second time"),
        ("{\"publicFaultResource\": [], \"publicFaultResource\": []}", (1, 52), "a second time"),
    ];
    for (text, place, words) in cases {
        let error = error_of(text);
        assert_eq!((error.line, error.column), place, "{text}: {error}");
        assert!(error.problem.contains(words), "{text}: {error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\é]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn strings() -> impl Strategy<Value = Value> {
    let ours = prop::sample::select(vec!["swansong", "020011001", "110011001", "000011001"]);
    let some = prop_oneof![ours.prop_map(str::to_owned), "[0-9a-zA-Z]{0,9}"];
    prop_oneof![Just(Value::Null), prop::collection::vec(some, 0..4).prop_map(Value::from)]
}

proptest! {
    /// For any file: our entries are added, all others are kept, and a second run changes nothing.
    #[test]
    fn laws(
        lists in prop::collection::hash_map(prop::sample::select(LISTS.to_vec()), strings(), 0..5),
        resources in strings(),
        rest in prop::collection::hash_map("[a-z]{1,6}", json(), 0..4),
        pretty: bool,
    ) {
        let mut file = serde_json::Map::from_iter(rest);
        file.insert(CODES.to_owned(), lists.into_iter().map(|(name, list)| (name.to_owned(), list)).collect::<serde_json::Map<_, _>>().into());
        file.insert(RESOURCES.to_owned(), resources);
        let before = Value::from(file);
        let text = if pretty { serde_json::to_string_pretty(&before) } else { serde_json::to_string(&before) };
        let text = text.expect("JSON");
        let result = customized(&text);
        prop_assert!(accepts_our_faults(&result.text), "{}", result.text);
        prop_assert_eq!(&customized(&result.text).text, &result.text);
        let after: Value = serde_json::from_str(&result.text).expect("JSON");
        for (name, value) in before.as_object().expect("an object") {
            if name != CODES && name != RESOURCES {
                prop_assert_eq!(value, &after[name]);
            }
        }
        let kept = |before: &Value, after: &Value| {
            let before = before.as_array().cloned().unwrap_or_default();
            after.as_array().is_none_or(|after| after.starts_with(&before))
        };
        prop_assert!(kept(&before[RESOURCES], &after[RESOURCES]));
        prop_assert!(LISTS.iter().all(|list| kept(&before[CODES][list], &after[CODES][list])));
    }

    #[test]
    fn no_text_causes_a_panic(text in any::<String>()) {
        let _ = customize(&text);
    }
}

//! Laws of the document layer: what is written reads back the same, edits say what they should, and no text
//! makes it panic.

use json_patch::Patch;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Number, Value, json};
use swansong::manifest::data::Data;
use swansong::manifest::emit::{Flow, Layout};
use swansong::manifest::rewrite::{RewriteError, rewrite};
use swansong::manifest::source::{Document, Source};
use swansong_inject::operation::Operation;

/// Strings that YAML readers take for something else, or that are hard to write.
const HARD: &[&str] = &[
    "",
    " ",
    "~",
    "null",
    "yes",
    "Off",
    "y",
    "0777",
    "0o17",
    "1_000",
    "1e3",
    "12:30",
    ".5",
    ".inf",
    "2026-11-29",
    "=",
    "<<",
    "-",
    "- a",
    "-a",
    "?",
    "? a",
    ":",
    "a:",
    "a: b",
    "a:b",
    "a #b",
    "#a",
    "a#b",
    "'",
    "\"",
    "'a'",
    "a'b",
    "&a",
    "*a",
    "!a",
    "|",
    ">",
    "@a",
    "`a",
    "%a",
    "[a]",
    "{a}",
    "a,b",
    "---",
    "--- a",
    "...",
    "a\nb",
    "a\nb\n",
    "a\nb\n\n",
    "\na",
    " a\nb",
    "a \nb",
    "a\n\nb",
    "a\tb",
    "\ta",
    "a\n\tb",
    "a\r\nb",
    "\r",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\u{0}",
    "\u{7f}",
    "中文：值",
    "😀",
    "\\n",
    "C:\\x",
    "a\n# b\nc",
    "a\n---\nb",
    "$(A)",
    "0b1",
    "-0x1",
    "+1",
    "1.",
    "NaN",
    "true ",
    "a\u{a0}",
    "\u{3000}a",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => proptest::sample::select(HARD).prop_map(str::to_owned),
        2 => "[a-zA-Z0-9./-]{0,12}",
        1 => any::<String>(),
        1 => "[ab \n#:'\"-]{0,10}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("JSON has no such number", |it| Number::from_f64(it).map(Value::Number)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map(text(), inner, 0..5).prop_map(|it| Value::Object(it.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    btree_map(text(), value(), 1..6).prop_map(|it| Value::Object(it.into_iter().collect()))
}

fn layout() -> impl Strategy<Value = Layout> {
    (1_usize..5, 0_usize..5).prop_map(|(step, dash)| Layout { step, dash })
}

fn flow() -> impl Strategy<Value = Flow> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(json, spaced, lines)| Flow {
        json,
        spaced,
        lines: lines.then_some((0, 2)),
    })
}

fn documents(source: &Source) -> Vec<Document> {
    source.documents().collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}:\n{}", source.text))
}

/// One document's value, numbers in the form in which they are read back.
fn read(text: &str) -> Value {
    let documents = documents(&Source::new(text.to_owned()));
    assert_eq!(documents.len(), 1, "{text}");
    normal(&documents[0].data.to_value())
}

fn normal(value: &Value) -> Value {
    Data::from(value).to_value()
}

/// An operation that fits `target`, chosen by `choice`.
fn operation(target: &Value, verb: u8, mut choice: usize, value: &Value) -> Option<Value> {
    let mut pointers = vec![String::new()];
    let mut at = 0;
    while at < pointers.len() {
        let pointer = pointers[at].clone();
        at += 1;
        match target.pointer(&pointer)? {
            Value::Array(items) => {
                pointers.extend((0..items.len()).map(|index| format!("{pointer}/{index}")));
            }
            Value::Object(members) => pointers.extend(
                members.keys().map(|key| format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))),
            ),
            _ => {}
        }
    }
    let mut pick = |from: &[String]| -> Option<String> {
        let picked = from.get(choice % from.len().max(1)).cloned();
        choice /= from.len().max(1);
        picked
    };
    match verb {
        0 => Some(json!({"op": "remove", "path": pick(&pointers[1..])?})),
        1 => Some(json!({"op": "replace", "path": pick(&pointers[1..])?, "value": value})),
        _ => {
            let parents: Vec<_> = pointers
                .iter()
                .filter(|pointer| target.pointer(pointer).is_some_and(|it| it.is_array() || it.is_object()))
                .cloned()
                .collect();
            let parent = pick(&parents)?;
            let key = match target.pointer(&parent)? {
                Value::Array(items) if verb == 2 => (choice % (items.len() + 1)).to_string(),
                Value::Array(_) => "-".to_owned(),
                _ => ["metadata", "added", "a~1b", "yes"][choice % 4].to_owned(),
            };
            Some(json!({"op": "add", "path": format!("{parent}/{key}"), "value": value}))
        }
    }
}

/// The operations as the core writes them.
fn as_operations(patch: &[Value]) -> Vec<Operation> {
    let translate = |it: &Value| {
        let pointer = it["path"].as_str().expect("a path").to_owned();
        match it["op"].as_str() {
            Some("remove") => Operation::remove(pointer),
            Some("replace") => Operation::replace(pointer, &it["value"]),
            _ => Operation::add(pointer, &it["value"]),
        }
    };
    patch.iter().map(translate).collect()
}

/// Patches a written document and returns its new text.
fn patched(text: &str, start: &Value, choices: &[(u8, usize, Value)]) -> Result<String, TestCaseError> {
    let mut expected = normal(start);
    let mut patch = Vec::new();
    for (verb, choice, value) in choices {
        if let Some(operation) = operation(&expected, *verb, *choice, value) {
            let one: Patch = serde_json::from_value(json!([operation])).expect("a patch");
            json_patch::patch(&mut expected, &one).expect("it fits");
            patch.push(operation);
        }
    }
    let source = Source::new(text.to_owned());
    let rewritten = rewrite(&source, &documents(&source)[0], &as_operations(&patch))
        .map_err(|error| TestCaseError::fail(format!("{error}: {patch:?}\n{text}")))?;
    prop_assert_eq!(read(&rewritten.text), normal(&expected), "{}", rewritten.text);
    prop_assert_eq!(normal(&rewritten.data.to_value()), normal(&expected));
    Ok(rewritten.text)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_read_back_the_same(value in object(), layout in layout()) {
        let text = layout.document(&Data::from(&value));
        prop_assert_eq!(read(&text), normal(&value), "{}", text);
    }

    #[test]
    fn flow_text_reads_back_the_same(value in object(), flow in flow()) {
        let mut text = String::new();
        flow.write(&Data::from(&value), &mut text);
        if flow.json {
            let json: Value = serde_json::from_str(&text).expect("JSON");
            prop_assert_eq!(&normal(&json), &normal(&value));
        }
        prop_assert_eq!(read(&text), normal(&value), "{}", text);
    }

    #[test]
    fn json_text_is_what_serde_writes(value in object()) {
        let data = Data::from(&value);
        let again: Value = serde_json::from_str(&data.to_json()).expect("JSON");
        prop_assert_eq!(normal(&again), normal(&value));
        prop_assert_eq!(read(&value.to_string()), normal(&value));
    }

    #[test]
    fn edits_of_blocks_equal_the_operations(
        value in object(),
        layout in layout(),
        choices in vec((0_u8..4, any::<usize>(), value()), 1..5),
        frame in (0_u8..8, any::<bool>()),
    ) {
        let mut text = layout.document(&Data::from(&value));
        if frame.1 {
            text.truncate(text.trim_end_matches('\n').len());
        }
        if frame.0 & 1 == 1 {
            text.insert_str(0, "# head\n---\n");
        }
        if frame.0 & 2 == 2 {
            text.insert(0, '\u{feff}');
        }
        if frame.0 & 4 == 4 {
            text = text.replace('\n', "\r\n");
        }
        patched(&text, &read(&text), &choices)?;
    }

    #[test]
    fn edits_of_flow_text_equal_the_operations(
        value in object(),
        flow in flow(),
        choices in vec((0_u8..4, any::<usize>(), value()), 1..5),
    ) {
        let mut text = String::new();
        flow.write(&Data::from(&value), &mut text);
        patched(&text, &value, &choices)?;
    }

    #[test]
    fn comments_are_kept_by_every_edit(
        value in btree_map("[a-f]{1,4}", value(), 2..6),
        choice in any::<usize>(),
        verb in 0_u8..4,
        new in value(),
    ) {
        let value = Value::Object(value.into_iter().collect());
        let written = Layout::default().document(&Data::from(&value));
        let mut text = String::new();
        for (number, line) in written.split_inclusive('\n').enumerate() {
            if line.starts_with(|c: char| c.is_ascii_lowercase()) {
                text.push_str("# ");
                text.push_str(&number.to_string());
                text.push_str(".\n");
            }
            text += line;
        }
        let comments = text.matches("\n# ").count();
        let edited = patched(&text, &value, &[(verb, choice, new)])?;
        prop_assert_eq!(edited.matches("\n# ").count(), comments, "{}\n{}", text, edited);
    }

    #[test]
    fn no_text_panics(text in prop_oneof![
        any::<String>(),
        "[a:\\-?&*!|>'\"%@`{}\\[\\],# \n\t<~.1]{0,60}",
        "(kind: Pod\n|- a\n|  b: &x c\n|d: \\*x\n|<<: \\*x\n|---\n|\\.\\.\\.\n|[|>][+-]?\n|\\{a: \\[\n|\\]\\}\n|# c\n|!!int x\n|: |\\? ){0,12}",
    ]) {
        let source = Source::new(text);
        for document in source.documents().map_while(Result::ok) {
            let operations = [Operation::add("/new".to_owned(), &json!({"a": [1, "b"]}))];
            if matches!(document.data, Data::Mapping(_)) {
                let rewritten = match rewrite(&source, &document, &operations) {
                    Err(RewriteError::CarriageReturn(_)) => continue,
                    rewritten => rewritten.expect("it can be written"),
                };
                prop_assert!(rewritten.data.get("new").is_some());
            }
        }
    }
}

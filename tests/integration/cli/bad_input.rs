//! Errors: exit status 1, a message with the place, and no output.

use std::fmt::Write;

use crate::support::run;

#[test]
fn errors_name_place_and_remedy() {
    let pod = |spec: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: x, annotations: {{recover-strategy: dump}}}}\n{spec}\n"
        )
    };
    let cases: Vec<(&str, String, &[&str])> = vec![
        ("broken YAML", "a: 1\n---\nkind: Pod\n  b: 2\n".to_owned(), &["document 2, line 4", "isn't valid YAML"]),
        ("unclosed bracket", "kind: [Pod\n".to_owned(), &["document 1", "isn't valid YAML"]),
        ("a template", "kind: Pod\nmetadata:\n  name: {{ .Values.name }}\n".to_owned(), &["line 3", "helm template"]),
        ("a template around an object", "{{ if .Values.on }}\nkind: Pod\nmetadata:\n  name: x\n{{ end }}\n".to_owned(), &["helm template"]),
        ("a template whose braces are in another line", "{{- range .Values.jobs }}\n---\nkind: Pod\n".to_owned(), &["document 1, line 1", "`{{` on line 1"]),
        ("a template around a value in quotes", "kind: Pod\nname: \"{{ .a }}\" {{ .b }}\n".to_owned(), &["line 2", "`{{` on line 2"]),
        ("a template of Jinja", "kind: Pod\n{% if on %}\nmetadata: {}\n{% endif %}\n".to_owned(), &["line 2", "`{%` on line 2", "render it first"]),
        ("a text with braces beside another error", "kind: A\ndata:\n  a: |\n    {{ $labels.x }}\n  b: 1\n  b: 2\n".to_owned(), &["line 6", "`{{` on line 4", "key \"b\" is already on line 5"]),
        ("braces in quotes and comments only", "kind: A\na: '{{ x }}' # {{ y }}\nb: [\n".to_owned(), &["standard input: document 1", ": it isn't valid YAML"]),
        ("a document after three dots", "kind: ConfigMap\n...\nkind: Pod\n".to_owned(), &["document 2, line 3", "write `---`"]),
        ("text behind a separator", "kind: A\n---\nkind: B\n--- {kind: Pod}\n".to_owned(), &["document 3, line 4", "{kind: Pod}", "next line"]),
        ("a separator that only a carriage return ends", "kind: A\r---\rkind: Pod\r".to_owned(), &["document 2, line 3", "write `---`"]),
        ("an empty document before three dots", "---\n...\nkind: Pod\n".to_owned(), &["line 3", "write `---`"]),
        ("a directive", "kind: A\n---\n# b\n%YAML 1.1\n---\nkind: Pod\n".to_owned(), &["document 2, line 4", "`%YAML 1.1`", "remove the line"]),
        ("a line break of YAML 1.1", "kind: A\n---\n# a\u{2028}kind: Pod\n".to_owned(), &["document 2, line 3", "\\u{2028}", "line break"]),
        ("a tag before a comma", "kind: A\nspec: [b, !!str, c]\n".to_owned(), &["line 2", "`!!str`", "a blank"]),
        ("a question mark in a list", "kind: A\nspec: [b, ?c]\n".to_owned(), &["line 2", "`?c`", "quotes"]),
        ("a colon without a blank", "kind: A\nspec: [b, c:]\n".to_owned(), &["line 2", "`c`", "write a blank"]),
        ("aliases of a long text", format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(400)), &["line 1", "aliases expand to more than"]),
        ("a tab", "kind: Pod\nmetadata:\n\tname: x\n".to_owned(), &["line 3", "isn't valid YAML"]),
        ("twice the same key", "kind: Pod\nspec: {}\nspec: {}\n".to_owned(), &["document 1, line 3", "\"spec\"", "line 2", "remove one"]),
        ("twice the same key in JSON", "{\"kind\": \"Pod\",\n \"kind\": \"Pod\"}".to_owned(), &["line 2", "\"kind\""]),
        ("twice the same key by another spelling", "on: 1\nyes: 2\n".to_owned(), &["line 2", "\"true\""]),
        ("a list", "- a\n- b\n".to_owned(), &["document 1, line 1", "a list", "not a Kubernetes object"]),
        ("a word", "kind: Pod\n---\nerror\n".to_owned(), &["document 2, line 3", "a string"]),
        ("a null key", "~: 1\n".to_owned(), &["line 1", "null can't be a key"]),
        ("a list as key", "? [a]\n: 1\n".to_owned(), &["a list can't be a key"]),
        ("not a number", "kind: Foo\na: .nan\n".to_owned(), &["line 2", "`.nan`", "quote it"]),
        ("a wrong tag", "kind: Foo\na: !!int x\n".to_owned(), &["line 2", "`x`", "!!int"]),
        ("an alias in itself", "a: &a\n  b: *a\n".to_owned(), &["line 2", "anchor"]),
        ("an unknown alias", "a: *unknown\n".to_owned(), &["line 1", "anchor"]),
        ("a merge of a list", "a: &a [1]\nb:\n  <<: *a\n".to_owned(), &["line 3", "merge key"]),
        ("kind is a number", "kind: 7\n".to_owned(), &["line 1", "`kind`", "a number", "a string"]),
        ("an item that is no object", "kind: List\napiVersion: v1\nitems:\n- x\n".to_owned(), &["line 4", "`items[0]`", "a mapping"]),
        ("items that are no list", "kind: List\napiVersion: v1\nitems: {}\n".to_owned(), &["line 3", "`items`", "a list"]),
        ("env of a wrong type", pod("spec:\n  containers:\n  - name: ascend\n    env: x"), &["document 1, line 7", "`spec.containers[0].env`"]),
        ("a value that isn't text", pod("spec:\n  containers:\n  - name: ascend\n    env:\n    - name: A\n      value: yes"), &["line 9", "`spec.containers[0].env[0].value`", "put it in quotes"]),
        (
            "a wrong type in a List",
            "kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {annotations: {recover-strategy: dump}}\n  spec: 3\n".to_owned(),
            &["line 7", "`items[0].spec`"],
        ),
    ];
    for (what, input, words) in cases {
        for command in ["inject", "uninject", "explain"] {
            let error = run(&[command], &input).error();
            for word in words.iter().chain(&["swansong: standard input: "]) {
                assert!(error.contains(word), "{what}, {command}: {word:?} isn't in {error:?}");
            }
            assert_eq!(error.lines().count(), 1, "{what}: {error}");
        }
    }
}

#[test]
fn a_change_between_carriage_returns_is_an_error() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    recover-strategy: dump\nspec:\n  containers:\n  - name: ascend\n    # c\n";
    let old = pod.replace('\n', "\r");
    assert!(run(&["inject"], &old).error().contains("document 1: line 1 ends with a carriage return only"));
    assert!(run(&["inject"], pod.replace("# c", "# c\rd: e")).error().contains("line 9 ends"));
    let unrelated = "kind: Foo\rmetadata: {}\r";
    assert_eq!(run(&["inject"], unrelated).output(), unrelated);
}

#[test]
fn unreadable_files_are_named() {
    let cases: [(&[&str], &[u8], &[&str]); 7] = [
        (&["-f", "nowhere.yaml"], b"", &["nowhere.yaml", "no such file"]),
        (&["-f", "expected"], b"", &["expected", "directory"]),
        (&["-f", "-", "-f", "-"], b"", &["twice"]),
        (&[], b"kind: Pod\na: \xff\xfe\n", &["standard input", "line 2", "UTF-8"]),
        (&[], b"\xff\xfek\0i\0n\0d\0", &["UTF-16"]),
        (&["-f", "list.yaml", "-f", "nowhere.yaml"], b"", &["nowhere.yaml"]),
        (&["--nonsense"], b"", &["--nonsense"]),
    ];
    for (arguments, input, words) in cases {
        for command in ["inject", "explain"] {
            let arguments = [&[command], arguments].concat();
            let error = run(&arguments, input).error();
            for word in words {
                assert!(error.contains(word), "{arguments:?}: {word:?} isn't in {error:?}");
            }
        }
    }
}

#[test]
fn an_invalid_configuration_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("swansong.yaml");
    std::fs::write(&config, "nonsense: 1\n").expect("written");
    let error = run(&["inject", "--config", &config.to_string_lossy(), "-f", "list.yaml"], "").error();
    assert!(error.contains("nonsense") && error.contains("swansong.yaml"), "{error}");
    let error = run(&["explain", "--config", "nowhere.yaml", "-f", "list.yaml"], "").error();
    assert!(error.contains("nowhere.yaml"), "{error}");
}

#[test]
fn a_damaged_record_is_an_error_of_uninject() {
    let pod =
        "apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    swansong.dev/injected: 'no'\nspec: {}\n";
    let error = run(&["uninject"], pod).error();
    assert!(error.contains("document 1") && error.contains("swansong.dev/injected"), "{error}");
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = format!("kind: Foo\na: {}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    run(&["inject"], deep).error();
    let json = format!("{{\"kind\":\"Foo\",\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    run(&["inject"], json).error();
    let mut laughs = "kind: Foo\na0: &a0 [x]\n".to_owned();
    for level in 1..40 {
        let before = level - 1;
        let _ = writeln!(laughs, "a{level}: &a{level} [*a{before}, *a{before}, *a{before}, *a{before}]");
    }
    let error = run(&["inject"], laughs).error();
    assert!(error.contains("aliases expand"), "{error}");
    let mut chain = "kind: Foo\na0: &a0 [x]\n".to_owned();
    for level in 1..5000 {
        let _ = writeln!(chain, "a{level}: &a{level} [*a{}]", level - 1);
    }
    run(&["inject"], chain).error();
}

#[test]
fn a_document_that_is_too_large_is_an_error() {
    let large = format!("kind: A\n---\nkind: B\n# {}\n", "x".repeat(32 << 20));
    let error = run(&["inject"], large).error();
    assert!(error.contains("document 2, line 3: it is larger than 32 MiB"), "{error}");
}

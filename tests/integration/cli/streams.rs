//! Streams of documents: byte for byte where nothing changes, and joined so that they can be read.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{run, workloads};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations:\n    recover-strategy: dump\nspec:\n  containers:\n  - name: ascend\n";

#[test]
fn unrelated_documents_pass_byte_for_byte() {
    for text in [
        "",
        "\n",
        "---\n",
        "---\n---\n---",
        "# nothing but a comment",
        "---\n# c\n...\n",
        "\u{feff}kind: Foo\r\na:   1   # 注释\r\n\r\n---\r\n",
        "# c\n--- # d\n---\n\n---\nkind: Foo\na: !y z\n---\n---",
        "kind: Foo\na: &a {b: [1, 0x1F, 1_000, .5]}\nc:\n  <<: *a\n  d: *a\n",
        "kind: Foo\ns: |+\n  keep\n\n\n---\nkind: Foo\ns: >-\n  folded\n   more\n",
        "? kind\n: Foo\n? \"quoted\"\n: 'single'\n",
        "{\"kind\": \"Foo\",\t\"a\": 1e400}",
        "{\"kind\": \"Foo\"}{\"kind\": \"Foo\"}\n\n[ ]",
        "{kind: Foo}\n---\n{kind: Bar,}\n",
        "kind: Foo\nmetadata: {annotations: {recover-strategy: dump}}\n",
        "no-kind: at all\n",
    ] {
        for command in ["inject", "uninject"] {
            let run = run(&[command], text);
            if text.ends_with("[ ]") {
                // A list isn't an object, JSON or not.
                run.error();
            } else {
                assert_eq!(run.output(), text);
            }
        }
    }
}

#[test]
fn only_the_changed_document_of_a_stream_changes() {
    let before = "# 一\n---\n\nkind:   Foo   # unusual\n\n---   # next\n";
    let after = "\n---\n# 三\nkind: Bar\n...\n# end";
    let out = run(&["inject"], format!("{before}{POD}{after}")).output();
    assert!(out.starts_with(before) && out.ends_with(after) && out.contains("TTP_PORT"), "{out}");
}

#[test]
fn comments_between_a_dash_and_its_item_are_kept() {
    let text = "apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {recover-strategy: dump}}
spec:
  containers:
  - # the training container -
    # - in two lines
    name: ascend # kept
    env:
    -
      # - c
      name: A # kept
    - # d
      name: LD_PRELOAD
      value: /a.so # kept
    ports:
    -   # e
      containerPort: 80
  -   # another
    name: b
";
    let out = run(&["inject"], text).output();
    let mut lines = out.lines();
    for line in text.lines().filter(|line| !line.contains("/a.so") && !line.starts_with("metadata")) {
        assert!(lines.any(|other| other == line), "{line} is gone:\n{out}");
    }
    assert_eq!(run(&["uninject"], out).output(), text);
}

#[test]
fn carriage_returns_and_a_missing_last_line_break_are_kept() {
    let windows = POD.replace('\n', "\r\n");
    let out = run(&["inject"], &windows).output();
    assert_eq!(out.matches('\n').count(), out.matches("\r\n").count(), "{out:?}");
    assert_eq!(run(&["uninject"], out).output(), windows);

    let marked = format!("\u{feff}# c\n{POD}");
    let out = run(&["inject"], &marked).output();
    assert!(out.starts_with("\u{feff}# c\napiVersion"), "{out}");
    assert_eq!(run(&["uninject"], out).output(), marked);
    let marked = format!("\u{feff}{POD}# c\n");
    let out = run(&["inject"], &marked).output();
    assert_eq!(run(&["uninject"], out).output(), marked);

    let unfinished = POD.trim_end();
    let out = run(&["inject"], unfinished).output();
    assert!(!out.ends_with('\n'));
    assert_eq!(run(&["uninject"], out).output(), unfinished);
}

#[test]
fn yaml_1_1_scalars_are_read_like_kubectl() {
    let host = |word: &str| {
        POD.replace("spec:\n", &format!("spec:\n  hostNetwork: {word}\n"))
            .replace("name: p\n", "name: p\n  labels: {replica-type: worker}\n")
    };
    for (word, skipped) in
        [("yes", true), ("On", true), ("TRUE", true), ("off", false), ("no", false), ("n", false)]
    {
        let out = run(&["explain", "-o", "json"], host(word)).output();
        assert_eq!(out.contains("HostNetworkNotRankZero"), skipped, "{word}");
    }
    run(&["explain"], host("\"yes\"")).error();
    let port = |port: &str| {
        POD.to_owned() + &format!("    ports:\n    - {{name: ttp-port, containerPort: {port}}}\n")
    };
    for spelling in ["8000", "8_000", "0x1F40", "017500", "0o17500", "8000.0"] {
        let json = run(&["inject", "-o", "json"], port(spelling)).json();
        assert_eq!(json[0]["spec"]["containers"][0]["ports"][0]["containerPort"], json!(8000), "{spelling}");
        let ports = json[0]["spec"]["containers"][0]["ports"].as_array().map(Vec::len);
        assert_eq!(ports, Some(2), "{spelling}: only 9601 is missing");
    }
}

#[test]
fn json_keeps_all_digits() {
    let pod = POD.to_owned() + "futureX: {a: 12345678901234567890123.45678901234567890, b: 1e3, c: 0.10}\n";
    let out = run(&["inject", "-o", "json"], &pod).output();
    assert!(out.contains("12345678901234567890123.45678901234567890"), "{out}");
    assert!(out.contains("\"b\": 1e3"), "{out}");
}

#[test]
fn several_files_are_joined() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    };
    let plain = write("plain.yaml", "kind: A");
    let marked = write("marked.yaml", "--- # b\nkind: B\n");
    let commented = write("commented.yaml", "# c\n---\nkind: C\n");
    let stream = write("stream.json", "{\"kind\":\"D\"}\n{\"kind\":\"E\"}\n");
    let join = |files: &[&String], input: &str| {
        let mut arguments = vec!["inject"];
        for file in files {
            arguments.extend(["-f", file.as_str()]);
        }
        run(&arguments, input).output()
    };
    assert_eq!(join(&[&plain, &plain], ""), "kind: A\n---\nkind: A");
    assert_eq!(join(&[&plain, &marked], ""), "kind: A\n--- # b\nkind: B\n");
    // kubectl doesn't recognise a separator after a byte order mark.
    let bom = write("bom.yaml", "\u{feff}---\nkind: B\n");
    assert_eq!(join(&[&bom, &bom], ""), "\u{feff}---\nkind: B\n---\nkind: B\n");
    assert_eq!(join(&[&plain, &"-".to_owned()], "kind: I\n"), "kind: A\n---\nkind: I\n");
    assert_eq!(join(&[&stream, &stream], ""), "{\"kind\":\"D\"}\n{\"kind\":\"E\"}\n".repeat(2));
    let mixed = join(&[&plain, &commented, &stream], "");
    let kinds: Vec<Value> = run(&["inject", "-o", "json"], mixed)
        .json()
        .into_iter()
        .map(|object| object["kind"].clone())
        .collect();
    assert_eq!(kinds, ["A", "C", "D", "E"]);
}

#[test]
fn the_patch_has_the_documented_shape() {
    let patch = run(&["inject", "-o", "patch"], format!("kind: Foo\n---\n{POD}")).json().remove(0);
    let entries = patch.as_array().expect("an array");
    assert_eq!(entries.len(), 1);
    let entry = &entries[0];
    assert_eq!(
        (&entry["document"], &entry["kind"], &entry["name"], &entry["namespace"]),
        (&json!(1), &json!("Pod"), &json!("p"), &json!(""))
    );
    assert_eq!(entry["patch"][0]["op"], "add");
    let list = run(&["inject", "-o", "patch", "-f", "list.yaml"], "").json().remove(0);
    assert!(list[0]["patch"][0]["path"].as_str().expect("a path").starts_with("/items/1/"), "{list}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_swansong"))
        .args(["inject", "-o", "json", "-f", "pods-unusual.yaml"])
        .current_dir(workloads())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut error).expect("UTF-8");
    assert!(child.wait().expect("it ends").success(), "{error}");
    assert!(!error.contains("panicked"), "{error}");
}

#[test]
fn a_large_list_is_injected() {
    let item = "- apiVersion: v1\n  kind: Pod\n  metadata:\n    annotations:\n      recover-strategy: dump\n  spec:\n    containers:\n    - name: ascend\n";
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}", item.repeat(1000));
    let out = run(&["inject"], &list).output();
    assert_eq!(out.matches("name: TTP_PORT").count(), 1000);
    assert_eq!(run(&["uninject"], out).output(), list);
}

#[test]
fn a_byte_order_mark_at_the_head_of_a_later_document_is_kept() {
    let plain = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
    let pod = "\u{feff}apiVersion: v1\nkind: Pod\nmetadata:\n  name: b\n  annotations:\n    recover-strategy: dump\nspec:\n  containers:\n  - name: ascend\n";
    let input = format!("{plain}---\n{pod}---\n\u{feff}{plain}");
    let injected = run(&["inject"], &input).output();
    assert!(injected.starts_with(&format!("{plain}---\n\u{feff}apiVersion: v1\nkind: Pod\n")), "{injected}");
    assert!(injected.ends_with(&format!("---\n\u{feff}{plain}")), "{injected}");
    assert!(injected.contains("TTP_PORT"), "{injected}");
    assert_eq!(run(&["uninject"], &injected).output(), input);
}

#[test]
fn comments_stay_below_the_last_entry_that_they_follow() {
    let input = "\
apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations:
    recover-strategy: dump
    # saved by the platform
spec:
  containers:
  - name: ascend
    env:
    - name: DATA
      value: /data
      # mounted by the storage class
    # end of the environment
    # about the image
    image: train
";
    let injected = run(&["inject"], input).output();
    for kept in [
        "    recover-strategy: dump\n    # saved by the platform\n",
        "      value: /data\n      # mounted by the storage class\n    # end of the environment\n    # about the image\n    - name: ",
    ] {
        assert!(injected.contains(kept), "{injected}");
    }
    assert_eq!(run(&["uninject"], &injected).output(), input);
}

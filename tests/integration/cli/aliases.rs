//! Files with anchors, aliases and merge keys: what doesn't change keeps its text, and what is written out is named.

use crate::support::{Run, run};

/// The lines of a text that another one lacks, in order.
fn lost<'t>(before: &'t str, after: &str) -> Vec<&'t str> {
    let mut rest = after.lines();
    let mut lost = Vec::new();
    for line in before.lines() {
        let mut ahead = rest.clone();
        if ahead.any(|other| other == line) {
            rest = ahead;
        } else {
            lost.push(line);
        }
    }
    lost
}

/// The messages about lines that are rewritten.
fn rewrites(run: &Run) -> Vec<&str> {
    run.stderr.lines().filter(|line| line.contains("written out") || line.contains("rewritten")).collect()
}

const HEAD: &str = "apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    recover-strategy: dump
";

#[test]
fn aliases_whose_values_stay_equal_are_kept() {
    let input = format!(
        "{HEAD}spec:
  containers:
  - name: a # first
    resources: &npu # eight of them
      limits: {{huawei.com/Ascend910: 8}}
    env: &env
    # about A
    - name: A # kept
      value: \"1\"
  - name: b
    resources: *npu # the same
    env: *env # the same
"
    );
    let injected = run(&["inject"], &input);
    assert_eq!(lost(&input, &injected.stdout), [""; 0], "{}", injected.stdout);
    assert_eq!(rewrites(&injected), [""; 0]);
    let injected = injected.output();
    assert_eq!(injected.matches("name: TTP_PORT").count(), 1, "by the alias for both: {injected}");
    assert_eq!(run(&["uninject"], &injected).output(), input);
}

#[test]
fn an_edit_through_an_alias_leaves_the_anchor_and_other_aliases() {
    let input = format!(
        "x-env: &env
# about A
- {{name: A, value: \"1\"}} # kept
{HEAD}spec:
  initContainers:
  - name: copy
    env: *env # of the copy
  containers:
  - name: ascend
    env: *env # of the training
  - name: sidecar
    env: *env
"
    );
    let injected = run(&["inject"], &input);
    assert_eq!(lost(&input, &injected.stdout), ["    env: *env # of the training"], "{}", injected.stdout);
    assert!(injected.stdout.contains("    env: # of the training\n"), "{}", injected.stdout);
    let messages = rewrites(&injected);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].starts_with("note: standard input: document 1, line 16: the value of *env is"),
        "{messages:?}"
    );
}

#[test]
fn the_first_alias_of_a_changed_anchor_gets_the_former_value_and_the_anchor() {
    let input = format!(
        "{HEAD}spec:
  containers:
  - name: ascend
    env: &env
    - {{name: A, value: \"1\"}} # kept
  - name: sidecar
    env: *env # first
  - name: second
    env: *env # second
"
    );
    let injected = run(&["inject"], &input);
    assert_eq!(lost(&input, &injected.stdout), ["    env: *env # first"], "{}", injected.stdout);
    assert!(
        injected.stdout.contains("    env: &env # first\n    - name: A\n      value: \"1\"\n"),
        "{}",
        injected.stdout
    );
    assert_eq!(rewrites(&injected).len(), 1);
}

#[test]
fn merge_keys_stay() {
    let input = format!(
        "x-base: &base
  image: train # kept
  env:
  # about A
  - {{name: A, value: \"1\"}}
{HEAD}spec:
  containers:
  - <<: *base # the base
    # the name
    name: ascend
  - {{<<: *base, name: sidecar}}
"
    );
    let injected = run(&["inject"], &input);
    assert_eq!(lost(&input, &injected.stdout), [""; 0], "{}", injected.stdout);
    let injected = injected.output();
    let out = run(&["uninject"], &injected).output();
    assert_eq!(lost(&input, &out), [""; 0], "{out}");
}

#[test]
fn a_merged_mapping_that_changes_is_written_out_in_its_place() {
    let input = format!(
        "{HEAD}spec:
  containers:
  - &first
    name: ascend # kept
    image: train
  - <<: *first # as the first
    # another name
    name: sidecar
"
    );
    let injected = run(&["inject"], &input);
    assert_eq!(lost(&input, &injected.stdout), ["  - <<: *first # as the first"], "{}", injected.stdout);
    assert!(injected.stdout.contains("  - <<: # as the first\n"), "{}", injected.stdout);
    assert_eq!(rewrites(&injected).len(), 1);
}

#[test]
fn replaced_lines_are_named() {
    // A merge key below the member that it overrides can't be edited in place.
    let input = format!(
        "{HEAD}spec:
  containers:
  - name: ascend
    image: one # lost
    <<: {{image: two}}
"
    );
    let injected = run(&["inject"], &input);
    let messages = rewrites(&injected);
    assert!(
        messages.len() == 1 && messages[0].contains("document 1, lines 9 to 11: rewritten"),
        "{messages:?}"
    );
    assert!(rewrites(&run(&["inject", "-o", "json"], &input)).is_empty(), "JSON has no lines of the file");
}

#[test]
fn scalars_on_several_lines_are_restored_byte_for_byte() {
    for value in [
        ">-\n        /usr/lib/a.so\n        /usr/lib/b.so",
        ">-  # folded\n        /usr/lib/a.so\n        /usr/lib/b.so",
        "|-\n        /usr/lib/a.so",
        ">\n        /usr/lib/a.so\n        /usr/lib/b.so",
        "\"/usr/lib/a.so\n        /usr/lib/b.so\"",
        "\"\\/usr/lib/a.so:\\\n        /usr/lib/b.so\"",
        "'/usr/lib/a.so\n        /usr/lib/b.so'",
        "/usr/lib/a.so\n        /usr/lib/b.so",
        "!!str >-\n        /usr/lib/a.so\n        /usr/lib/b.so",
    ] {
        let input = format!(
            "{HEAD}spec:\n  containers:\n  - name: ascend\n    env:\n    - name: LD_PRELOAD\n      value: {value}\n    image: x\n"
        );
        let injected = run(&["inject"], &input);
        assert_eq!(rewrites(&injected), [""; 0], "{value}");
        let injected = injected.output();
        assert!(
            injected.contains("libtaskd.so:/usr/lib/a.so") || injected.contains("libtaskd.so:\\/usr"),
            "{injected}"
        );
        assert_eq!(run(&["uninject"], &injected).output(), input);
    }
}

#[test]
fn keys_without_a_value_are_restored_byte_for_byte() {
    let input = format!(
        "{HEAD}spec:
  volumes: # none
  containers:
  - name: ascend
    env:
    - name: LD_PRELOAD
      value: # none yet
    - name: B
      value:
    ports:
    # below
    volumeMounts:
"
    );
    let injected = run(&["inject"], &input).output();
    assert!(injected.contains("libtaskd.so"), "{injected}");
    assert_eq!(run(&["uninject"], injected).output(), input);
}

#[test]
fn a_copied_record_removes_only_what_is_there() {
    let pod = format!("{HEAD}spec:\n  containers:\n  - name: ascend\n    image: x\n");
    let injected = run(&["inject"], &pod).output();
    let record = injected.lines().find(|line| line.contains("swansong.dev/injected")).expect("a record");
    let record = record.split_once("swansong.dev/injected: ").expect("its value").1.trim_end_matches('}');
    for spec in [
        "spec:\n  containers:\n  - name: other # kept\n    image: two\n",
        "spec:\n  containers:\n  - name: ascend\n    image: two\n    env: []\n    ports:\n    - containerPort: 8000 # ours\n    volumeMounts: null\n",
        "spec:\n  containers:\n  - name: ascend\n    env:\n    - {name: TTP_PORT, value: \"8123\"} # mine\n    - {name: LD_PRELOAD, value: /mine.so}\n",
        "spec:\n  containers: []\n",
        "spec: null\n",
    ] {
        let head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: q\n  annotations:\n    a: b\n";
        let copied = format!("{head}    swansong.dev/injected: {record}\n{spec}");
        assert_eq!(run(&["uninject"], &copied).output(), format!("{head}{spec}"));
    }
}

//! `explain`: its JSON, its exit status and the note about the reset ConfigMap.

use serde_json::Value;

use crate::support::run;

fn documents(input: &str) -> Vec<Value> {
    let json = run(&["explain", "-o", "json"], input).json().remove(0);
    json["documents"].as_array().expect("an array").clone()
}

#[test]
fn every_document_has_the_documented_keys() {
    let json = run(&["explain", "-o", "json", "-f", "apps.yaml", "-f", "list.yaml", "-f", "stream.yaml"], "");
    let json = json.json().remove(0);
    for document in json["documents"].as_array().expect("an array") {
        for key in ["kind", "name", "namespace"] {
            assert!(document[key].is_string(), "{key}: {document}");
        }
        assert!(document["strategies"].is_array() && document["injected"].is_boolean(), "{document}");
        assert!(document["skipReason"].is_null() || document["skipReason"].is_string(), "{document}");
        assert_eq!(document["injected"].as_bool(), Some(document["skipReason"].is_null()));
        for template in document["templates"].as_array().expect("an array") {
            assert!(template["path"].is_string() && template["rankZero"].is_boolean(), "{template}");
            for container in template["containers"].as_array().expect("an array") {
                assert!(container["name"].is_string(), "{container}");
                for action in container["actions"].as_array().expect("an array") {
                    assert!(action["field"].is_string() && action["reason"].is_string(), "{action}");
                    assert!(
                        ["added", "merged", "kept", "skipped"]
                            .contains(&action["action"].as_str().expect("a word"))
                    );
                    assert!(action.as_object().expect("an object").contains_key("value"), "{action}");
                }
            }
        }
        for warning in document["warnings"].as_array().expect("an array") {
            let warning = warning.as_str().expect("a string");
            let (reason, message) = warning.split_once(": ").expect("reason and message");
            assert!(reason.chars().all(char::is_alphanumeric) && !message.is_empty(), "{warning}");
        }
    }
}

#[test]
fn other_kinds_are_listed() {
    let documents =
        documents("kind: ConfigMap\nmetadata: {name: c, namespace: ns}\n---\na: 1\n---\n# nothing\n");
    let reasons: Vec<_> = documents.iter().map(|document| document["skipReason"].clone()).collect();
    assert_eq!(reasons, ["KindNotHandled", "KindMissing"]);
    assert_eq!((&documents[0]["name"], &documents[0]["namespace"]), (&"c".into(), &"ns".into()));
}

#[test]
fn the_items_of_a_list_are_documents() {
    let json = run(&["explain", "-o", "json", "-f", "list.yaml"], "").json().remove(0);
    let found: Vec<_> = json["documents"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|document| (document["path"].as_str(), document["kind"].as_str(), document["name"].as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (Some("/items/0"), Some("Service"), Some("untouched")),
            (Some("/items/1"), Some("Pod"), Some("first")),
            (Some("/items/2"), Some("AscendJob"), Some("inner")),
            (Some("/items/0"), Some("Pod"), Some("says-no-kind")),
        ]
    );
    let warnings = json["documents"][3]["warnings"].as_array().map(Vec::len);
    assert_eq!(warnings, Some(0), "a typed list says the kind of its items: {json}");
}

#[test]
fn fail_on_warning_sets_the_exit_status() {
    let windows = "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {recover-strategy: dump}}\nspec:\n  os: {name: windows}\n  containers: [{name: a}]\n";
    let clean = windows.replace("windows", "linux");
    for (input, arguments, code) in [
        (windows, &["explain"][..], 0),
        (windows, &["explain", "--fail-on-warning"], 2),
        (windows, &["explain", "--fail-on-warning", "-o", "json"], 2),
        (&clean, &["explain", "--fail-on-warning"], 0),
        ("a: [", &["explain", "--fail-on-warning"], 1),
        (&clean, &["explain", "--fail-on-warnings"], 1),
    ] {
        assert_eq!(run(arguments, input).code, code, "{arguments:?} {input}");
    }
    assert!(run(&["explain", "--help"], "").output().contains("status 2"));
}

#[test]
fn a_missing_reset_config_map_is_a_note() {
    let job = |namespace: &str| {
        format!(
            "apiVersion: mindxdl.gitee.com/v1\nkind: AscendJob\nmetadata:\n  name: j\n{namespace}  labels: {{framework: pytorch}}\n  annotations: {{recover-strategy: dump}}\nspec:\n  replicaSpecs:\n    Master: {{template: {{spec: {{containers: [{{name: ascend}}]}}}}}}\n"
        )
    };
    let reset = |namespace: &str, label: &str, json: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: reset-config-j\n{namespace}  labels: {{reset: {label}}}\ndata:\n  reset.json: '{json}'\n"
        )
    };
    let here = "  namespace: ns\n";
    let good = r#"{"status":"initializing"}"#;
    for (input, words) in [
        (job(here), "isn't in this input"),
        (job(here) + &reset(here, "\"true\"", good), "in this input and valid"),
        (job(here) + &reset("  namespace: m\n", "\"true\"", good), "isn't in this input"),
        (job("") + &reset(here, "\"true\"", good), "has a namespace"),
        (job(here) + &reset(here, "\"false\"", good), "lacks the label"),
        (job(here) + &reset(here, "\"true\"", "[]"), "isn't an object"),
        (job(here) + &reset(here, "\"true\"", ""), "it has an empty reset.json"),
        (job(here) + &reset(here, "\"true\"", good).replace("reset.json", "other"), "has no data reset.json"),
    ] {
        let documents = documents(&input);
        let notes = documents[0]["notes"].to_string();
        assert!(notes.contains(words), "{words:?} isn't in {notes}");
        assert_eq!(documents[0]["warnings"].as_array().map(Vec::len), Some(0), "{}", documents[0]);
        assert_eq!(run(&["explain", "--fail-on-warning"], input).code, 0);
    }
}

#[test]
fn changes_of_the_job_metadata_are_listed() {
    let json = run(&["explain", "-o", "json", "-f", "ascendjob-mindspore.yaml"], "").json().remove(0);
    let action = &json["documents"][0]["actions"][0];
    assert_eq!(
        (&action["field"], &action["action"], &action["value"]),
        (&"annotations.recover-strategy".into(), &"merged".into(), &"recover,dump".into())
    );
}

#[test]
fn a_copied_opt_out_is_listed() {
    let job = |annotations: &str| {
        format!(
            "apiVersion: mindxdl.gitee.com/v1\nkind: AscendJob\nmetadata: {{name: j, annotations: {{{annotations}}}}}\n\
             spec: {{replicaSpecs: {{Master: {{template: {{spec: {{containers: [{{name: ascend}}]}}}}}}}}}}\n"
        )
    };
    let out = run(&["explain"], job("recover-strategy: dump, swansong.dev/inject: 'false'")).output();
    assert!(out.contains("unchanged except for the changes below: "), "{out}");
    assert!(out.contains("+ annotations.swansong.dev/inject  false"), "{out}");
    let out = run(&["explain"], job("recover-strategy: retry")).output();
    assert!(out.contains("unchanged: ") && !out.contains("annotations."), "{out}");
}

#[test]
fn other_kinds_that_request_a_dump_are_warned_about() {
    let job = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: t}\nspec:\n  pytorchReplicaSpecs:\n    Master:\n      template:\n        metadata: {annotations: {recover-strategy: 'retry,dump'}}\n";
    let documents = documents(job);
    assert!(
        documents[0]["warnings"][0].as_str().expect("a warning").starts_with("KindNotHandled: "),
        "{documents:?}"
    );
    assert_eq!(run(&["explain", "--fail-on-warning"], job).code, 2);
    let injected = run(&["inject"], job);
    assert!(injected.stderr.contains("warning: PyTorchJob t: KindNotHandled"), "{}", injected.stderr);
    assert_eq!(injected.output(), job);
    assert_eq!(run(&["explain", "--fail-on-warning"], job.replace("retry,dump", "retry")).code, 0);
}

#[test]
fn other_kinds_are_warned_about_in_any_spelling_and_at_any_depth() {
    for (kind, body) in [
        ("apps/v1 ReplicaSet", "spec: {template: {metadata: {annotations: {recover-strategy: dump}}}}"),
        (
            "trainer.kubeflow.org/v1alpha1 TrainJob",
            "spec: {annotations: {recover-strategy: 'recover, dump'}}",
        ),
        (
            "jobset.x-k8s.io/v1alpha2 JobSet",
            "spec: {replicatedJobs: [{template: {spec: {template: {metadata: {annotations: {recover-strategy: dump}}}}}}]}",
        ),
        ("kubeflow.org/v1 MPIJob", "metadata: {labels: {recover-strategy: dump}}"),
        ("flow.volcano.sh/v1alpha1 JobFlow", "metadata: {annotations: {recover_strategy: dump}}"),
        ("v1 ReplicationControllerList", "items: [{metadata: {annotations: {recover-strategy: dump}}}]"),
    ] {
        let (api_version, kind) = kind.split_once(' ').expect("a kind");
        let object = format!("apiVersion: {api_version}\nkind: {kind}\n{body}\n");
        let injected = run(&["inject"], &object);
        assert!(
            injected.stderr.contains(&format!("no effect on a {kind}, which")),
            "{kind}: {}",
            injected.stderr
        );
        assert_eq!(injected.output(), object);
        assert_eq!(run(&["explain", "--fail-on-warning"], &object).code, 2, "{kind}");
    }
    let elsewhere = "apiVersion: mindxdl.gitee.org/v1\nkind: AscendJob\nmetadata: {annotations: {recover-strategy: dump}}\n";
    let message = run(&["inject"], elsewhere).stderr;
    assert!(
        message.contains("\"mindxdl.gitee.org\"") && message.contains("correct its apiVersion"),
        "{message}"
    );
}

#[test]
fn a_note_is_not_a_warning() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: w, labels: {replica-type: worker}, annotations: {recover-strategy: dump}}\nspec: {hostNetwork: true, containers: [{name: ascend, env: [{name: MASTER_ADDR, value: 10.0.0.1}]}]}\n";
    let documents = documents(pod);
    assert_eq!(documents[0]["warnings"].as_array().map(Vec::len), Some(0));
    assert!(documents[0]["notes"].to_string().contains("HostNetworkNotRankZero"), "{}", documents[0]);
    assert_eq!(run(&["explain", "--fail-on-warning"], pod).code, 0);
    assert!(run(&["inject"], pod).stderr.starts_with("note: Pod w: HostNetworkNotRankZero"));
}

#[test]
fn a_pod_whose_preload_changes_can_not_be_applied_again() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {recover-strategy: dump}}\nspec: {containers: [{name: ascend, env: [{name: LD_PRELOAD, value: /a.so}]}]}\n";
    let notes = documents(pod)[0]["notes"].to_string();
    assert!(notes.contains("a second `kubectl apply` of this file fails"), "{notes}");
    assert_eq!(run(&["explain", "--fail-on-warning"], pod).code, 0);
    let injected = run(&["inject"], pod).output();
    for other in [injected, pod.replace("LD_PRELOAD", "OTHER")] {
        assert!(!documents(&other)[0]["notes"].to_string().contains("kubectl apply"));
    }
}

#[test]
fn control_characters_are_escaped() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: \"a\\e[2Jb\\u202e\\u2028\\u200b\\ufeff\\x9b\\x7f\"\n  annotations: {recover-strategy: \"dump,\\e[32mx\"}\nspec:\n  hostNetwork: true\n  containers:\n  - name: \"ascend\\e]0;t\\a\"\n    env: [{name: LD_PRELOAD, value: \"/a\\e[31m.so\\rnothing\"}]\n";
    for command in ["inject", "explain"] {
        let run = run(&[command], pod);
        let text = if command == "explain" { run.stdout + &run.stderr } else { run.stderr };
        assert!(text.contains("\\u{1b}[2Jb"), "{text}");
        let is_hidden = |c| matches!(c, '\u{202e}' | '\u{2028}' | '\u{200b}' | '\u{feff}');
        assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || is_hidden(c)), "{text:?}");
    }
}

#[test]
fn other_lists_pass_untouched() {
    let list = "apiVersion: net.example.com/v1\nkind: AccessAllowList\nitems:\n- 10.1.0.0/16\n";
    assert_eq!(run(&["inject"], list).output(), list);
    assert_eq!(documents(list)[0]["skipReason"], "KindNotHandled");
}

#[test]
fn each_part_of_zero_touch_is_shown_with_what_leaves_it_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, "zeroTouch: true\n").expect("written");
    let pod = "{kind: Pod, apiVersion: v1, metadata: {name: p, annotations: {recover-strategy: dump}}, \
               spec: {containers: [{name: ascend, image: i}]}}";
    let job = "{kind: AscendJob, apiVersion: mindxdl.gitee.com/v1, metadata: {name: j, annotations: {recover-strategy: dump}}, \
               spec: {replicaSpecs: {Master: {template: {spec: {containers: [{name: ascend, image: i}]}}}}}}";
    for (object, manager) in [(pod, "+ manager"), (job, "- manager")] {
        let text = run(&["explain", "--config", config.to_str().expect("a path")], object).output();
        for (part, hint) in [
            ("+ libraries", "`swansong.dev/libraries: configured` leaves it out"),
            ("+ launcherPatch", "`dump.launcherPatch: false` leaves it out"),
            ("+ env.PET_MAX_RESTARTS", "`torchrunDefaults: false` leaves it out"),
            ("+ env.PET_MONITOR_INTERVAL", "`torchrunDefaults: false` leaves it out"),
            (manager, "`swansong.dev/manager: none` leaves it out"),
        ] {
            let line = text.lines().find(|line| line.trim_start().starts_with(part));
            assert!(line.is_some_and(|line| line.contains(hint)), "{part}:\n{text}");
        }
        for reminder in ["distributed/run.py", "manager.py"] {
            assert!(!text.contains(reminder), "{reminder}:\n{text}");
        }
        assert!(text.contains("image: /bin/sh, which"), "{text}");
    }
    assert!(run(&["explain"], pod).output().contains("manager.py"));
}

#[test]
fn manager_py_is_the_program_of_the_sidecar() {
    let printed = run(&["manager-py"], "").output();
    let program = swansong_inject::manager::PROGRAM;
    assert_eq!(printed, program);
    let pod = "{kind: Pod, apiVersion: v1, metadata: {name: p, annotations: {recover-strategy: dump, \
               swansong.dev/manager: sidecar}}, spec: {containers: [{name: ascend}]}}";
    let injected = run(&["inject", "-o", "json"], pod).json().remove(0);
    assert_eq!(injected["spec"]["initContainers"][0]["command"][4], program);
}

#[test]
fn image_check_reads_a_root_folder_and_says_what_is_missing() {
    let root = tempfile::tempdir().expect("a folder");
    let shell = root.path().join("bin");
    std::fs::create_dir(&shell).expect("made");
    std::fs::copy("/bin/sh", shell.join("sh")).expect("copied");
    let path = root.path().to_str().expect("a path");
    let checked = run(&["image-check", path], "");
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    for line in ["taskd     missing  no site directory has the package taskd", "shell     ok       there"] {
        assert!(checked.stdout.contains(line), "{}", checked.stdout);
    }
    assert_eq!(run(&["image-check", "--fail-on-warning", path], "").code, 2);
    let missing = run(&["image-check", "/nowhere.tar"], "");
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("/nowhere.tar"), "{}", missing.stderr);
    assert_eq!(run(&["image-check"], "").code, 1);
}

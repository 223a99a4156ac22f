//! `lint-script`, and what `explain` says of training programs.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::run;

fn corpus(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("webhook/trainer/tests/corpus");
    folder.join(name).to_string_lossy().into_owned()
}

#[test]
fn exit_status_of_a_linted_script_follows_its_findings() {
    let script = corpus("pretrain_tee.sh");
    for (arguments, code) in [
        (&["lint-script", &script][..], 0),
        (&["lint-script", "--fail-on-warning", &script], 2),
        (&["lint-script", "--fail-on-warning", &corpus("pretrain_grouped_arguments.sh")], 0),
        (&["lint-script", "missing.sh"], 1),
    ] {
        assert_eq!(run(arguments, "").code, code, "{arguments:?}");
    }
    let text = run(&["lint-script", &script], "").output();
    assert!(
        text.contains(": can\n") && text.contains("WARNING line") && text.contains("ExitStatusLost"),
        "{text}"
    );
    assert!(
        text.contains("data-parallel size 4: 16 NPUs ÷ (tensor 2 · pipeline 2 · context 1); 2 replicas"),
        "{text}"
    );
}

#[test]
fn script_is_read_from_standard_input() {
    let json =
        run(&["lint-script", "-o", "json", "-"], "torchrun posttrain_gpt.py --lora-r 8\n").json().remove(0);
    assert_eq!(json["scripts"][0]["verdict"], "can't");
    assert_eq!(json["scripts"][0]["trainings"][0]["framework"], "MindSpeed-LLM");
}

const JOB: &str = r#"
kind: ConfigMap
apiVersion: v1
metadata: {name: scripts}
data:
  start.sh: |
    cd /code/MindSpeed-LLM
    torchrun --nproc_per_node $LOCAL --nnodes $NODES pretrain_gpt.py --use-distributed-optimizer \
      --tensor-model-parallel-size $TP --save /ckpt $EXTRA
---
kind: AscendJob
apiVersion: mindxdl.gitee.com/v1
metadata: {name: j, annotations: {recover-strategy: dump}}
spec:
  replicaSpecs:
    Master:
      template:
        spec:
          containers:
            - name: ascend
              command: [bash, /scripts/start.sh]
              env: [{name: TP, value: "TENSOR"}, {name: LOCAL, value: "8"}, {name: NODES, value: "1"}]
              resources: {limits: {huawei.com/Ascend910: 8}}
              volumeMounts: [{name: s, mountPath: /scripts}]
          volumes: [{name: s, configMap: {name: scripts}}]
"#;

fn explain(arguments: &[&str], input: &str) -> Value {
    let json = run(&[&["explain", "-o", "json"], arguments].concat(), input).json().remove(0);
    let documents = json["documents"].as_array().expect("an array");
    documents.iter().find(|document| document["kind"] == "AscendJob").expect("the job").clone()
}

#[test]
fn script_of_a_mounted_config_map_is_read_with_the_variables_of_the_container() {
    for (tensor, verdict, warning) in
        [("4", "can", None), ("8", "can't", Some("NoReplica: container ascend: "))]
    {
        let document = explain(&[], &JOB.replace("TENSOR", tensor));
        assert_eq!(document["trainers"][0]["verdict"], verdict, "{document}");
        assert_eq!(document["trainers"][0]["trainings"][0]["parallelism"]["npus"], 8);
        let warnings = document["warnings"].to_string();
        assert_eq!(
            warning.is_some_and(|warning| warnings.contains(warning)),
            warning.is_some(),
            "{warnings}"
        );
    }
}

#[test]
fn script_of_a_file_is_read_with_the_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let (job, script) = (folder.path().join("job.yaml"), folder.path().join("train.sh"));
    fs::write(&job, JOB.replace("/scripts/start.sh", "/job/code/train.sh")).expect("a job");
    fs::write(&script, "torchrun --nproc_per_node 8 posttrain_gpt.py --lora-r 8 --save /ckpt\n")
        .expect("a script");
    let (job, script) = (job.to_string_lossy(), script.to_string_lossy());
    let alone = explain(&["-f", &job], "");
    assert!(
        alone["notes"].to_string().contains("ScriptMissing: container ascend: /job/code/train.sh"),
        "{alone}"
    );
    let both = explain(&["-f", &job, "-f", &script], "");
    assert!(both["warnings"].to_string().contains("the job will not start"), "{both}");
    assert_eq!(run(&["explain", "--fail-on-warning", "-f", &job, "-f", &script], "").code, 2);
}

#[test]
fn launcher_option_that_lost_its_value_is_named_with_its_variable_and_the_program_is_judged() {
    let job = JOB.replace("--nnodes $NODES", "--nnodes $NODES --node_rank 0").replace("TENSOR", "8");
    let job = job.replace("save /ckpt", "save /ckpt --lora-r 16");
    let unset = job.replace("cd /code/MindSpeed-LLM", "LOCAL_NPUS = 8").replace("$LOCAL ", "$LOCAL_NPUS ");
    let empty = job.replace(r#"LOCAL, value: "8""#, r#"LOCAL, value: """#);
    for (job, variable) in [(unset, "$LOCAL_NPUS"), (empty, "$LOCAL")] {
        let document = explain(&[], &job);
        let warnings = document["warnings"].to_string();
        let fault = format!(
            "start.sh:2: the job will not start: --nproc_per_node has no value, because {variable} is empty"
        );
        for part in [fault.as_str(), "LoraStopsJob", "NoReplica"] {
            assert!(warnings.contains(part), "{part}: {document}");
        }
        assert_eq!(document["trainers"][0]["trainings"][0]["program"], "pretrain_gpt.py");
        let text = run(&["explain"], &job).output();
        assert!(text.contains(" to fix") && !text.contains("complete after"), "{text}");
    }
}

#[test]
fn size_that_a_given_storage_rate_lacks_is_named() {
    let sizes = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32";
    for (sizes, vocabulary, missing) in [
        (sizes, "", Some("--padded-vocab-size isn't known")),
        (sizes, "--padded-vocab-size $V", Some("the value of --padded-vocab-size is \"$V\"")),
        ("", "--padded-vocab-size 32000", Some("--num-layers isn't known")),
        (sizes, "--padded-vocab-size 32000", None),
    ] {
        let script =
            format!("torchrun --nproc_per_node 8 pretrain_gpt.py --save /ckpt {sizes} {vocabulary}\n");
        let text = run(&["lint-script", "--storage-rate", "9", "-"], &script).output();
        let note = text.lines().find(|line| line.contains("SizeUnknown"));
        match missing {
            Some(missing) => assert!(note.is_some_and(|note| note.ends_with(missing)), "{text}"),
            None => assert!(note.is_none() && text.contains("estimate: "), "{text}"),
        }
        let without = run(&["lint-script", "-"], &script).output();
        assert!(!without.contains("SizeUnknown"), "{without}");
    }
}

#[test]
fn given_files_that_are_not_the_missing_script_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path.to_string_lossy().into_owned()
    };
    let job = write("job.yaml", &JOB.replace("/scripts/start.sh", "/job/train.sh"));
    let training = "torchrun --nproc_per_node 8 pretrain_gpt.py --save /ckpt --lora-r 8\n";
    let other = write("other.sh", training);
    let (one, two) = (write("one/train.sh", training), write("two/train.sh", training));
    for (files, part) in [
        (&[][..], "/job/train.sh isn't in the input: give that file too".to_owned()),
        (&[&other], format!("found by their path or name, and no command calls {other}")),
        (&[&one, &two], format!("several files of the input have its name: {one}, {two};")),
    ] {
        let arguments = [&job].into_iter().chain(files.iter().copied()).flat_map(|file| ["-f", file]);
        let document = explain(&arguments.collect::<Vec<_>>(), "");
        assert!(document["notes"].to_string().contains(&part), "{part}: {document}");
    }
    let found = explain(&["-f", &job, "-f", &one], "");
    assert!(!found["notes"].to_string().contains("ScriptMissing"), "{found}");
}

#[test]
fn variable_that_volcano_sets_is_not_empty() {
    for (variable, is_refused) in [("VC_WORKER_NUM", false), ("MY_WORKER_NUM", true)] {
        let job = JOB.replace("$NODES", &format!("${variable}"));
        let text = explain(&[], &job).to_string();
        assert_eq!(text.contains("LauncherStopsJob"), is_refused, "{variable}: {text}");
    }
}

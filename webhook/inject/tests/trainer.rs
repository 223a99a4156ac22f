//! What admission says of training programs, by the commands of containers.

use serde_json::{Value, json};
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::reason::Reason;
use swansong_inject::workload::WorkloadKind;

fn warnings(kind: WorkloadKind, container: &Value) -> Vec<(Reason, String)> {
    let mut container = container.clone();
    container["name"] = json!("ascend");
    let template = json!({"spec": {"containers": [container]}});
    let annotations = json!({"recover-strategy": "dump"});
    let object = if kind == WorkloadKind::Pod {
        json!({"kind": "Pod", "metadata": {"annotations": annotations}, "spec": template["spec"]})
    } else {
        json!({"kind": "AscendJob", "metadata": {"name": "j", "annotations": annotations},
               "spec": {"replicaSpecs": {"Master": {"template": template}, "Worker": {"template": template}}}})
    };
    let outcome = inject(kind, &object.to_string(), &Policy::default()).expect("an object");
    assert!(outcome.injected());
    let of_trainer = outcome.warnings.into_iter().filter(|warning| warning.reason.is_of_trainer());
    of_trainer.map(|warning| (warning.reason, warning.message)).collect()
}

const TRAINING: &str = "cd MindSpeed-LLM; torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-distributed-optimizer --save /ckpt";

#[test]
fn lora_is_a_warning_that_the_job_will_not_start() {
    let command = format!("{TRAINING} --lora-r 8");
    let found = warnings(WorkloadKind::AscendJob, &json!({"command": ["bash", "-c"], "args": [command]}));
    let [(Reason::TrainerWontStart, message)] = found.as_slice() else { panic!("{found:?}") };
    assert!(message.starts_with("container ascend: the job will not start: --lora-r"), "{message}");
}

#[test]
fn only_what_is_certain_is_a_warning() {
    let shell = |script: String| json!({"command": ["bash", "-c", script]});
    for (container, expected) in [
        (json!({"command": ["bash", "/job/start.sh"]}), &[][..]),
        (json!({}), &[]),
        (shell(TRAINING.to_owned()), &[]),
        (shell(format!("{TRAINING} $EXTRA")), &[]),
        (shell(format!("{TRAINING} --no-save-optim")), &[Reason::TrainerRestricted]),
        (shell(TRAINING.replace("pretrain", "posttrain")), &[Reason::TrainerNeverSaves]),
        (shell("bash train.sh 2>&1 | tee log".to_owned()), &[Reason::StartScriptFault]),
        (
            json!({"command": ["bash", "-c", format!("{TRAINING} $EXTRA")], "env": [{"name": "EXTRA", "value": "--swap-optimizer"}]}),
            &[Reason::TrainerWontStart],
        ),
        (
            json!({"command": ["bash", "-c", format!("{TRAINING} $EXTRA")],
                   "env": [{"name": "EXTRA", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}),
            &[],
        ),
    ] {
        let reasons: Vec<Reason> =
            warnings(WorkloadKind::AscendJob, &container).into_iter().map(|(reason, _)| reason).collect();
        assert_eq!(reasons, expected, "{container}");
    }
}

/// ascend-operator has set the variables of a Pod before admission sees it.
#[test]
fn pod_has_the_variables_of_the_operator_or_none() {
    let container = |value: &str| json!({"command": ["bash", "-c", TRAINING], "env": [{"name": "HIGH_AVAILABILITY", "value": value}]});
    assert_eq!(warnings(WorkloadKind::Pod, &container("dump,recover")), []);
    let off = warnings(WorkloadKind::Pod, &container(""));
    assert_eq!(off.len(), 1, "{off:?}");
    assert_eq!(off[0].0, Reason::TrainerNeverSaves);
}

/// Templates with many different commands aren't read without end.
#[test]
fn few_commands_of_an_object_are_read() {
    let container = |n: usize| json!({"name": format!("c{n}"), "command": ["sh", "-c", format!("python a{n}.py | tee log{n}")]});
    let containers: Vec<Value> = (0..200).map(container).collect();
    let names: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    let object = json!({
        "kind": "AscendJob",
        "metadata": {"name": "j", "annotations": {"recover-strategy": "dump", "swansong.dev/containers": names.join(",")}},
        "spec": {"replicaSpecs": {"Master": {"template": {"spec": {"containers": containers}}}}},
    });
    let outcome =
        inject(WorkloadKind::AscendJob, &object.to_string(), &Policy::default()).expect("an object");
    let of_scripts = outcome.warnings.iter().filter(|warning| warning.reason == Reason::StartScriptFault);
    assert_eq!(of_scripts.count(), 4);
}

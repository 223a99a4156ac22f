//! The address of MindIO's controller, and its time limits.

use super::*;

/// A Pod of ascend-operator with these variables and labels.
fn operator_pod(replica_type: &str, env: Value) -> Value {
    let mut object = ascend(json!({"env": env}));
    object["metadata"]["labels"] = json!({"replica-type": replica_type});
    object
}

fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

#[test]
fn training_processes_find_the_controller_by_reference() {
    let master = variable("MASTER_ADDR", "10.0.0.1");
    let scheduler =
        json!({"name": "MS_SCHED_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    let of_mindspore = [("MS_TFT_IP", "$(MS_SCHED_HOST)"), ("MS_TFT_PORT", "$(TTP_PORT)")];
    for (replica_type, env, expected) in [
        ("master", master.clone(), &[("TTP_ADDR", "$(POD_IP)")][..]),
        ("worker", master, &[("TTP_ADDR", "$(MASTER_ADDR)")]),
        ("scheduler", scheduler, &of_mindspore),
        ("worker", variable("MS_SCHED_HOST", "10.0.0.1"), &of_mindspore),
    ] {
        let object = operator_pod(replica_type, json!([env]));
        let injected = pod(&object);
        assert_eq!(injected.warned(), [], "{object}");
        let added = names(&injected.object["spec"]["containers"][0]["env"], "name");
        let position = |name: &str| added.iter().position(|added| added == name).expect(name);
        for (name, value) in expected {
            assert_eq!(injected.env(name).unwrap(), value, "{object}");
            let source = value.trim_matches(['$', '(', ')']);
            assert!(position(source) < position(name), "{name} refers to the later {source}: {added:?}");
        }
        let others = ["TTP_ADDR", "MS_TFT_IP", "MS_TFT_PORT"];
        let count = others.iter().filter(|name| injected.env(name).is_some()).count();
        assert_eq!(count, expected.len(), "{object}");
        assert_eq!(crate::support::undone(WorkloadKind::Pod, &injected.object), object);
    }
}

/// The kubelet resolves references in the order of the entries.
#[test]
fn reference_stays_behind_its_source_if_others_refer_to_it() {
    let object = operator_pod(
        "worker",
        json!([
            variable("URL", "tcp://$(TTP_ADDR)"),
            variable("MASTER_ADDR", "10.0.0.1"),
            variable("LATER", "tcp://$(TTP_ADDR)"),
        ]),
    );
    let env = names(&pod(&object).object["spec"]["containers"][0]["env"], "name");
    assert_eq!(env[..4], ["URL", "MASTER_ADDR", "TTP_ADDR", "LATER"]);
}

#[test]
fn address_of_the_user_is_kept() {
    for (env, reason, warned) in [
        (json!([variable("TTP_ADDR", "10.0.0.9")]), Reason::UserValueKept, vec![]),
        (
            json!([variable("MASTER_ADDR", "10.0.0.1"), variable("TTP_ADDR", "$(MASTER_ADDR)")]),
            Reason::AlreadyPresent,
            vec![],
        ),
        (
            json!([variable("TTP_ADDR", "$(MASTER_ADDR)"), variable("MASTER_ADDR", "10.0.0.1")]),
            Reason::UserValueKept,
            vec![Reason::ControllerAddressLiteral],
        ),
    ] {
        let injected = pod(&operator_pod("worker", env.clone()));
        assert_eq!(injected.action("env.TTP_ADDR").unwrap().reason, reason, "{env}");
        assert_eq!(injected.warned(), warned, "{env}");
    }
}

#[test]
fn address_is_left_to_a_local_proxy() {
    let injected = pod(&operator_pod("worker", json!([variable("LOCAL_PROXY_ENABLE", "on")])));
    assert_eq!(injected.env("TTP_ADDR"), None);
    assert_eq!(injected.action("env.LOCAL_PROXY_ENABLE").unwrap().reason, Reason::LocalProxy);
    assert_eq!(injected.warned(), []);
}

#[test]
fn missing_source_of_the_address_is_warned_about() {
    for env in [json!([]), json!([variable("MASTER_ADDR", "")])] {
        let injected = pod(&operator_pod("worker", env));
        assert_eq!(injected.env("TTP_ADDR"), None);
        assert_eq!(injected.warned(), [Reason::ControllerAddressUnknown]);
    }
}

/// The operator appends its variables behind those of the template.
#[test]
fn templates_get_no_reference_and_report_what_their_pods_get() {
    for (framework, expected) in
        [("pytorch", &["env.TTP_ADDR"][..]), ("mindspore", &["env.MS_TFT_IP", "env.MS_TFT_PORT"])]
    {
        let job = json!({
            "kind": "AscendJob",
            "metadata": {"labels": {"framework": framework}, "annotations": {"recover-strategy": "dump"}},
            "spec": {"replicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "ascend"}]}}}}},
        });
        let injected = run(WorkloadKind::AscendJob, &job, &Policy::default());
        let actions = &injected.outcome.templates[0].containers[0].actions;
        let later: Vec<&str> = actions
            .iter()
            .filter(|action| action.reason == Reason::AddedToPods)
            .map(|action| &*action.field)
            .collect();
        assert_eq!(later, expected);
        assert!(!injected.object.to_string().contains("$("));
    }
}

#[test]
fn save_limit_follows_the_strategies_and_the_configuration() {
    let limits = |only, others| Policy {
        dump: DumpPolicy {
            save_limit: only,
            save_limit_with_other_strategies: others,
            ..DumpPolicy::default()
        },
        ..Policy::default()
    };
    for (strategy, policy, expected) in [
        ("dump", Policy::default(), Some("1800")),
        ("exit,dump,typo", Policy::default(), Some("1800")),
        ("recover,dump", Policy::default(), None),
        ("dump", limits(None, Some(600)), None),
        ("dump", limits(Some(900), None), Some("900")),
        ("recover,dump", limits(None, Some(600)), Some("600")),
    ] {
        let mut object = ascend(json!({}));
        object["metadata"]["annotations"]["recover-strategy"] = json!(strategy);
        let injected = run(WorkloadKind::Pod, &object, &policy);
        let limit = injected.env("TTP_NORMAL_ACTION_TIME_LIMIT").and_then(Value::as_str);
        assert_eq!(limit, expected, "{strategy}");
        if expected.is_none() {
            let action = injected.action("env.TTP_NORMAL_ACTION_TIME_LIMIT").unwrap();
            assert_eq!(action.reason, Reason::SaveLimitDefault, "{strategy}");
        }
    }
}

/// `exit` and `recover` are the same in ascend-operator's variables.
#[test]
fn operators_variables_show_other_strategies() {
    for (annotation, name, value, alone) in [
        (None, "HIGH_AVAILABILITY", "dump", true),
        (None, "HIGH_AVAILABILITY", "dump,recover", false),
        (Some("dump,exit"), "HIGH_AVAILABILITY", "dump,recover", true),
        (Some("dump"), "HIGH_AVAILABILITY", "dump,recover", false),
        (None, "MS_ENABLE_TFT", "{TTP:1}", true),
        (None, "MS_ENABLE_TFT", "{TTP:1,RSC:1}", true),
        (None, "MS_ENABLE_TFT", "{TTP:1,UCE:1,HCCE:1}", false),
    ] {
        let mut object =
            operator_pod("master", json!([variable(name, value), variable("MS_SCHED_HOST", "::1")]));
        object["metadata"]["annotations"] =
            annotation.map_or(json!({}), |strategy| json!({"recover-strategy": strategy}));
        let injected = pod(&object);
        let added = injected.env("TTP_NORMAL_ACTION_TIME_LIMIT").is_some();
        assert_eq!(added, alone, "{annotation:?} {value}");
        let hook = injected.action("launcherHook").unwrap().action;
        assert_eq!(hook == ActionKind::Added, alone, "{annotation:?} {value}");
    }
}

#[test]
fn limits_that_lose_a_dump_are_warned_about() {
    for (name, value, expected) in [
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "60", &[Reason::ManagerLimitLow][..]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "180", &[]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "1800", &[]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "$(LIMIT)", &[]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "29", &[Reason::ManagerLimitInvalid]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "1801", &[Reason::ManagerLimitInvalid]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "70000", &[Reason::ManagerLimitInvalid]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "1800s", &[Reason::ManagerLimitInvalid]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "abc", &[Reason::ManagerLimitInvalid]),
        ("TTP_NORMAL_ACTION_TIME_LIMIT", "", &[Reason::ManagerLimitInvalid]),
        ("MINDIO_WAIT_MINDX_TIME", "3601", &[Reason::ManagerLimitInvalid]),
        ("MINDIO_WAIT_MINDX_TIME", "10", &[Reason::ManagerLimitLow]),
        ("MINDIO_WAIT_MINDX_TIME", "30", &[]),
    ] {
        let injected = pod(&ascend(json!({"env": [variable(name, value)]})));
        assert_eq!(injected.warned(), expected, "{name}={value}");
        assert_eq!(injected.env(name).unwrap(), value);
    }
}

/// Only an AscendJob's Pods get variables of ascend-operator.
#[test]
fn volcano_jobs_report_an_unknown_address() {
    for (env, reason) in [
        (json!([]), Reason::ControllerAddressUnknown),
        (json!([variable("MASTER_ADDR", "10.0.0.1")]), Reason::AddedToPods),
    ] {
        let job = json!({
            "kind": "Job", "metadata": {"annotations": {"recover-strategy": "dump"}},
            "spec": {"tasks": [{"template": {"spec": {"containers": [{"name": "ascend", "env": env}]}}}]},
        });
        let injected = run(WorkloadKind::VolcanoJob, &job, &Policy::default());
        assert_eq!(injected.action("env.TTP_ADDR").unwrap().reason, reason);
        assert!(injected.warned().contains(&Reason::VolcanoNoOperatorEnv));
    }
}

/// The kubelet expands references to earlier entries only.
#[test]
fn unusable_address_of_the_user_is_warned_about() {
    let pod_ip = json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    let own = variable("TTP_ADDR", "$(POD_IP)");
    let (literal, wrong) = (Reason::ControllerAddressLiteral, Reason::ControllerAddressWrong);
    for (replica_type, env, reason, warned) in [
        ("master", json!([pod_ip, own]), Reason::AlreadyPresent, vec![]),
        ("master", json!([own]), Reason::AlreadyPresent, vec![]),
        ("master", json!([own, pod_ip]), Reason::UserValueKept, vec![literal]),
        (
            "master",
            json!([variable("TTP_ADDR", "$(A)"), variable("A", "::1")]),
            Reason::UserValueKept,
            vec![literal],
        ),
        (
            "master",
            json!([variable("TTP_ADDR", "$$(A)"), variable("A", "::1")]),
            Reason::UserValueKept,
            vec![],
        ),
        ("master", json!([variable("TTP_ADDR", "")]), Reason::UserValueKept, vec![wrong]),
        ("worker", json!([pod_ip, own]), Reason::UserValueKept, vec![wrong]),
    ] {
        let injected = pod(&operator_pod(replica_type, env.clone()));
        assert_eq!(injected.action("env.TTP_ADDR").unwrap().reason, reason, "{replica_type} {env}");
        assert_eq!(injected.warned(), warned, "{replica_type} {env}");
    }
}

#[test]
fn own_address_in_a_template_with_other_ranks_is_warned_about() {
    let template =
        json!({"spec": {"containers": [{"name": "ascend", "env": [variable("TTP_ADDR", "$(POD_IP)")]}]}});
    let ascend_job = |replica_type: &str| {
        json!({
            "kind": "AscendJob",
            "metadata": {"labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": "dump"}},
            "spec": {"replicaSpecs": {replica_type: {"replicas": 1, "template": template}}},
        })
    };
    let volcano_job = |replicas: i64| {
        json!({
            "kind": "Job", "metadata": {"annotations": {"recover-strategy": "dump"}},
            "spec": {"tasks": [{"name": "t", "replicas": replicas, "template": template}]},
        })
    };
    for (kind, object, expected) in [
        (WorkloadKind::AscendJob, ascend_job("Master"), false),
        (WorkloadKind::AscendJob, ascend_job("Worker"), true),
        (WorkloadKind::VolcanoJob, volcano_job(1), false),
        (WorkloadKind::VolcanoJob, volcano_job(2), true),
    ] {
        let injected = run(kind, &object, &Policy::default());
        assert_eq!(injected.warned().contains(&Reason::ControllerAddressWrong), expected, "{object}");
    }
}

/// A training process that connects to the Pod it runs in waits for a controller that isn't there.
#[test]
fn only_a_known_rank_gets_an_address() {
    let index = |index: &str| json!({"volcano.sh/job-name": "j", "volcano.sh/task-index": index});
    let task =
        |name: &str, index: &str| json!({"volcano.sh/task-spec": name, "volcano.sh/task-index": index});
    let (own, of_rank_zero) = (Some("$(POD_IP)"), Some("$(MASTER_ADDR)"));
    for (marks, rank, expected) in [
        (json!({"volcano.sh/task-index": "3"}), None, of_rank_zero),
        (index("3"), None, of_rank_zero),
        (index("0"), None, None),
        (index("0"), Some("0"), own),
        (index("0"), Some("1"), of_rank_zero),
        (task("master", "0"), None, own),
        (task("master", "1"), None, of_rank_zero),
        (task("worker", "0"), None, None),
        (json!({"volcano.sh/job-name": "j"}), None, None),
        (json!({}), None, own),
    ] {
        for field in ["labels", "annotations"] {
            let mut env = vec![variable("MASTER_ADDR", "10.0.0.1")];
            env.extend(rank.map(|rank| variable("RANK", rank)));
            let mut object = ascend(json!({"env": env}));
            for (key, value) in marks.as_object().unwrap() {
                object["metadata"][field][key] = value.clone();
            }
            let injected = pod(&object);
            assert_eq!(injected.env("TTP_ADDR").and_then(Value::as_str), expected, "{object}");
            let warned = if expected.is_some() { vec![] } else { vec![Reason::ControllerAddressUnknown] };
            assert_eq!(injected.warned(), warned, "{object}");
        }
    }
}

/// The index of a JobSet counts its Jobs.
#[test]
fn each_of_several_indices_has_to_be_zero() {
    for (job, pod_index, expected) in
        [("0", "0", "$(POD_IP)"), ("0", "3", "$(MASTER_ADDR)"), ("1", "0", "$(MASTER_ADDR)")]
    {
        let mut object = ascend(json!({"env": [variable("MASTER_ADDR", "10.0.0.1")]}));
        object["metadata"]["labels"] = json!({
            "jobset.sigs.k8s.io/job-global-index": job,
            "batch.kubernetes.io/job-completion-index": pod_index,
        });
        assert_eq!(pod(&object).env("TTP_ADDR").unwrap(), expected, "{object}");
    }
}

#[test]
fn volcano_job_shows_which_pods_get_which_address() {
    let master = variable("MASTER_ADDR", "10.0.0.1");
    let unknown = Reason::ControllerAddressUnknown;
    for (task, env, value, warned) in [
        ("master", json!([master]), "$(POD_IP) with index 0, else $(MASTER_ADDR)", vec![]),
        ("default-test", json!([master]), "none with index 0, else $(MASTER_ADDR)", vec![unknown]),
        ("t", json!([master, variable("RANK", "0")]), "$(POD_IP) with RANK 0, else $(MASTER_ADDR)", vec![]),
    ] {
        let container = json!({"name": "ascend", "env": env});
        let job = json!({
            "kind": "Job", "metadata": {"annotations": {"recover-strategy": "dump"}},
            "spec": {"tasks": [{"name": task, "replicas": 4, "template": {"spec": {"containers": [container]}}}]},
        });
        let injected = run(WorkloadKind::VolcanoJob, &job, &Policy::default());
        assert_eq!(injected.action("env.TTP_ADDR").unwrap().value.as_deref(), Some(value));
        assert_eq!(injected.warned(), [warned, vec![Reason::VolcanoNoOperatorEnv]].concat(), "{job}");
    }
}

#[test]
fn variables_that_may_hide_env_from_are_warned_about() {
    let env: Vec<Value> =
        [("LD_PRELOAD", "/a.so"), ("TTP_ADDR", "::1"), ("TTP_PORT", "8000"), ("TASKD_PROCESS_ENABLE", "on")]
            .map(|(name, value)| variable(name, value))
            .to_vec();
    for (env, expected) in
        [(env.clone(), true), ([env, vec![variable("TTP_NORMAL_ACTION_TIME_LIMIT", "900")]].concat(), false)]
    {
        let object = ascend(json!({"env": env, "envFrom": [{"configMapRef": {"name": "c"}}]}));
        assert_eq!(pod(&object).warned().contains(&Reason::VariablesMayHideEnvFrom), expected, "{object}");
    }
    let object = ascend(json!({"envFrom": [{"configMapRef": {"name": "c"}}]}));
    let injected = pod(&object);
    let names = "TTP_PORT, TASKD_PROCESS_ENABLE, TTP_ADDR, TTP_NORMAL_ACTION_TIME_LIMIT,";
    assert!(
        injected.outcome.warnings.iter().any(|warning| warning.message.contains(names)),
        "{:?}",
        injected.outcome.warnings
    );
}

//! Public bug reports against comparable software, with the right value in place of the wrong one.
//!
//! The name of each test says what must hold; the comment names the report.
#![allow(missing_docs, clippy::unwrap_used, clippy::needless_pass_by_value)]

mod support;

use serde_json::{Value, json};
use support::{MSPTI, TASKD, env_of, ours, pod, run};
use swansong_webhook::inject::inject;
use swansong_webhook::policy::{Policy, PreloadOrder, PreloadValueFrom};
use swansong_webhook::reason::Reason;
use swansong_webhook::workload::WorkloadKind;

/// A pod that asks for a dump, with these containers.
fn pod_with(containers: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train", "annotations": {"recover-strategy": "dump"}},
        "spec": {"containers": containers},
    })
}

/// The same with one container called `ascend`.
fn ascend(fields: Value) -> Value {
    let mut container = json!({"name": "ascend", "image": "train:1"});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    pod_with(json!([container]))
}

fn names(list: &Value, key: &str) -> Vec<Value> {
    list.as_array().unwrap().iter().map(|item| item[key].clone()).collect()
}

mod lossy_patches {
    use super::*;

    /// berglas#264, eks-pod-identity-webhook#208, kops#16802, kube-secrets-init#53, kube-image-keeper#457,
    /// datadog-agent#37837 (B1–B6).
    #[test]
    fn native_sidecars_stay_what_they_are() {
        let mut object = ascend(json!({}));
        object["spec"]["initContainers"] =
            json!([{"name": "a", "restartPolicy": "Always"}, {"name": "b", "restartPolicy": "Always"}]);
        let injected = pod(&object);
        assert_eq!(injected.object["spec"]["initContainers"], object["spec"]["initContainers"]);
        assert!(injected.paths().iter().all(|path| !path.starts_with("/spec/initContainers")));

        object["metadata"]["annotations"]["swansong.dev/containers"] = json!("ascend,b");
        let injected = pod(&object);
        let sidecars = &injected.object["spec"]["initContainers"];
        assert_eq!(sidecars[0], object["spec"]["initContainers"][0]);
        assert_eq!(sidecars[1]["restartPolicy"], "Always");
        assert_eq!(env_of(&sidecars[1], "LD_PRELOAD").unwrap(), &json!(ours()));
    }

    #[test]
    fn ordinary_init_containers_are_left_alone_even_when_named() {
        let mut object = ascend(json!({}));
        object["spec"]["initContainers"] = json!([{"name": "fetch"}]);
        object["metadata"]["annotations"]["swansong.dev/containers"] = json!("ascend,fetch");
        let injected = pod(&object);
        assert_eq!(injected.warned(), [Reason::InitContainer]);
        assert_eq!(injected.object["spec"]["initContainers"], object["spec"]["initContainers"]);
    }

    /// windows-testing#576 (B7).
    #[test]
    fn fields_of_the_future_survive() {
        let object = ascend(json!({
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
            "futureX": {"n": 1e3},
        }));
        let container = &pod(&object).object["spec"]["containers"][0];
        assert_eq!(container["restartPolicyRules"], object["spec"]["containers"][0]["restartPolicyRules"]);
        assert_eq!(container["futureX"].to_string(), r#"{"n":1000.0}"#);
    }

    /// kubernetes/website#47465 (B8).
    #[test]
    fn a_plain_pod_takes_two_operations_a_container() {
        let injected = pod(&ascend(json!({})));
        assert_eq!(
            injected.paths(),
            [
                "/spec/containers/0/env",
                "/spec/containers/0/ports",
                "/metadata/annotations/swansong.dev~1injected"
            ]
        );
    }

    /// linkerd2#1756, PR#4180, consul-k8s#20 (B11, B12).
    #[test]
    fn labels_and_annotations_of_the_user_are_never_rewritten() {
        let mut object = ascend(json!({}));
        object["metadata"]["labels"] = json!({"app": "x"});
        object["metadata"]["annotations"]["mine"] = json!("kept");
        let injected = pod(&object);
        assert!(injected.paths().iter().all(|path| !path.contains("labels")));
        assert_eq!(injected.object["metadata"]["annotations"]["mine"], "kept");
        // A pod known by the operator's marker has no annotations at all.
        let mut marked = ascend(json!({"env": [{"name": "HIGH_AVAILABILITY", "value": "dump"}]}));
        marked["metadata"].as_object_mut().unwrap().remove("annotations");
        assert!(pod(&marked).object["metadata"]["annotations"]["swansong.dev/injected"].is_string());
    }

    /// kyverno#4066, #2129 (B13).
    #[test]
    fn a_list_may_be_absent_empty_null_or_filled() {
        for fields in [
            json!({}),
            json!({"env": [], "ports": []}),
            json!({"env": null, "ports": null}),
            json!({"env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 1}]}),
        ] {
            let injected = pod(&ascend(fields.clone()));
            assert_eq!(injected.env("TTP_PORT").unwrap(), "8000", "{fields}");
            assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(ours()), "{fields}");
            let ports = &injected.object["spec"]["containers"][0]["ports"];
            assert!(ports.as_array().unwrap().iter().any(|port| port["containerPort"] == 9601), "{fields}");
        }
    }

    /// opa#3550 (B14).
    #[test]
    fn additions_keep_the_configured_order() {
        let expected = ["POD_IP", "TTP_PORT", "TASKD_PROCESS_ENABLE", "Z", "B", "LD_PRELOAD"];
        let policy = Policy {
            extra_env: [("Z", "1"), ("B", "2")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            ..Policy::default()
        };
        for env in [json!([]), json!(null), json!([{"name": "A", "value": "1"}])] {
            let object = run(WorkloadKind::Pod, &ascend(json!({"env": env})), &policy).object;
            let mut added = names(&object["spec"]["containers"][0]["env"], "name");
            added.retain(|name| name != "A");
            assert_eq!(added, expected);
        }
    }

    /// linkerd2#6860, kubevirt#9578, gatekeeper#144 (B17): the reply's half is the server's.
    #[test]
    fn an_object_without_kind_is_taken_for_what_the_request_says() {
        let mut object = ascend(json!({}));
        object.as_object_mut().unwrap().remove("kind");
        let injected = pod(&object);
        assert_eq!(injected.warned(), [Reason::KindMissing]);
        assert!(injected.outcome.injected());
    }
}

mod preload_and_env {
    use super::*;

    fn preload(value: &str) -> Value {
        ascend(json!({"env": [{"name": "LD_PRELOAD", "value": value}]}))
    }

    /// dynatrace-operator#1201 (B18).
    #[test]
    fn a_second_pass_doubles_nothing() {
        for object in [preload(""), preload("/x/libtaskd.so.1"), preload(&format!("{TASKD}.1"))] {
            let first = pod(&object);
            let second = pod(&first.object);
            assert!(second.outcome.operations.is_empty());
            assert_eq!(first.object, second.object);
        }
        assert_eq!(
            pod(&preload(&format!("{TASKD}.1"))).env("LD_PRELOAD").unwrap(),
            &json!(format!("{}:{TASKD}.1", ours()))
        );
    }

    /// datadog-agent PR#30716, alnair#45, beyla#3128 (B19, B32).
    #[test]
    fn the_users_preloads_are_kept() {
        let own = "/usr/local/lib/libjemalloc.so.2";
        assert_eq!(pod(&preload(own)).env("LD_PRELOAD").unwrap(), &json!(format!("{}:{own}", ours())));
        let agents = "launcher.preload.so:/var/odigos/loader/loader.so";
        assert_eq!(pod(&preload(agents)).env("LD_PRELOAD").unwrap(), &json!(format!("{}:{agents}", ours())));
    }

    /// charts#103, gh-aw-firewall#2535, dash0-operator#490 (B22, B23).
    #[test]
    fn preloading_can_be_opted_out_of_by_container() {
        for names in ["ascend", "*", "other,ascend"] {
            let mut object = ascend(json!({}));
            object["metadata"]["annotations"]["swansong.dev/skip-preload"] = json!(names);
            let injected = pod(&object);
            assert_eq!(injected.env("LD_PRELOAD"), None);
            assert_eq!(injected.env("TTP_PORT").unwrap(), "8000");
            assert_eq!(injected.action("env.LD_PRELOAD").unwrap().reason, Reason::PreloadOptedOut);
        }
    }

    /// opentelemetry-operator#1814, #3166, #3392 (B27).
    #[test]
    fn a_preload_from_a_value_from_is_never_lost() {
        let source = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
        let object = ascend(
            json!({"env": [{"name": "LD_PRELOAD", "valueFrom": source}, {"name": "B", "value": "$(LD_PRELOAD)"}]}),
        );
        let referenced = pod(&object);
        let env = &referenced.object["spec"]["containers"][0]["env"];
        assert_eq!(env[0], json!({"name": "SWANSONG_ORIGINAL_LD_PRELOAD", "valueFrom": source}));
        // Before the entry that refers to it, behind the one it refers to.
        assert_eq!(
            env[1],
            json!({"name": "LD_PRELOAD", "value": format!("{}:$(SWANSONG_ORIGINAL_LD_PRELOAD)", ours())})
        );
        assert_eq!(env[2]["name"], "B");

        let policy = Policy { preload_value_from: PreloadValueFrom::Skip, ..Policy::default() };
        let skipped = run(WorkloadKind::Pod, &object, &policy);
        assert_eq!(
            skipped.object["spec"]["containers"][0]["env"][0],
            object["spec"]["containers"][0]["env"][0]
        );
        assert_eq!(skipped.warned(), [Reason::PreloadValueFromSkipped]);
    }

    /// opentelemetry-operator PR#864, #793 (B28).
    #[test]
    fn references_are_kept_and_still_resolve() {
        let object = ascend(json!({"env": [
            {"name": "LIBDIR", "value": "/opt"}, {"name": "LD_PRELOAD", "value": "$(LIBDIR)/a.so"},
            {"name": "URL", "value": "tcp://$(POD_IP):$(TTP_PORT)"},
        ]}));
        let env = &pod(&object).object["spec"]["containers"][0]["env"];
        assert_eq!(
            names(env, "name"),
            ["LIBDIR", "LD_PRELOAD", "POD_IP", "TTP_PORT", "URL", "TASKD_PROCESS_ENABLE"]
        );
        assert_eq!(env[1]["value"], json!(format!("{}:$(LIBDIR)/a.so", ours())));
    }

    /// azure-workload-identity#1555, PR#1593 (B29).
    #[test]
    fn an_unseen_preload_in_env_from_is_warned_about() {
        let injected = pod(&ascend(json!({"envFrom": [{"configMapRef": {"name": "c"}}]})));
        assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(ours()));
        assert_eq!(injected.warned(), [Reason::PreloadMayHideEnvFrom]);
    }

    /// kserve#4332, odigos PR#1619, DataDog PR#28604, k3d#204 (B30).
    #[test]
    fn what_the_user_set_is_not_set_again() {
        let injected = pod(&ascend(json!({"env": [{"name": "TTP_PORT", "value": "8000"}]})));
        let env = &injected.object["spec"]["containers"][0]["env"];
        assert_eq!(names(env, "name").iter().filter(|name| **name == "TTP_PORT").count(), 1);
        assert!(injected.warned().is_empty());

        let injected = pod(&ascend(json!({"env": [{"name": "TTP_PORT", "value": "9000"}]})));
        assert_eq!(injected.env("TTP_PORT").unwrap(), "9000");
        assert_eq!(
            injected.object["spec"]["containers"][0]["ports"][0],
            json!({"containerPort": 9000, "name": "ttp-port", "protocol": "TCP"})
        );
        assert_eq!(injected.warned(), [Reason::TtpPortNotDefault]);
    }

    #[test]
    fn a_ttp_port_that_cannot_be_read_is_warned_about() {
        for entry in [
            json!({"value": "$(X)"}),
            json!({"value": "http"}),
            json!({"value": "0"}),
            json!({"value": "65536"}),
            json!({"valueFrom": {"fieldRef": {}}}),
        ] {
            let mut entry = entry;
            entry["name"] = json!("TTP_PORT");
            let injected = pod(&ascend(json!({"env": [entry]})));
            assert_eq!(injected.warned(), [Reason::TtpPortUnknown]);
            assert_eq!(injected.object["spec"]["containers"][0]["ports"][0]["containerPort"], 8000);
        }
    }

    #[test]
    fn of_several_preloads_the_last_wins_and_is_joined() {
        let object = ascend(
            json!({"env": [{"name": "LD_PRELOAD", "value": "/a.so"}, {"name": "LD_PRELOAD", "value": "/b.so"}]}),
        );
        let env = &pod(&object).object["spec"]["containers"][0]["env"];
        assert_eq!(env[0]["value"], "/a.so");
        assert_eq!(env[1]["value"], json!(format!("{}:/b.so", ours())));
    }

    #[test]
    fn values_that_break_the_chain_are_warned_about() {
        for (entry, reason) in [
            (json!({"name": "TASKD_PROCESS_ENABLE", "value": "off"}), Reason::TaskdDisabled),
            (json!({"name": "POD_IP"}), Reason::PodIpEmpty),
            (json!({"name": "POD_IP", "value": ""}), Reason::PodIpEmpty),
            // The documentation's mis-indented example.
            (
                json!({"name": "POD_IP", "valueFrom": null, "fieldRef": {"fieldPath": "status.podIP"}}),
                Reason::PodIpEmpty,
            ),
        ] {
            assert_eq!(pod(&ascend(json!({"env": [entry]}))).warned(), [reason], "{entry}");
        }
    }

    /// HAMi docs amd-vgpu (B34).
    #[test]
    fn the_order_is_configurable() {
        let policy = Policy { preload_order: PreloadOrder::Last, ..Policy::default() };
        let injected = run(WorkloadKind::Pod, &preload("/a.so"), &policy);
        assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(format!("/a.so:{MSPTI}:{TASKD}")));
        assert_eq!(
            pod(&preload("/a.so")).env("LD_PRELOAD").unwrap(),
            &json!(format!("{MSPTI}:{TASKD}:/a.so"))
        );
    }

    /// DataDog#50313, #35170 (B35).
    #[test]
    fn resources_never_matter_to_a_chosen_container() {
        for resources in [
            json!(null),
            json!({}),
            json!({"limits": {"cpu": "0.1"}}),
            json!({"requests": {"memory": "1.5Gi", "cpu": "1m"}, "limits": null}),
        ] {
            let injected = pod(&ascend(json!({"resources": resources})));
            assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(ours()));
        }
    }

    #[test]
    fn windows_pods_are_left_alone() {
        for (key, value) in
            [("os", json!({"name": "windows"})), ("nodeSelector", json!({"kubernetes.io/os": "windows"}))]
        {
            let mut object = ascend(json!({}));
            object["spec"][key] = value;
            let injected = pod(&object);
            assert_eq!(injected.outcome.skip, Some(Reason::Windows));
            assert_eq!(injected.object, object);
            assert_eq!(injected.warned(), [Reason::Windows]);
        }
    }

    #[test]
    fn library_paths_come_from_annotation_then_image_then_default() {
        let mut object = ascend(json!({}));
        object["metadata"]["annotations"]["swansong.dev/libtaskd"] = json!("/a/libtaskd.so");
        object["metadata"]["annotations"]["swansong.dev/libmspti"] = json!("relative.so");
        let policy = Policy {
            image_rules: vec![swansong_webhook::policy::ImageRule {
                pattern: "train:*".to_owned(),
                libmspti: Some("/i/libmspti.so".to_owned()),
                libtaskd: Some("/i/libtaskd.so".to_owned()),
            }],
            ..Policy::default()
        };
        let injected = run(WorkloadKind::Pod, &object, &policy);
        assert_eq!(injected.env("LD_PRELOAD").unwrap(), "/i/libmspti.so:/a/libtaskd.so");
        assert_eq!(injected.warned(), [Reason::OptionInvalid]);
    }
}

mod ports {
    use super::*;

    /// istio#41388, SREGym#49, cortex#138, operator PR#296 (B38).
    #[test]
    fn a_port_of_the_user_is_not_declared_again() {
        let injected =
            pod(&ascend(json!({"ports": [{"containerPort": 8000, "name": "http", "protocol": "TCP"}]})));
        let ports = &injected.object["spec"]["containers"][0]["ports"];
        assert_eq!(names(ports, "containerPort"), [8000, 9601]);
        let [warning] = &injected.outcome.warnings[..] else { panic!("one warning") };
        assert_eq!(warning.reason, Reason::PortNameDiffers);
        assert!(
            warning.message.contains("\"http\"") && warning.message.contains("\"ttp-port\""),
            "{}",
            warning.message
        );
    }

    #[test]
    fn a_port_without_a_name_never_reaches_the_service() {
        let injected = pod(&ascend(json!({"ports": [{"containerPort": 9601}]})));
        assert_eq!(injected.warned(), [Reason::PortNameDiffers]);
        assert!(injected.outcome.warnings[0].message.contains("named ports only"));
    }

    #[test]
    fn a_taken_name_is_left() {
        let injected = pod(&ascend(json!({"ports": [{"containerPort": 7000, "name": "taskd-port"}]})));
        let ports = &injected.object["spec"]["containers"][0]["ports"];
        assert_eq!(names(ports, "containerPort"), [7000, 8000]);
        assert_eq!(injected.warned(), [Reason::PortNameTaken]);
    }

    #[test]
    fn a_udp_port_is_another_port() {
        let injected =
            pod(&ascend(json!({"ports": [{"containerPort": 8000, "protocol": "UDP", "name": "u"}]})));
        assert_eq!(
            names(&injected.object["spec"]["containers"][0]["ports"], "containerPort"),
            [8000, 8000, 9601]
        );
    }

    /// kubernetes#66568, #14586, ingress-nginx#6048 (B40).
    #[test]
    fn under_host_network_a_port_is_declared_once() {
        let mut object = pod_with(json!([
            {"name": "a", "resources": {"limits": {"huawei.com/Ascend910": "8"}}},
            {"name": "b", "resources": {"limits": {"huawei.com/Ascend910": "8"}}},
        ]));
        object["spec"]["hostNetwork"] = json!(true);
        let injected = pod(&object);
        let containers = &injected.object["spec"]["containers"];
        assert_eq!(names(&containers[0]["ports"], "containerPort"), [8000, 9601]);
        assert_eq!(containers[1]["ports"], Value::Null);
        assert_eq!(env_of(&containers[1], "LD_PRELOAD").unwrap(), &json!(ours()));
        assert_eq!(injected.warned(), [Reason::HostNetworkPortTaken; 2]);
    }

    #[test]
    fn under_host_network_only_rank_zero_declares_ports() {
        let template = json!({"spec": {"hostNetwork": true, "containers": [{"name": "ascend"}]}});
        let job = json!({
            "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
            "metadata": {"name": "j", "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": "dump"}},
            "spec": {"replicaSpecs": {"Master": {"template": template}, "Worker": {"template": template}}},
        });
        let injected = run(WorkloadKind::AscendJob, &job, &Policy::default());
        let specs = &injected.object["spec"]["replicaSpecs"];
        let ports = |replica: &str| specs[replica]["template"]["spec"]["containers"][0]["ports"].clone();
        assert_eq!(names(&ports("Master"), "containerPort"), [8000, 9601]);
        assert_eq!(ports("Worker"), Value::Null);
        assert_eq!(injected.warned(), [Reason::HostNetworkNotRankZero]);
        assert!(injected.outcome.warnings[0].message.starts_with("replica Worker, container ascend: "));

        for (labels, env, expected) in [
            (json!({"training.kubeflow.org/job-role": "master"}), json!([]), true),
            (json!({"training.kubeflow.org/replica-type": "worker"}), json!([]), false),
            (json!({"training.kubeflow.org/replica-type": "scheduler"}), json!([]), true),
            (json!({}), json!([{"name": "RANK", "value": "0"}]), true),
            (json!({}), json!([{"name": "RANK", "value": "3"}]), false),
            (json!({}), json!([{"name": "MS_ROLE", "value": "MS_SCHED"}]), true),
            (json!({}), json!([{"name": "MS_ROLE", "value": "MS_WORKER"}]), false),
            (json!({"volcano.sh/job-name": "j"}), json!([]), false),
            (json!(null), json!(null), true),
        ] {
            let mut object = ascend(json!({"env": env}));
            object["spec"]["hostNetwork"] = json!(true);
            object["metadata"]["labels"] = labels.clone();
            let injected = pod(&object);
            assert_eq!(injected.outcome.templates[0].rank_zero, expected, "{labels} {env}");
            assert_eq!(
                injected.object["spec"]["containers"][0]["ports"].is_array(),
                expected,
                "{labels} {env}"
            );
        }
    }
}

mod selection {
    use super::*;

    fn chosen(object: &Value) -> Vec<String> {
        let outcome = pod(object).outcome;
        outcome.templates[0].containers.iter().map(|container| container.name.clone()).collect()
    }

    #[test]
    fn containers_are_chosen_without_guessing() {
        let npu = json!({"limits": {"huawei.com/Ascend910": "8"}});
        for (containers, expected) in [
            (json!([{"name": "x"}, {"name": "ascend"}]), vec!["ascend"]),
            (json!([{"name": "x"}, {"name": "y", "resources": npu}]), vec!["y"]),
            (json!([{"name": "x"}]), vec!["x"]),
            (json!([{"name": "x"}, {"name": "y"}]), vec![]),
        ] {
            assert_eq!(chosen(&pod_with(containers.clone())), expected, "{containers}");
        }
        let injected = pod(&pod_with(json!([{"name": "x"}, {"name": "y"}])));
        assert_eq!(injected.outcome.skip, Some(Reason::NoContainerChosen));
        assert!(injected.outcome.operations.is_empty());
        assert!(injected.outcome.warnings[0].message.contains("x, y"));
    }

    #[test]
    fn the_annotation_names_exactly_the_containers() {
        let mut object = pod_with(json!([{"name": "ascend"}, {"name": "y"}]));
        object["metadata"]["annotations"]["swansong.dev/containers"] = json!(" y , nobody ");
        assert_eq!(chosen(&object), ["y"]);
        assert_eq!(pod(&object).warned(), [Reason::UnknownContainer]);
    }
}

mod strategies {
    use super::*;

    fn job(annotation: &str) -> Value {
        json!({
            "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
            "metadata": {"name": "j", "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": annotation}},
            "spec": {"replicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "ascend"}]}}}}},
        })
    }

    #[test]
    fn an_ascend_jobs_list_is_rewritten_as_the_operator_reads_it() {
        let injected = run(WorkloadKind::AscendJob, &job("recover, dump"), &Policy::default());
        assert_eq!(injected.object["metadata"]["annotations"]["recover-strategy"], "recover,dump");
        let template = &injected.object["spec"]["replicaSpecs"]["Master"]["template"];
        assert_eq!(template["metadata"]["annotations"]["recover-strategy"], "recover,dump");
        assert_eq!(injected.warned(), [Reason::StrategyNormalised]);
        assert_eq!(injected.outcome.strategies, ["recover", "dump"]);
    }

    #[test]
    fn typos_are_told_even_when_nothing_is_done() {
        let injected = run(WorkloadKind::AscendJob, &job("recover，dump"), &Policy::default());
        assert_eq!(injected.outcome.skip, Some(Reason::StrategyWithoutDump));
        assert!(injected.outcome.operations.is_empty());
        assert!(injected.outcome.warnings[0].message.contains("plain comma"));
    }

    #[test]
    fn pods_of_an_injected_job_need_no_operation() {
        let injected = run(WorkloadKind::AscendJob, &job("dump"), &Policy::default()).object;
        let template = &injected["spec"]["replicaSpecs"]["Master"]["template"];
        let mut pod_object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
        // ascend-operator appends its own.
        let env = pod_object["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        env.extend([
            json!({"name": "HIGH_AVAILABILITY", "value": "dump"}),
            json!({"name": "RANK", "value": "0"}),
        ]);
        assert!(pod(&pod_object).outcome.operations.is_empty());
        assert!(pod(&pod_object).outcome.injected());
    }

    #[test]
    fn an_opt_out_on_the_job_reaches_its_pods() {
        let mut object = job("dump");
        object["metadata"]["annotations"]["swansong.dev/inject"] = json!("false");
        let injected = run(WorkloadKind::AscendJob, &object, &Policy::default());
        assert_eq!(injected.outcome.skip, Some(Reason::OptedOut));
        let template = &injected.object["spec"]["replicaSpecs"]["Master"]["template"];
        assert_eq!(template["metadata"]["annotations"]["swansong.dev/inject"], "false");
        assert_eq!(template["spec"], object["spec"]["replicaSpecs"]["Master"]["template"]["spec"]);
    }

    #[test]
    fn a_volcano_job_gets_the_label_clusterd_wants() {
        let mut object = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "v", "annotations": {"recover-strategy": "dump"}},
            "spec": {"tasks": [{"name": "t", "template": {"spec": {"containers": [{"name": "x"}]}}}]},
        });
        let injected = run(WorkloadKind::VolcanoJob, &object, &Policy::default());
        assert_eq!(injected.object["metadata"]["labels"], json!({"process-recover-enable": "on"}));
        assert_eq!(injected.warned(), [Reason::VolcanoNoOperatorEnv]);

        object["metadata"]["labels"] = json!({"process-recover-enable": "off"});
        let injected = run(WorkloadKind::VolcanoJob, &object, &Policy::default());
        assert_eq!(injected.object["metadata"]["labels"], object["metadata"]["labels"]);
        assert_eq!(injected.warned(), [Reason::ProcessRecoverOff, Reason::VolcanoNoOperatorEnv]);
    }

    #[test]
    fn where_the_strategy_stands_matters() {
        let mut object = job("dump");
        object["metadata"]["annotations"] = json!({});
        let template = "/spec/replicaSpecs/Master/template";
        object.pointer_mut(template).unwrap()["metadata"] =
            json!({"annotations": {"recover-strategy": "dump"}});
        assert_eq!(
            run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(),
            [Reason::StrategyOnTemplateOnly]
        );
        object["metadata"]["annotations"] = json!({"recover-strategy": "recover"});
        assert_eq!(
            run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(),
            [Reason::StrategyDiffers]
        );
        object["metadata"]["labels"] = json!({});
        assert_eq!(
            run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(),
            [Reason::StrategyDiffers, Reason::ProcessRecoverOff]
        );
    }

    #[test]
    fn the_operators_marker_wins_over_a_pods_own_strategy() {
        let mut object = ascend(json!({"env": [{"name": "HIGH_AVAILABILITY", "value": "dump,recover"}]}));
        object["metadata"]["annotations"]["recover-strategy"] = json!("recover");
        let injected = pod(&object);
        assert!(injected.outcome.injected());
        assert_eq!(injected.outcome.strategies, ["recover", "dump"]);
    }

    #[test]
    fn a_job_without_rank_zero_is_warned_about() {
        let mut object = job("dump");
        let specs = object["spec"]["replicaSpecs"].as_object_mut().unwrap();
        let template = specs.remove("Master").unwrap();
        specs.insert("Worker".to_owned(), template);
        assert_eq!(run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(), [Reason::NoRankZero]);
    }

    #[test]
    fn a_deployments_strategy_is_never_seen() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": {"recover-strategy": "dump"}},
            "spec": {"template": {"spec": {"containers": [{"name": "x"}]}}},
        });
        assert_eq!(
            run(WorkloadKind::Deployment, &object, &Policy::default()).warned(),
            [Reason::StrategyNotPropagated]
        );
    }
}

/// HAMi#2253, #2415, netbirdio#246 (B37); the laws fuzz the same.
#[test]
fn wrong_types_name_their_field() {
    for (object, field) in [
        (json!({"kind": "Pod", "spec": {"containers": {}}}), "spec.containers"),
        (
            json!({"kind": "Pod", "spec": {"containers": [{"env": [{"name": 5}]}]}}),
            "spec.containers[0].env[0].name",
        ),
        (json!({"kind": "Pod", "spec": {"containers": [null]}}), "spec.containers[0]"),
        (
            json!({"kind": "Pod", "metadata": {"annotations": {"recover-strategy": true}}}),
            "metadata.annotations.recover-strategy",
        ),
        (json!({"kind": "Pod", "spec": {"hostNetwork": "yes"}}), "spec.hostNetwork"),
        (json!([]), "."),
        (json!({"kind": "Pod", "metadata": []}), "metadata"),
        (
            json!({"kind": "Pod", "spec": {"containers": [{"ports": [{"containerPort": "8000"}]}]}}),
            "spec.containers[0].ports[0].containerPort",
        ),
    ] {
        let error = inject(WorkloadKind::Pod, &object.to_string(), &Policy::default()).expect_err("refused");
        assert_eq!(error.field, field, "{object}: {error}");
    }
}

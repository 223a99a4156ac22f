use base64_simd::STANDARD;
use serde_json::{Value, json};
use swansong_api::documented::Documented as _;

use super::*;

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "p", "annotations": { "recover-strategy": "dump" } },
        "spec": { "containers": [{ "name": "ascend", "env": [{ "name": "SECRET", "value": "hunter2" }] }] },
    })
}

fn review(request: &Value) -> Value {
    let mut whole = json!({
        "uid": "u-1",
        "kind": { "group": "", "version": "v1", "kind": "Pod" },
        "name": "p",
        "namespace": "ns",
        "operation": "CREATE",
        "object": pod(),
        "oldObject": null,
        "dryRun": false,
        "userInfo": { "username": "me" },
    });
    for (key, value) in request.as_object().expect("an object") {
        whole[key] = value.clone();
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole })
}

/// The parts of a response that tests check.
struct Seen {
    verdict: Verdict,
    kind: Kind,
    warnings: Vec<Reason>,
    subject: String,
    response: Value,
}

impl Seen {
    fn of(answer: &Answer<'_>) -> Self {
        let review: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(review["kind"], "AdmissionReview");
        let response = review["response"].clone();
        assert_eq!(response["uid"], "u-1");
        assert_eq!(response.get("patch").is_some(), response.get("patchType").is_some());
        Self {
            verdict: answer.verdict,
            kind: answer.kind,
            warnings: answer.warnings.clone(),
            subject: answer.subject.to_string(),
            response,
        }
    }

    fn patch(&self) -> Option<Value> {
        let patch = self.response.get("patch")?.as_str().expect("a string");
        assert_eq!(self.response["patchType"], "JSONPatch");
        Some(serde_json::from_slice(&STANDARD.decode_to_vec(patch).expect("base64")).expect("JSON"))
    }

    fn audit(&self, key: &str) -> Option<&str> {
        self.response.get("auditAnnotations")?.get(key)?.as_str()
    }

    fn warnings(&self) -> Vec<&str> {
        let warnings = self.response.get("warnings").and_then(Value::as_array);
        warnings.map_or(Vec::new(), |warnings| warnings.iter().filter_map(Value::as_str).collect())
    }
}

fn see(request: &Value) -> Seen {
    see_with(request, "")
}

fn see_with(request: &Value, config: &str) -> Seen {
    see_near(request, config, ReadyNodes::Unknown)
}

fn see_near(request: &Value, config: &str, ready: ReadyNodes) -> Seen {
    let body = review(request).to_string();
    let config = Config::parse(config).expect("sound");
    Seen::of(&answer(body.as_bytes(), &config, ready).expect("a review"))
}

#[test]
fn a_pod_that_asks_is_patched() {
    let seen = see(&json!({}));
    assert_eq!((seen.verdict, seen.kind), (Verdict::Injected, Kind::Pod));
    assert_eq!(seen.response["allowed"], true);
    let mut object = pod();
    let patch: json_patch::Patch = serde_json::from_value(seen.patch().expect("a patch")).expect("RFC 6902");
    json_patch::patch(&mut object, &patch).expect("applies");
    assert_eq!(object["spec"]["containers"][0]["env"][0]["value"], "hunter2");
    assert_eq!(object["spec"]["containers"][0]["ports"][0]["containerPort"], 8000);
    assert_eq!(
        seen.audit("injected"),
        Some(
            "ascend: env.POD_IP env.TTP_PORT env.TASKD_PROCESS_ENABLE env.TTP_ADDR env.TTP_NORMAL_ACTION_TIME_LIMIT \
             env.LD_PRELOAD ports.8000 ports.9601 launcherHook"
        )
    );
    assert!(!seen.response["auditAnnotations"].to_string().contains("hunter2"));
    assert_eq!(seen.subject, "ns/p");

    let again = see(&json!({ "object": object }));
    assert_eq!(again.verdict, Verdict::Complete);
    assert_eq!(again.patch(), None);
    assert_eq!(again.audit("injected"), None);
}

#[test]
fn warns_of_a_required_node_that_may_not_exist() {
    use ReadyNodes::{None, Some, Unknown};
    for (config, ready, expected) in [
        ("nodeReadiness: require", Some, vec![]),
        ("nodeReadiness: require", None, vec![Reason::NoNodeReady]),
        ("nodeReadiness: require", Unknown, vec![Reason::NodeReadinessUnknown]),
        ("nodeReadiness: prefer", None, vec![]),
        ("nodeReadiness: off", None, vec![]),
        ("", None, vec![]),
    ] {
        let seen = see_near(&json!({}), config, ready);
        assert_eq!(seen.warnings, expected, "{config}, {ready:?}");
        assert!(seen.warnings().iter().all(|text| text.contains("Pending") && text.contains("dump-ready")));
        let asked = seen
            .audit("injected")
            .expect("an annotation")
            .starts_with("pod: affinity.nodeReadiness; ascend: ");
        assert_eq!(asked, config.contains("prefer") || config.contains("require"), "{config}");
    }
    let reasons =
        |object: Value| see_near(&json!({ "object": object }), "nodeReadiness: require", None).warnings;
    let mut object = pod();
    object["spec"]["nodeSelector"] = json!({ "swansong.dev/dump-ready": "true" });
    assert_eq!(reasons(object.clone()), [Reason::NoNodeReady], "the same if the user wrote it");
    object["spec"]["nodeSelector"] = json!({ "swansong.dev/dump-ready": "unknown" });
    assert_eq!(reasons(object.clone()), []);
    object["spec"]["nodeName"] = json!("n");
    assert_eq!(reasons(object), []);
    let mut object = pod();
    object["metadata"]["annotations"] = json!({});
    assert_eq!(reasons(object), []);
}

#[test]
fn what_is_admit_unprocessed_untouched() {
    let kind = |group: &str, kind: &str| json!({ "group": group, "version": "v1", "kind": kind });
    for (request, reason, label) in [
        (json!({ "operation": "UPDATE" }), Reason::NotCreate, Kind::Pod),
        (json!({ "operation": "DELETE", "object": null }), Reason::NotCreate, Kind::Pod),
        (json!({ "operation": "CONNECT", "subResource": "exec" }), Reason::NotCreate, Kind::Pod),
        (json!({ "operation": null }), Reason::NotCreate, Kind::Pod),
        (json!({ "subResource": "ephemeralcontainers" }), Reason::Subresource, Kind::Pod),
        (json!({ "object": null }), Reason::NoObject, Kind::Pod),
        (json!({ "kind": kind("apps", "Deployment") }), Reason::KindNotHandled, Kind::Other),
        (json!({ "kind": kind("apps", "StatefulSet") }), Reason::KindNotHandled, Kind::Other),
        (json!({ "kind": kind("batch", "Job") }), Reason::KindNotHandled, Kind::Other),
        (json!({ "kind": kind("batch", "CronJob") }), Reason::KindNotHandled, Kind::Other),
        (json!({ "kind": kind("x", "Pod") }), Reason::KindNotHandled, Kind::Other),
        (json!({ "kind": null }), Reason::KindNotHandled, Kind::Other),
        (
            json!({ "kind": kind("batch.volcano.sh", "Job"), "object": null }),
            Reason::NoObject,
            Kind::VolcanoJob,
        ),
        (
            json!({ "kind": kind("mindxdl.gitee.com", "AscendJob"), "object": null }),
            Reason::NoObject,
            Kind::AscendJob,
        ),
        (json!({ "object": { "kind": "Pod", "metadata": { "name": "p" } } }), Reason::NoStrategy, Kind::Pod),
    ] {
        let seen = see(&request);
        assert_eq!(seen.verdict, Verdict::Skipped(reason), "{request}");
        assert_eq!(seen.kind, label, "{request}");
        assert_eq!(seen.response["allowed"], true, "{request}");
        assert_eq!(seen.patch(), None, "{request}");
        assert_eq!(seen.audit("skipped"), Some(reason.as_str()), "{request}");
        assert_eq!(seen.warnings(), Vec::<&str>::new(), "{request}");
    }
}

#[test]
fn what_is_no_review() {
    let whole = review(&json!({}));
    let with = |key: &str, value: Value| {
        let mut whole = whole.clone();
        whole[key] = value;
        whole.to_string().into_bytes()
    };
    let no_uid = |uid: Value| review(&json!({ "uid": uid })).to_string().into_bytes();
    for (body, needle) in [
        (b"".to_vec(), "no AdmissionReview"),
        (b"{".to_vec(), "no AdmissionReview"),
        (b"null".to_vec(), "no AdmissionReview"),
        (b"\"\xff\"".to_vec(), "utf-8"),
        (b"{} {}".to_vec(), "trailing"),
        (b"{}".to_vec(), "only AdmissionReview of admission.k8s.io/v1"),
        (with("apiVersion", json!("admission.k8s.io/v1beta1")), "v1beta1"),
        (with("apiVersion", json!(null)), "only AdmissionReview"),
        (with("kind", json!("Pod")), "Pod"),
        (with("request", json!(null)), "no request"),
        (with("request", json!({})), "no uid"),
        (with("request", json!("x")), "no AdmissionReview"),
        (no_uid(json!(null)), "no uid"),
        (no_uid(json!("")), "no uid"),
        (no_uid(json!(1)), "no AdmissionReview"),
    ] {
        let error = answer(&body, &Config::default(), ReadyNodes::Unknown)
            .expect_err(&String::from_utf8_lossy(&body));
        assert!(error.to_string().contains(needle), "{error}");
    }
}

#[test]
fn an_object_without_a_kind_is_taken_for_what_the_request_says() {
    let mut object = pod();
    object.as_object_mut().expect("an object").remove("kind");
    let seen = see(&json!({ "object": object }));
    assert_eq!(seen.verdict, Verdict::Injected);
    assert_eq!(seen.warnings, [Reason::KindMissing]);
    assert_eq!(seen.audit("warnings"), Some("KindMissing"));
    assert!(seen.warnings()[0].starts_with("swansong: KindMissing: "), "{:?}", seen.warnings());
}

#[test]
fn a_pod_without_a_name_is_named_by_its_prefix() {
    let mut object = pod();
    object["metadata"] = json!({ "generateName": "p-", "annotations": { "recover-strategy": "dump" } });
    let seen = see(&json!({ "object": object, "name": "" }));
    assert_eq!(seen.verdict, Verdict::Injected);
    assert_eq!(seen.subject, "ns/p-*");
    assert_eq!(seen.audit("generate-name"), Some("p-"));
}

#[test]
fn an_object_of_another_shape() {
    let mut object = pod();
    object["spec"]["containers"][0]["env"][0]["value"] = json!(31337);
    let request = json!({ "object": object });
    for (config, verdict, allowed, consequence) in [
        ("", Verdict::Failed(Reason::ObjectInvalid), true, "admitted unchanged"),
        ("strictness: deny", Verdict::Denied(Reason::ObjectInvalid), false, "denied"),
    ] {
        let seen = see_with(&request, config);
        assert_eq!(seen.verdict, verdict);
        assert_eq!(seen.response["allowed"], allowed);
        assert_eq!(seen.patch(), None);
        assert_eq!(seen.audit("failed"), Some("ObjectInvalid"));
        let warnings = seen.warnings();
        assert!(
            warnings[0].starts_with("swansong: ObjectInvalid: field spec.containers[0].env[0].value"),
            "{warnings:?}"
        );
        assert!(warnings[0].ends_with(consequence) || warnings[0].contains(consequence), "{warnings:?}");
        assert!(!seen.response.to_string().contains("31337"), "{}", seen.response);
        if !allowed {
            assert_eq!(seen.response["status"]["code"], 422);
            assert_eq!(seen.response["status"]["message"], warnings[0]);
        }
    }
}

#[test]
fn members_may_come_in_any_order() {
    let ordered = review(&json!({})).to_string();
    let expected =
        Seen::of(&answer(ordered.as_bytes(), &Config::default(), ReadyNodes::Unknown).expect("a review"));
    let request = review(&json!({}))["request"].clone();
    let (object, rest) = (request["object"].to_string(), request.as_object().expect("an object"));
    let rest: Vec<String> = rest
        .iter()
        .filter(|(key, _)| *key != "object")
        .map(|(key, value)| format!("{key:?}:{value}"))
        .collect();
    for place in 0..=rest.len() {
        let mut members = rest.clone();
        members.insert(place, format!(r#""object":{object}"#));
        let body = format!(
            r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{{{}}}}}"#,
            members.join(",")
        );
        let seen =
            Seen::of(&answer(body.as_bytes(), &Config::default(), ReadyNodes::Unknown).expect("a review"));
        assert_eq!((seen.verdict, seen.patch()), (expected.verdict, expected.patch()), "{body}");
    }
}

#[test]
fn a_trainer_that_the_configuration_denies() {
    let script =
        "torchrun --nproc_per_node 16 posttrain_gpt.py --use-distributed-optimizer --save /ckpt --lora-r 8";
    let job = json!({"kind": "AscendJob", "metadata": {"name": "j", "annotations": {"recover-strategy": "dump"}},
        "spec": {"replicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "ascend", "command": ["bash", "-c", script]}]}}}}}});
    let kind = json!({"group": "mindxdl.gitee.com", "version": "v1", "kind": "AscendJob"});
    let request = json!({"object": job, "kind": kind});
    for (config, allowed) in [
        ("", true),
        ("trainerStrictness: {LoraStopsJob: warn, WeightsOnly: deny}", true),
        ("trainerStrictness: {LoraStopsJob: deny}", false),
    ] {
        let seen = see_with(&request, config);
        assert_eq!(seen.response["allowed"], allowed, "{config}");
        let starts = |warning: &&str| warning.contains("the job will not start");
        assert!(seen.warnings().iter().any(starts), "{:?}", seen.warnings());
        assert_eq!(seen.patch().is_some(), allowed);
        if !allowed {
            assert_eq!(seen.verdict, Verdict::Denied(Reason::TrainerWontStart));
            assert_eq!((seen.verdict.unprocessed(), &seen.response["status"]["code"]), (None, &json!(403)));
        }
    }
    for unknown in ["trainerStrictness: {Lora: deny}", "trainerStrictness: {NoTrainer: deny}"] {
        assert!(Config::parse(unknown).expect_err("an error").to_string().contains("docs/trainer.md"));
    }
}

#[test]
fn a_core_that_panics() {
    let body = review(&json!({})).to_string();
    for (strictness, verdict, allowed) in [
        (Strictness::Warn, Verdict::Failed(Reason::InternalError), true),
        (Strictness::Deny, Verdict::Denied(Reason::InternalError), false),
    ] {
        let answer = answer_with(body.as_bytes(), strictness, |_, _| panic!("a fault"));
        let seen = Seen::of(&answer.expect("a review"));
        assert_eq!(seen.verdict, verdict);
        assert_eq!(seen.response["allowed"], allowed);
        assert_eq!(seen.patch(), None);
        assert_eq!(seen.audit("failed"), Some("InternalError"));
        assert_eq!(seen.audit("warnings"), Some("InternalError"));
        assert_eq!(seen.warnings().len(), 1);
    }
}

#[test]
fn many_long_warnings_are_few_and_short() {
    let body = review(&json!({})).to_string();
    let answer = answer_with(body.as_bytes(), Strictness::Warn, |_, _| {
        let warning = |index: usize| Warning {
            reason: if index == 0 { Reason::Windows } else { Reason::OptionInvalid },
            message: format!("{index}\n{}", "ä".repeat(200)),
        };
        Ok(Outcome {
            skip: Some(Reason::OptedOut),
            warnings: (0..20).map(warning).collect(),
            ..Outcome::default()
        })
    });
    let seen = Seen::of(&answer.expect("a review"));
    let warnings = seen.warnings();
    assert_eq!(warnings.len(), 8);
    assert!(warnings[7].contains("13 more warnings"), "{}", warnings[7]);
    for warning in &warnings {
        assert!(
            warning.len() <= 240 && !warning.contains('\n') && warning.starts_with("swansong: "),
            "{warning}"
        );
    }
    assert_eq!(seen.warnings.len(), 20, "metrics count them all");
    assert_eq!(seen.audit("warnings"), Some("Windows,OptionInvalid"));
}

#[test]
fn audit_annotation_names_the_replica_of_each_change() {
    let container = |name: &str| json!({ "spec": { "containers": [{ "name": name }] } });
    let job = json!({
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "metadata": { "name": "j", "annotations": { "recover-strategy": "dump" } },
        "spec": { "replicaSpecs": {
            "Master": { "template": container("ascend") },
            "Worker": { "template": container("ascend") },
        } },
    });
    let kind = json!({ "group": "mindxdl.gitee.com", "version": "v1", "kind": "AscendJob" });
    let seen = see(&json!({ "kind": kind, "object": job }));
    assert_eq!((seen.verdict, seen.kind), (Verdict::Injected, Kind::AscendJob));
    let injected = seen.audit("injected").expect("an annotation");
    assert!(
        injected.starts_with("Master: annotations.recover-strategy; Master/ascend: env.POD_IP "),
        "{injected}"
    );
    assert!(injected.contains("; Worker/ascend: env.POD_IP "), "{injected}");
}

#[test]
fn reports_kept_fields_without_their_values() {
    let mut object = pod();
    object["spec"]["containers"][0]["env"] = json!([{ "name": "TTP_PORT", "value": "9123" }]);
    object["metadata"]["annotations"]["swansong.dev/skip-preload"] = json!("*");
    let seen = see(&json!({ "object": object }));
    assert_eq!(seen.audit("kept"), Some("ascend: env.TTP_PORT=TtpPortNotDefault"));
    assert_eq!(seen.audit("skipped"), Some("ascend: env.LD_PRELOAD=PreloadOptedOut"));
    assert_eq!(seen.warnings, [Reason::TtpPortNotDefault]);
}

#[test]
fn an_audit_annotation_stays_short() {
    let containers: Vec<Value> = (0..50).map(|index| json!({ "name": format!("c{index}") })).collect();
    let names: Vec<String> = (0..50).map(|index| format!("c{index}")).collect();
    let mut object = pod();
    object["spec"]["containers"] = json!(containers);
    object["metadata"]["annotations"]["swansong.dev/containers"] = json!(names.join(","));
    let seen = see(&json!({ "object": object }));
    assert!(seen.audit("injected").is_some_and(|value| value.len() <= 1024 && value.ends_with('…')));
}

//! Reviews and what is none, over the wire.

use serde_json::{Value, json};

use crate::harness::{Webhook, patch, review, review_of};

#[test]
fn a_pod_is_patched() {
    let webhook = Webhook::start(&[]);
    let response = webhook.review(&review());
    assert_eq!(response.header("content-type"), Some("application/json"));
    let answer = response.json();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "0a1b");
    assert_eq!(answer["response"]["allowed"], true);
    let mut object = review()["request"]["object"].clone();
    let operations: json_patch::Patch = serde_json::from_value(json!(patch(&answer))).expect("RFC 6902");
    json_patch::patch(&mut object, &operations).expect("applies");
    let container = &object["spec"]["containers"][0];
    assert_eq!(container["env"][0], json!({ "name": "TOKEN", "value": "hunter2" }));
    assert_eq!(container["ports"][1]["containerPort"], 9601);

    let again = webhook.review(&review_of(&object)).json();
    assert_eq!(again["response"].get("patch"), None);
    assert_eq!(again["response"].get("patchType"), None);
}

#[test]
fn one_connection_carries_many_reviews() {
    let webhook = Webhook::start(&[]);
    let mut client = webhook.client();
    assert_eq!(client.protocol(), Some(&b"http/1.1"[..]));
    let body = review().to_string();
    for _ in 0..100 {
        assert_eq!(client.post("/mutate", body.as_bytes()).status, 200);
    }
    webhook.metric_becomes("swansong_connections_accepted_total", 1.0);
    assert_eq!(
        webhook.metric(r#"swansong_reviews_total{kind="Pod",result="injected",reason=""}"#),
        Some(100.0)
    );
}

#[test]
fn skipped_objects_are_admitted_without_a_patch() {
    let webhook = Webhook::start(&[]);
    let deployment = json!({ "group": "apps", "version": "v1", "kind": "Deployment" });
    for (key, value, reason) in [
        ("operation", json!("UPDATE"), "NotCreate"),
        ("subResource", json!("ephemeralcontainers"), "Subresource"),
        ("object", Value::Null, "NoObject"),
        ("kind", deployment, "KindNotHandled"),
        ("object", json!({ "kind": "Pod" }), "NoStrategy"),
    ] {
        let mut body = review();
        body["request"][key] = value;
        let response = webhook.review(&body).json()["response"].clone();
        assert_eq!(response["allowed"], true, "{body}");
        assert_eq!(response["uid"], "0a1b", "{body}");
        assert_eq!(response.get("patch"), None, "{body}");
        assert_eq!(response.get("patchType"), None, "{body}");
        assert_eq!(response["auditAnnotations"]["skipped"], reason, "{body}");
    }
}

#[test]
fn what_is_no_review() {
    let webhook = Webhook::start(&[]);
    let mut client = webhook.client();
    for body in ["", "{", "{}", "[]", r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#] {
        let response = client.post("/mutate", body.as_bytes());
        assert_eq!(response.status, 400, "{body}");
        assert!(response.text().contains("AdmissionReview"), "{}", response.text());
        assert!(response.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
    }
    for (method, path, status) in [
        ("GET", "/mutate", 405),
        ("PUT", "/mutate", 405),
        ("POST", "/", 404),
        ("POST", "/mutate/", 404),
        ("POST", "/metrics", 404),
    ] {
        assert_eq!(client.request(method, path, b"").status, status, "{method} {path}");
    }
    webhook.metric_becomes(r#"swansong_requests_refused_total{cause="not_a_review"}"#, 5.0);
}

#[test]
fn what_the_core_cannot_read() {
    let mut body = review();
    body["request"]["object"]["spec"]["containers"] = json!("none");
    let lenient = Webhook::start(&[]).review(&body).json()["response"].clone();
    assert_eq!(lenient["allowed"], true);
    assert!(
        lenient["warnings"][0].as_str().is_some_and(|text| text.starts_with("swansong: ObjectInvalid: "))
    );

    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("config.yaml");
    std::fs::write(&config, "strictness: deny\n").expect("written");
    let webhook = Webhook::start(&["--config", config.to_str().expect("text")]);
    let strict = webhook.review(&body).json()["response"].clone();
    assert_eq!(strict["allowed"], false);
    assert_eq!(strict["status"]["message"], strict["warnings"][0]);
    assert_eq!(
        webhook.metric(r#"swansong_reviews_total{kind="Pod",result="denied",reason="ObjectInvalid"}"#),
        Some(1.0)
    );
}

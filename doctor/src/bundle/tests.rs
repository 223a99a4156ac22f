//! Secrets are removed, and the archive stays within its limit.

use std::io::Read as _;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Event, Node};
use serde_json::{Value, json};

use super::{Bundle, Entry, Material, Redactor, entries};
use crate::fault_course::LogSource;
use crate::snapshot::{AgentStatus, Job, JobKind, JobObject, NodeSnapshot, Seen, Snapshot};

/// None of these may be in a bundle.
const PLANTED: [&str; 14] = [
    "hunter2hunter2",
    "s3cr3t-of-the-bucket",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "flagvalue1234",
    "nextelement99",
    "urlpassword",
    "basicY3JlZGVudGlhbHM=",
    "annotated-secret",
    "lastAppliedSecret",
    "MIIEvQIBADANBgkqhkiG9w0",
    "header-key-value",
    "short12",
];

fn secretive_pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "bert-master-0", "namespace": "ml", "uid": "u",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {
                "swansong.dev/injected": "{}",
                "swansong.dev/launcher-hook.py": "import os",
                "team.example/webhook": "annotated-secret",
                "kubectl.kubernetes.io/last-applied-configuration": "{\"env\":\"lastAppliedSecret\"}",
            },
        },
        "spec": {
            "containers": [{
                "name": "ascend",
                "command": ["bash", "-c", "python train.py --hf-token flagvalue1234 --tokenizer-type GPT --max-tokens 4096"],
                "args": ["--api-key", "nextelement99", "https://user:urlpassword@example.org/data"],
                "env": [
                    {"name": "WANDB_API_KEY", "value": "hunter2hunter2"},
                    {"name": "DATA", "value": "s3cr3t-of-the-bucket"},
                    {"name": "PIN", "value": "short12"},
                    {"name": "TTP_PORT", "value": "8000"},
                    {"name": "CHECKPOINTS", "value": "/data/checkpoints"},
                    {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "bucket", "key": "password"}}},
                ],
                "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "X-Key", "value": "header-key-value"}]}},
            }],
            "volumes": [{"name": "v", "secret": {"secretName": "bucket-secret"}}],
        },
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "ascend", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-30T10:00:31Z"}},
        }]},
    })
}

const LOG: &str = "\
2026-11-30T10:00:01.000000000Z wandb: logged in with hunter2hunter2
2026-11-30T10:00:02.000000000Z bucket s3cr3t-of-the-bucket, saving to /data/checkpoints
2026-11-30T10:00:03.000000000Z AWS_ACCESS_KEY_ID: AKIAIOSFODNN7EXAMPLE
2026-11-30T10:00:04.000000000Z Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl
2026-11-30T10:00:05.000000000Z cloning with hf_abcdefghijklmnopqrstuvwxyz, 12345 tokens: 99
2026-11-30T10:00:06.000000000Z header Authorization: Basic basicY3JlZGVudGlhbHM=
2026-11-30T10:00:07.000000000Z {\"password\": \"short12\", \"step\": 7}
2026-11-30T10:00:08.000000000Z -----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0
-----END PRIVATE KEY-----
2026-11-30T10:00:09.000000000Z mindx calling notify to dump!
";

fn material() -> Material {
    let pod = serde_json::from_value(secretive_pod()).expect("a Pod");
    let object = json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": "bert", "namespace": "ml", "annotations": {"recover-strategy": "dump"}},
        "spec": {"replicaSpecs": {"Master": {"template": secretive_pod()}}},
    });
    let object =
        JobObject { kind: JobKind::AscendJob, object: serde_json::from_value(object).expect("a job") };
    // The value of a Pod's variable, in another object.
    let node = json!({"metadata": {"name": "npu-a"}, "spec": {"providerID": "cloud://hunter2hunter2"}, "status": {"conditions": [
        {"type": "DumpReady", "status": "False", "reason": "DevicesMissing", "lastTransitionTime": "2026-11-30T09:59:00Z"},
    ]}});
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "bert-master-0"},
        "reason": "Failed", "message": "pull with password=hunter2hunter2", "lastTimestamp": "2026-11-30T10:00:30Z",
    });
    let source = LogSource { pod: "bert-master-0".to_owned(), container: "ascend".to_owned() };
    let status = json!({"version": "0.1.0", "preload": [{"message": "LD s3cr3t-of-the-bucket"}]});
    Material {
        snapshot: Snapshot {
            taken_at: 1_796_032_800_000,
            installation: None,
            cluster: None,
            jobs: vec![Job {
                namespace: "ml".to_owned(),
                name: "bert".to_owned(),
                object: Seen::Read(object),
                pods: Seen::Read(vec![pod]),
                group: Seen::Absent,
                reset_config: Seen::Absent,
                summary: Seen::Absent,
                service: Seen::Absent,
                endpoints: Seen::Absent,
            }],
            nodes: vec![NodeSnapshot {
                name: "npu-a".to_owned(),
                node: Seen::Read(serde_json::from_value::<Node>(node).expect("a Node")),
                device_info: Seen::Absent,
                agent: Seen::Absent,
                status: Seen::Read(AgentStatus { version: "0.1.0".to_owned(), ..AgentStatus::default() }),
            }],
        },
        api_server: Seen::Read("v1.33.1".to_owned()),
        courses: Vec::new(),
        events: vec![serde_json::from_value::<Event>(event).expect("an Event")],
        agents: [("npu-a".to_owned(), Seen::Read(status))].into(),
        pods: Vec::new(),
        logs: vec![
            ("ml".to_owned(), source.clone(), Seen::Read(LOG.to_owned())),
            (
                "ml".to_owned(),
                LogSource { container: "other".to_owned(), ..source },
                Seen::Forbidden("no".to_owned()),
            ),
        ],
        unread: vec!["the logs of 3 Pods".to_owned()],
    }
}

fn content<'a>(entries: &'a [Entry], path: &str) -> &'a str {
    let entry = entries.iter().find(|entry| entry.path == path).unwrap_or_else(|| panic!("no {path}"));
    std::str::from_utf8(&entry.content).expect("text")
}

#[test]
fn planted_secrets_are_removed_and_what_a_dump_needs_is_kept() {
    let entries = entries(&material());
    for entry in &entries {
        let text = std::str::from_utf8(&entry.content).expect("text");
        for secret in PLANTED {
            assert!(!text.contains(secret), "{secret} is in {}: {text}", entry.path);
        }
    }
    let pod = content(&entries, "objects/jobs/ml/bert/pods/bert-master-0.json");
    for kept in [
        "\"8000\"",
        "swansong.dev/injected",
        "secretKeyRef",
        "bucket-secret",
        "--tokenizer-type GPT",
        "--max-tokens 4096",
        "(9 bytes)",
    ] {
        assert!(pod.contains(kept), "{kept}: {pod}");
    }
    let log = content(&entries, "logs/ml/bert-master-0/ascend.log");
    for kept in ["/data/checkpoints", "12345 tokens: 99", "\"step\": 7", "mindx calling notify to dump!"] {
        assert!(log.contains(kept), "{kept}: {log}");
    }
}

#[test]
fn timeline_is_on_one_clock() {
    let entries = entries(&material());
    let expected = "\
2026-11-30T09:59:00.000Z  Node npu-a  DumpReady is False: DevicesMissing
2026-11-30T10:00:09.000Z  log of bert-master-0/ascend  mindx calling notify to dump!
2026-11-30T10:00:30.000Z  Pod bert-master-0  Failed: pull with password=(removed)
2026-11-30T10:00:31.000Z  Pod bert-master-0  container ascend ended with 1 (Error)
";
    assert_eq!(content(&entries, "timeline.txt"), expected);
    let readme = content(&entries, "README.txt");
    assert!(
        readme.contains("- the logs of 3 Pods") && readme.contains("bert-master-0/other may not be read"),
        "{readme}"
    );
    assert!(content(&entries, "versions.json").contains("v1.33.1"));
    assert!(content(&entries, "doctor.txt").contains("× pod-group"));
}

#[test]
fn texts_without_secrets_stay_as_they_are() {
    let redactor = Redactor::default();
    for text in [
        "loss 0.123 tokens/s: 4567",
        "tokenizer: PretrainedFromHF, num_tokens=42",
        "secretName is bucket",
        "the password was wrong",
        "key: value",
        "http://10.0.0.1:8000/status",
    ] {
        assert_eq!(redactor.text(text), text);
    }
}

#[test]
fn archive_stays_within_its_limit_and_lists_what_it_leaves_out() {
    // Random bytes don't shrink.
    let mut state = 7_u64;
    let mut random = |size: usize| -> Vec<u8> {
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        std::iter::repeat_with(next).take(size).collect()
    };
    let entry = |path: &str, content: Vec<u8>| Entry { path: path.to_owned(), content };
    let mut all = vec![entry("README.txt", b"first".to_vec())];
    all.extend((0..8).map(|n| entry(&format!("logs/{n}.log"), random(300 << 10))));
    all.push(entry("last.txt", b"last".to_vec()));
    let limit = 1 << 20;
    let bundle = Bundle::new(&all, limit, 1_796_032_800).expect("packed");
    assert!(bundle.bytes.len() <= limit && bundle.bytes.len() > limit / 2, "{}", bundle.bytes.len());
    assert_eq!(bundle.files + bundle.left_out.len(), all.len());
    assert_eq!(bundle.left_out, (2..8).map(|n| format!("logs/{n}.log")).collect::<Vec<_>>());
    let mut archive = tar::Archive::new(GzDecoder::new(bundle.bytes.as_slice()));
    let mut paths = Vec::new();
    for file in archive.entries().expect("entries") {
        let mut file = file.expect("an entry");
        let path = file.path().expect("a path").display().to_string();
        let mut content = Vec::new();
        file.read_to_end(&mut content).expect("content");
        if path != "LEFT-OUT.txt" {
            let original = all.iter().find(|entry| entry.path == path).expect("an entry of ours");
            assert!(original.content == content, "{path}");
        }
        paths.push(path);
    }
    assert_eq!(paths, ["README.txt", "logs/0.log", "logs/1.log", "last.txt", "LEFT-OUT.txt"]);
}

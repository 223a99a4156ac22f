//! `swansong doctor --bundle`: planted secrets aren't in it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use flate2::read::GzDecoder;
use serde_json::json;

use super::fault::with_logs;
use super::objects::{self, NAMESPACE, PODS};
use super::world::World;

const IN_A_VARIABLE: &str = "wandb-3f9a7c5e1b";
const IN_A_SECRET: &str = "secret-of-the-bucket";
const IN_A_LOG: &str = "hunter2-in-the-log";
const IN_AN_ARGUMENT: &str = "argument-1234567";
const IN_AN_ANNOTATION: &str = "annotation-123456";

const LOG: &str = "\
2026-11-30T10:00:00.000000000Z wandb: logged in with wandb-3f9a7c5e1b
2026-11-30T10:00:01.000000000Z connecting with password=hunter2-in-the-log
2026-11-30T10:00:02.000000000Z mindx calling notify to dump!
";

#[tokio::test(flavor = "multi_thread")]
async fn bundle_has_what_support_needs_and_no_secret() {
    let world = World::start().await;
    let encoded = crate::support::base64(IN_A_SECRET.to_owned());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bucket", "namespace": NAMESPACE},
        "data": {"password": encoded},
    });
    world.create(secret).await;
    let mut pod = world.pods[0].clone();
    let container = &mut pod["spec"]["containers"][0];
    container["env"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"name": "WANDB_API_KEY", "value": IN_A_VARIABLE}));
    container["args"] = json!(["train.py", "--hf-token", IN_AN_ARGUMENT]);
    pod["metadata"]["annotations"]["team.example/webhook"] = IN_AN_ANNOTATION.into();
    world.replace_pod(0, pod).await;
    with_logs(&world, LOG).await;
    let uid = world.get("AscendJob", NAMESPACE, "bert").await["metadata"]["uid"].clone();
    world.create(objects::fault_event("AscendJob", "bert", &uid, "DumpFailed", "it couldn't save", 0)).await;

    let path = world.files.path().join("bundle.tar.gz");
    let arguments = ["bert", "-n", NAMESPACE, "--bundle", path.to_str().unwrap()];
    let output = world.doctor(&arguments).await;
    assert!(output.status.success(), "{output:?}");
    let metadata = path.metadata().unwrap();
    assert!(metadata.len() < 20 << 20 && metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(&path).unwrap()));
    for file in archive.entries().unwrap() {
        let mut file = file.unwrap();
        let name = file.path().unwrap().display().to_string();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        files.insert(name, content);
    }
    for planted in [IN_A_VARIABLE, IN_A_SECRET, &encoded, IN_A_LOG, IN_AN_ARGUMENT, IN_AN_ANNOTATION] {
        for (name, content) in &files {
            assert!(!content.contains(planted), "{planted} is in {name}: {content}");
        }
    }
    let all = files.keys().cloned().collect::<Vec<_>>().join("\n");
    let content = |name: &str| files.get(name).unwrap_or_else(|| panic!("no {name} in {all}"));
    assert!(content("doctor.txt").contains("✓ admitted"));
    assert!(content("objects/jobs/ml/bert/job.json").contains("recover-strategy"));
    assert!(content(&format!("objects/jobs/ml/bert/pods/{}.json", PODS[0])).contains("TTP_PORT"));
    assert!(content(&format!("logs/ml/{}/ascend.log", PODS[0])).contains("mindx calling notify to dump!"));
    assert!(content("timeline.txt").contains("DumpFailed: it couldn't save"));
    assert!(content("last-fault/ml-bert.txt").contains("no checkpoint was saved"));
    assert!(content("agents/npu-a.json").contains("\"version\""));
    assert!(content("versions.json").contains("\"apiServer\": \"v1."));

    // It is never written over a file.
    let again = world.doctor(&arguments).await;
    assert_eq!(again.status.code(), Some(1), "{again:?}");
}

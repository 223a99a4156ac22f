//! `swansong doctor --last-fault`.

use serde_json::{Value, json};

use super::kubelet::serve_log;
use super::objects::{self, FAULT, NAMESPACE, NODES, PODS};
use super::world::World;

/// Has the API server show this log of rank 0's Pod.
pub(super) async fn with_logs(world: &World, log: &'static str) {
    let kubelet = serve_log(world.address, PODS[0], log).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": kubelet.ip()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
    }});
    world.merge_status("Node", "", NODES[0], &status).await;
}

async fn course(world: &World, code: i32) -> Value {
    let output = world.doctor(&["--last-fault", "bert", "-n", NAMESPACE, "-o", "json"]).await;
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn course_of_a_fault_is_reconstructed_from_events_and_the_agent() {
    let world = World::start().await;
    let nothing = course(&world, 3).await;
    assert_eq!((&nothing["fault"], &nothing["steps"]), (&Value::Null, &json!([])));
    assert!(nothing["unknown"][0].as_str().unwrap().contains("no Event of a fault"), "{nothing:#}");

    let uid = world.get("AscendJob", NAMESPACE, "bert").await["metadata"]["uid"].clone();
    let on_job = |reason, text, second| objects::fault_event("AscendJob", "bert", &uid, reason, text, second);
    let node = json!(NODES[0]);
    world.create(objects::fault_event("Node", NODES[0], &node, "DeviceFault", "NPU 3 is lost", 0)).await;
    world
        .create(on_job("FaultRelayed", "ranks are ended. The checkpoint may be lost: no launcher hook", 5))
        .await;
    // Another job on the same node.
    let other = objects::fault_event("AscendJob", "other", &json!("x"), "DumpSucceeded", "saved", 20);
    world.create(other).await;
    for agent in &world.agents {
        agent.change(|status| {
            status["faults"] =
                json!({"faults": [{"id": FAULT, "phase": "confirmed"}], "outcomes": {FAULT: {}}});
        });
    }
    let pending = course(&world, 3).await;
    assert_eq!((&pending["outcome"], &pending["fault"]), (&json!("pending"), &json!(FAULT)));
    let stages: Vec<&Value> =
        pending["steps"].as_array().unwrap().iter().map(|step| &step["stage"]).collect();
    assert_eq!(stages, ["fault", "sent"]);
    let unknown = pending["unknown"].to_string();
    // There is no kubelet that would show logs.
    assert!(
        unknown.contains("still waits for the outcome") && unknown.contains("the log of bert-master-0"),
        "{unknown}"
    );

    world.create(on_job("DumpFailed", "the job couldn't save", 30)).await;
    with_logs(&world, "2026-11-30T10:00:26.5Z ret: wait mindx wake up action ret:110\n").await;
    let failed = course(&world, 2).await;
    assert_eq!(failed["outcome"], "not-saved");
    let causes: Vec<&str> =
        failed["causes"].as_array().unwrap().iter().map(|cause| cause["what"].as_str().unwrap()).collect();
    assert_eq!(causes, ["no launcher hook", "no order to save came in time"]);

    // Of a job that was deleted the Events are left.
    world.delete("AscendJob", NAMESPACE, "bert").await;
    let deleted = course(&world, 2).await;
    assert_eq!((&deleted["outcome"], &deleted["fault"]), (&json!("not-saved"), &json!(FAULT)));
}

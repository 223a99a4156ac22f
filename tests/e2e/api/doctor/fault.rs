//! `swansong doctor --last-fault`.

use serde_json::{Value, json};

use super::objects::{self, FAULT, NAMESPACE, NODES};
use super::world::World;

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
    let failed = course(&world, 2).await;
    assert_eq!(failed["outcome"], "not-saved");
    assert_eq!(failed["causes"][0]["what"], "no launcher hook");

    // Of a job that was deleted the Events are left.
    world.delete("AscendJob", NAMESPACE, "bert").await;
    let deleted = course(&world, 2).await;
    assert_eq!((&deleted["outcome"], &deleted["fault"]), (&json!("not-saved"), &json!(FAULT)));
}

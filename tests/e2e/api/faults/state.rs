//! What the agent logs of a state that it can't write.

use std::collections::BTreeSet;

use serde_json::Value;
use swansong_testcluster::eventually;

use super::{CRITICAL, HBM, OCCUR, Scene, TEST_TIMEOUT};

const IN_MEMORY: &str = "the state of faults is kept in memory only";
const WRITTEN: &str = "the state of faults is on disk again";

#[tokio::test]
async fn state_in_memory_only_is_logged_once_per_problem_until_it_is_on_disk() {
    let scene = Scene::new("state-log").await;
    // Neither the folder nor its file can be created.
    scene.site.host.file("/state", "");
    let agent = scene.site.start();
    agent.ready().await;
    for code in [HBM, HBM + 1, HBM + 2] {
        scene.script.event(5, code, CRITICAL, OCCUR, "made up");
    }
    scene.has_accepted(&agent, &["occur"; 3]).await;
    let problems: Vec<Value> = agent.logged(IN_MEMORY);
    let distinct: BTreeSet<String> = problems.iter().map(|line| line["problem"].to_string()).collect();
    assert!(!problems.is_empty() && problems.len() == distinct.len(), "{problems:?}");
    assert!(problems.iter().all(|line| line["level"] == "WARN"), "{problems:?}");

    scene.site.host.remove("/state");
    eventually("the state is on disk", TEST_TIMEOUT, || async {
        let lines = agent.logged(WRITTEN);
        if lines.len() == 1 { Ok(()) } else { Err(format!("{lines:?}")) }
    })
    .await
    .unwrap();
    assert!(scene.site.host.path("/state/state.json").is_file());
}

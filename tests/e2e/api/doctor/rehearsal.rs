//! `swansong doctor JOB --rehearse`.

use serde_json::{Value, json};

use super::objects::NAMESPACE;
use super::world::World;
use super::{JOB, checks, with};

async fn rehearse(world: &World, code: i32) -> Value {
    let output = world.doctor(&["bert", "-n", NAMESPACE, "--rehearse", "-o", "json"]).await;
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rehearsal_of_a_job_is_kept_on_it_and_says_what_it_does_not_prove() {
    let world = World::start().await;
    let result = rehearse(&world, 0).await;
    assert_eq!(result["rehearsal"]["status"], "pass");
    assert!(result["notProven"].to_string().contains("orders the dump"), "{result}");
    let job = world.get("AscendJob", NAMESPACE, "bert").await;
    let kept: Value =
        serde_json::from_str(job["metadata"]["annotations"]["swansong.dev/rehearsal"].as_str().unwrap())
            .unwrap();
    assert_eq!((&kept["status"], &kept["at"]), (&json!("pass"), &result["rehearsal"]["at"]));
    let found = checks(&world.doctor(&JOB).await);
    assert!(with(&found, &["pass"]).contains("job-rehearsal"), "{found:#?}");

    let reset = world.get("ConfigMap", NAMESPACE, "reset-config-bert").await;
    world.delete("ConfigMap", NAMESPACE, "reset-config-bert").await;
    let result = rehearse(&world, 2).await;
    assert!(result["rehearsal"]["message"].as_str().unwrap().starts_with("reset-config: "), "{result}");
    world.restore(&reset).await;
    // What failed then holds now, so only a new rehearsal is missing.
    let found = checks(&world.doctor(&JOB).await);
    assert_eq!(with(&found, &["warn", "fail", "unknown"]), ["job-rehearsal"].into());
    rehearse(&world, 0).await;
    let found = checks(&world.doctor(&JOB).await);
    assert_eq!(with(&found, &["warn", "fail", "unknown"]), [].into());
}

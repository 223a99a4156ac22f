//! `swansong doctor` against a real API server: the manifests, the real webhook, and a job of two Pods, whose agents are
//! simulated.

mod agents;
mod breakages;
mod breakages_on_nodes;
mod bundle;
mod change;
mod fault;
mod figures;
mod kubelet;
mod objects;
mod rehearsal;
mod status;
mod world;

use std::collections::BTreeSet;
use std::process::Output;

use serde_json::Value;

use self::objects::NAMESPACE;
use self::world::World;

const JOB: [&str; 5] = ["bert", "-n", NAMESPACE, "-o", "json"];

fn checks(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    report["checks"].as_array().unwrap().clone()
}

/// The names of the checks with one of these statuses.
fn with<'a>(checks: &'a [Value], statuses: &[&str]) -> BTreeSet<&'a str> {
    let found = checks.iter().filter(|check| statuses.contains(&check["status"].as_str().unwrap()));
    found.map(|check| check["check"].as_str().unwrap()).collect()
}

fn assert_healthy(output: &Output) {
    let checks = checks(output);
    let bad: Vec<&Value> = checks.iter().filter(|check| check["status"] != "pass").collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(checks.len() > 45, "only {} checks", checks.len());
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_broken_link_is_named_and_no_other() {
    let world = World::start().await;
    assert_healthy(&world.doctor(&JOB).await);
    let text = String::from_utf8(world.doctor(&JOB[..3]).await.stdout).unwrap();
    assert!(text.lines().count() < 50, "{text}");
    let mut problems = Vec::new();
    let (mut rows, mut links) = (0, BTreeSet::new());
    let all = [
        breakages::of_installation(),
        breakages::of_job(),
        breakages::of_pods(),
        breakages_on_nodes::of_agents(),
    ];
    for (what, change, link, status) in all.into_iter().flatten() {
        let undo = change.apply(&world).await;
        let output = world.doctor(&JOB).await;
        let found = checks(&output);
        undo.restore(&world).await;
        let named = with(&found, &["fail", "warn"]);
        let expected: BTreeSet<&str> =
            if matches!(status, "fail" | "warn") { BTreeSet::from([link]) } else { BTreeSet::new() };
        let is_found =
            link.is_empty() || found.iter().any(|check| check["check"] == link && check["status"] == status);
        if named != expected || !is_found {
            let bad = found.iter().filter(|check| check["status"] != "pass");
            let bad: Vec<String> = bad
                .map(|check| format!("{} {}: {}", check["check"], check["status"], check["seen"]))
                .collect();
            problems.push(format!("{what}: expected {link} {status}, found\n  {}", bad.join("\n  ")));
        }
        if link == "webhook-reachable" {
            let check = found.iter().find(|check| check["check"] == link).unwrap();
            // The API server's message, not only that there was no answer.
            assert!(check["seen"].as_str().unwrap().contains("refused"), "{check}");
        }
        let code = if found.iter().any(|check| check["status"] == "fail") {
            2
        } else if found.iter().any(|check| check["status"] == "unknown") {
            3
        } else {
            0
        };
        assert_eq!(output.status.code(), Some(code), "{what}");
        rows += 1;
        links.insert(link);
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(rows >= 60 && links.len() >= 40, "{rows} rows, {} links", links.len());
    assert_healthy(&world.doctor(&JOB).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_role_suffices_and_what_a_role_lacks_is_unknown() {
    let world = World::start().await;
    let doctor = world.kubeconfig_of(&["swansong:doctor"]);
    assert_healthy(&world.doctor_by(&doctor, &JOB).await);
    assert_healthy(&world.doctor_by(&doctor, &["--all", "-o", "json"]).await);

    // Without the right to ask agents.
    let binding = world.get("RoleBinding", "swansong-agent", "swansong-doctor").await;
    world.delete("RoleBinding", "swansong-agent", "swansong-doctor").await;
    let output = world.doctor_by(&doctor, &JOB).await;
    let found = checks(&output);
    assert_eq!(with(&found, &["fail", "warn"]), BTreeSet::new());
    let unknown = with(&found, &["unknown"]);
    for link in ["agent-answers", "launcher-hook-active", "manager-listening", "processors-connected"] {
        assert!(unknown.contains(link), "{link}: {found:#?}");
    }
    let agent = found.iter().find(|check| check["check"] == "agent-answers").unwrap();
    assert!(agent["seen"].as_str().unwrap().contains("pods/proxy"), "{agent}");
    assert_eq!(output.status.code(), Some(3));
    world.restore(&binding).await;

    // Without any right nothing passes.
    let without_rights = world.kubeconfig_of(&[]);
    for arguments in [&JOB[..], &["--all", "-o", "json"], &["--node", objects::NODES[0], "-o", "json"]] {
        let output = world.doctor_by(&without_rights, arguments).await;
        let found = checks(&output);
        assert_eq!(with(&found, &["pass", "warn", "fail"]), BTreeSet::new(), "{arguments:?}");
        assert_eq!(output.status.code(), Some(3));
    }
}

//! Snapshots of each rendered overlay.

use std::process::Command;

use crate::kustomize::{AGENT_OVERLAYS, GATEWAY_OVERLAYS, OVERLAYS, kubectl, kustomize, root};

#[test]
fn overlays_render_to_their_snapshots() {
    for overlay in OVERLAYS.into_iter().chain(AGENT_OVERLAYS).chain(GATEWAY_OVERLAYS).chain(["doctor"]) {
        let rendered = kustomize(&root().join("manifests").join(overlay));
        let name = overlay.rsplit('/').next().expect("a name");
        insta::with_settings!({
            snapshot_path => root().join("tests/integration/manifests/golden"),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, { insta::assert_snapshot!(name, rendered) });
    }
}

/// The chart's templates are made from the kustomizations; `e2e-api` compares what they render.
#[test]
fn the_charts_templates_are_current() {
    let script = root().join("manifests/chart/generate");
    let output = Command::new(script).arg("--check").env("KUBECTL", kubectl()).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

//! Snapshots of each rendered overlay.

use crate::kustomize::{AGENT_OVERLAYS, GATEWAY_OVERLAYS, OVERLAYS, kustomize, root};

#[test]
fn overlays_render_to_their_snapshots() {
    for overlay in OVERLAYS.into_iter().chain(AGENT_OVERLAYS).chain(GATEWAY_OVERLAYS) {
        let rendered = kustomize(&root().join("manifests").join(overlay));
        let name = overlay.rsplit('/').next().expect("a name");
        insta::with_settings!({
            snapshot_path => root().join("tests/integration/manifests/golden"),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, { insta::assert_snapshot!(name, rendered) });
    }
}

//! What each overlay renders to, against golden files.

use std::{env, fs};

use serde_json::json;

use crate::kustomize::{AGENT_OVERLAYS, GATEWAY_OVERLAYS, OVERLAYS, identity, kustomize, parse, root};

#[test]
fn the_golden_files_are_up_to_date() {
    for overlay in OVERLAYS.into_iter().chain(AGENT_OVERLAYS).chain(GATEWAY_OVERLAYS) {
        let rendered = kustomize(&root().join("manifests").join(overlay));
        let name = overlay.rsplit('/').next().expect("a name");
        let path = root().join(format!("tests/integration/manifests/golden/{name}.yaml"));
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(path.parent().expect("a folder")).expect("golden folder");
            fs::write(&path, &rendered).expect("golden file");
            continue;
        }
        let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // As data: another kustomize may order and wrap it differently.
        let (mut golden, mut rendered) = (parse(&golden), parse(&rendered));
        golden.sort_by_key(identity);
        rendered.sort_by_key(identity);
        let difference = json_patch::diff(&json!(golden), &json!(rendered));
        assert!(
            difference.0.is_empty(),
            "{} differs from what manifests/{overlay} renders to: {difference}\n\
             If that is meant: UPDATE_GOLDEN=1 cargo test --test integration-manifests",
            path.display()
        );
    }
}

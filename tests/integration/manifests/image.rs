//! The image, and exchanging it.

use std::process::Command;

use swansong_webhook::config::Strictness;

use crate::kustomize::{Rendered, kustomize, parse, root};

#[test]
fn the_image_is_pinned_and_replaceable() {
    for rendered in Rendered::all() {
        let container = rendered.container();
        assert_eq!(container["image"], format!("swansong:{}", env!("CARGO_PKG_VERSION")));
        assert_eq!(container["imagePullPolicy"], "IfNotPresent", "images are carried by hand");
    }
    for (image, expected) in [
        ("localhost/swansong:dev", Some("localhost/swansong:dev")),
        ("registry.example:5000/tools/swansong:0.1.0", Some("registry.example:5000/tools/swansong:0.1.0")),
        ("registry.example:5000/tools/swansong", None),
        ("swansong", None),
    ] {
        // `with-image` writes for a folder two levels below the root.
        let target = crate::kustomize::target();
        let folder = tempfile::tempdir_in(target).expect("a folder");
        let status = Command::new("manifests/with-image")
            .args(["overlays/strict", image])
            .arg(folder.path())
            .current_dir(root())
            .output()
            .expect("with-image runs");
        assert_eq!(status.status.success(), expected.is_some(), "{image}");
        if let Some(expected) = expected {
            let rendered = Rendered { overlay: "overlays/strict", objects: parse(&kustomize(folder.path())) };
            assert_eq!(rendered.container()["image"], expected);
            assert_eq!(rendered.config().strictness(), Strictness::Deny);
        }
    }
}

//! The shipped configuration.

use std::fs;

use swansong_inject::policy::{NodeReadiness, Policy};
use swansong_webhook::config::{Config, Strictness};

use crate::kustomize::{Rendered, root};

#[test]
fn the_shipped_configuration_is_the_default() {
    assert_eq!(Rendered::of("base").config(), Config::default());
    assert_eq!(Rendered::of("overlays/cert-manager").config(), Config::default());
    let strict = Rendered::of("overlays/strict").config();
    assert_eq!(strict.strictness(), Strictness::Deny);
    assert_eq!(strict.policy(), Config::default().policy());
    let ready = Rendered::of("overlays/node-readiness").config();
    let required = Policy { node_readiness: NodeReadiness::Require, ..Policy::default() };
    assert_eq!((ready.policy(), ready.strictness()), (&required, Strictness::Warn));
}

/// Removing the `# ` before a key doesn't change the effective configuration, except for the example of an image.
#[test]
fn the_commented_out_configuration_shows_the_defaults() {
    let text = fs::read_to_string(root().join("manifests/base/config.yaml")).expect("config.yaml");
    let is_key = |line: &str| {
        let line = line.trim_start().trim_start_matches("- ");
        line.split_once(':').is_some_and(|(key, rest)| {
            key.chars().all(|c| c.is_ascii_alphanumeric()) && (rest.is_empty() || rest.starts_with(' '))
        })
    };
    let shown: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# ")).filter(|line| is_key(line)).collect();
    let shown = shown.join("\n");
    for key in [
        "libraries:",
        "preload:",
        "ports:",
        "env:",
        "torchrunDefaults:",
        "strategies:",
        "nodeReadiness:",
        "manager:",
        "resetConfig:",
        "zeroTouch:",
        "strictness:",
    ] {
        assert!(shown.lines().any(|line| line.starts_with(key)), "{key} isn't shown");
    }
    let config = Config::parse(&shown).unwrap_or_else(|faults| panic!("{faults}\n{shown}"));
    let mut policy = config.policy().clone();
    assert_eq!(policy.image_rules.len(), 1);
    policy.image_rules.clear();
    assert_eq!((policy, config.strictness()), (Policy::default(), Strictness::default()));
}

//! The rights of `swansong doctor`.

use crate::kustomize::{Rendered, items, texts};

#[test]
fn doctor_may_only_read_and_no_secrets() {
    let doctor = Rendered::of("doctor");
    let roles: Vec<_> = ["ClusterRole", "Role"].iter().flat_map(|kind| doctor.of_kind(kind)).collect();
    assert_eq!(roles.len(), 3);
    for rule in roles.iter().flat_map(|role| items(&role["rules"])) {
        assert!(texts(&rule["verbs"]).iter().all(|verb| ["get", "list", "watch"].contains(verb)), "{rule}");
        assert!(!texts(&rule["resources"]).iter().any(|name| *name == "*" || *name == "secrets"), "{rule}");
    }
    // Requests to Pods only where Swansong's own are.
    let of_cluster = items(&doctor.one("ClusterRole")["rules"]).flat_map(|rule| texts(&rule["resources"]));
    assert!(of_cluster.into_iter().all(|resource| !resource.contains("proxy")));
}

//! Node affinity for ready nodes.

use super::*;
use crate::support::{Injected, undone};
use swansong_inject::node_readiness::{FIELD, WEIGHT};
use swansong_inject::policy::NodeReadiness;
use swansong_inject::report::{Action, ActionKind};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn policy(node_readiness: NodeReadiness) -> Policy {
    Policy { node_readiness, ..Policy::default() }
}

fn ready() -> Value {
    json!({"key": "swansong.dev/dump-ready", "operator": "In", "values": ["true"]})
}

fn zone() -> Value {
    json!({"key": "zone", "operator": "In", "values": ["a"], "futureField": {"x": [null]}})
}

fn with_affinity(affinity: &Value) -> Value {
    let mut object = ascend(json!({}));
    object["spec"]["affinity"] = affinity.clone();
    object
}

/// Injects; asserts that a second injection changes nothing and that the undo is exact.
fn inject_and_undo(object: &Value, readiness: NodeReadiness) -> Injected {
    let injected = run(WorkloadKind::Pod, object, &policy(readiness));
    let again = run(WorkloadKind::Pod, &injected.object, &policy(readiness));
    assert_eq!(again.paths(), Vec::<&str>::new(), "{}", injected.object);
    assert_eq!(undone(WorkloadKind::Pod, &injected.object), *object);
    injected
}

fn action(injected: &Injected) -> &Action {
    let mut actions = injected.outcome.templates[0].actions.iter();
    actions.find(|action| action.field == FIELD).expect("an action on the affinity")
}

fn action_and_reason(injected: &Injected) -> (ActionKind, Reason) {
    (action(injected).action, action(injected).reason)
}

#[test]
fn no_affinity_is_added_by_default() {
    let injected = pod(&with_affinity(&json!({"nodeAffinity": {}})));
    assert_eq!(injected.object["spec"]["affinity"], json!({"nodeAffinity": {}}));
    assert!(injected.outcome.templates[0].actions.is_empty());
}

#[test]
fn a_requirement_is_added_to_every_alternative() {
    let both = json!([{"matchExpressions": [ready()]}]);
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
    for (required, expected, kind, reason) in [
        (json!(null), both.clone(), ActionKind::Added, Reason::NodeReadiness),
        (
            json!([{"matchExpressions": [zone()]}]),
            json!([{"matchExpressions": [zone(), ready()]}]),
            ActionKind::Merged,
            Reason::NodeReadiness,
        ),
        (
            json!([{"matchExpressions": [zone()]}, {"matchFields": fields}, {"matchFields": fields, "matchExpressions": null}]),
            json!([{"matchExpressions": [zone(), ready()]}, {"matchFields": fields, "matchExpressions": [ready()]},
                   {"matchFields": fields, "matchExpressions": [ready()]}]),
            ActionKind::Merged,
            Reason::NodeReadiness,
        ),
        // Empty terms are left unchanged.
        (
            json!([null, {}, {"matchExpressions": []}, {"matchExpressions": [zone()]}]),
            json!([null, {}, {"matchExpressions": []}, {"matchExpressions": [zone(), ready()]}]),
            ActionKind::Merged,
            Reason::NodeReadiness,
        ),
        // The user requires it already.
        (both.clone(), both, ActionKind::Kept, Reason::AlreadyPresent),
        (
            json!([{"matchExpressions": [ready()]}, {"matchExpressions": [zone()]}]),
            json!([{"matchExpressions": [ready()]}, {"matchExpressions": [zone(), ready()]}]),
            ActionKind::Merged,
            Reason::NodeReadiness,
        ),
    ] {
        let mut affinity = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": required}}});
        if required.is_null() {
            affinity["nodeAffinity"][REQUIRED] = Value::Null;
        }
        let injected = inject_and_undo(&with_affinity(&affinity), NodeReadiness::Require);
        let now = &injected.object["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
        assert_eq!(*now, expected, "{required}");
        assert_eq!(action_and_reason(&injected), (kind, reason), "{required}");
        assert_eq!(injected.warned(), [], "{required}");
    }
}

/// Kubernetes refuses a selector without terms, and a term without requirements matches no node. A term of ours beside
/// them would allow nodes that the user's affinity excludes.
#[test]
fn a_selector_that_matches_nothing_is_kept_with_a_warning() {
    for required in [
        json!({}),
        json!({"nodeSelectorTerms": null}),
        json!({"nodeSelectorTerms": []}),
        json!({"nodeSelectorTerms": [null]}),
        json!({"nodeSelectorTerms": [{}, {"matchExpressions": null, "matchFields": []}]}),
    ] {
        let affinity = json!({"nodeAffinity": {REQUIRED: required}});
        let injected = inject_and_undo(&with_affinity(&affinity), NodeReadiness::Require);
        assert_eq!(injected.object["spec"]["affinity"], affinity);
        assert_eq!(action_and_reason(&injected), (ActionKind::Skipped, Reason::NodeSelectorMatchesNothing));
        assert_eq!(injected.warned(), [Reason::NodeSelectorMatchesNothing]);
        assert!(injected.outcome.warnings[0].message.contains("nodeSelectorTerms"));
    }
}

#[test]
fn a_preference_is_appended() {
    let ours = json!({"weight": WEIGHT, "preference": {"matchExpressions": [ready()]}});
    let theirs = json!({"weight": 7, "preference": {"matchExpressions": [zone()]}});
    for (preferred, expected, kind) in [
        (json!(null), json!([ours]), ActionKind::Added),
        (json!([]), json!([ours]), ActionKind::Merged),
        (json!([theirs]), json!([theirs, ours]), ActionKind::Merged),
        (json!([null, theirs]), json!([null, theirs, ours]), ActionKind::Merged),
    ] {
        let affinity = json!({"nodeAffinity": {PREFERRED: preferred}, "podAntiAffinity": {"x": 1}});
        let injected = inject_and_undo(&with_affinity(&affinity), NodeReadiness::Prefer);
        let now = &injected.object["spec"]["affinity"];
        assert_eq!(now["nodeAffinity"][PREFERRED], expected, "{preferred}");
        assert_eq!(now["podAntiAffinity"], json!({"x": 1}));
        assert_eq!(action_and_reason(&injected), (kind, Reason::NodeReadiness), "{preferred}");
        assert_eq!(action(&injected).value.as_deref(), Some("prefer, weight 50"));
    }
}

#[test]
fn missing_parents_are_created_and_removed_by_the_undo() {
    for readiness in [NodeReadiness::Prefer, NodeReadiness::Require] {
        for affinity in [
            json!(null),
            json!({}),
            json!({"nodeAffinity": null}),
            json!({"nodeAffinity": {}}),
            json!({"nodeAffinity": {REQUIRED: null, PREFERRED: null}}),
            json!({"nodeAffinity": null, "podAffinity": {}}),
            json!({"nodeAffinity": {"futureField": 1}}),
        ] {
            let injected = inject_and_undo(&with_affinity(&affinity), readiness);
            assert_eq!(
                action_and_reason(&injected),
                (ActionKind::Added, Reason::NodeReadiness),
                "{affinity}"
            );
        }
        let injected = inject_and_undo(&ascend(json!({})), readiness);
        assert_eq!(action_and_reason(&injected), (ActionKind::Added, Reason::NodeReadiness));
    }
}

#[test]
fn an_affinity_of_the_user_for_readiness_is_kept() {
    let not_false = json!({"key": "swansong.dev/dump-ready", "operator": "NotIn", "values": ["false"]});
    let term = json!({"matchExpressions": [not_false]});
    for (affinity, selector) in [
        (json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}), json!({})),
        (json!({"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": term}]}}), json!({})),
        (json!({}), json!({"swansong.dev/dump-ready": "unknown"})),
    ] {
        let mut object = with_affinity(&affinity);
        object["spec"]["nodeSelector"] = selector;
        let injected = inject_and_undo(&object, NodeReadiness::Prefer);
        assert_eq!(injected.object["spec"], inject_and_undo(&object, NodeReadiness::Off).object["spec"]);
        assert_eq!(action_and_reason(&injected), (ActionKind::Kept, Reason::UserValueKept));
        if affinity["nodeAffinity"][PREFERRED].is_null() {
            let injected = inject_and_undo(&object, NodeReadiness::Require);
            assert_eq!(action_and_reason(&injected), (ActionKind::Kept, Reason::UserValueKept));
        }
    }
    let mut object = ascend(json!({}));
    object["spec"]["nodeSelector"] = json!({"swansong.dev/dump-ready": "true"});
    let injected = inject_and_undo(&object, NodeReadiness::Require);
    assert_eq!(action_and_reason(&injected), (ActionKind::Kept, Reason::AlreadyPresent));
    assert_eq!(injected.object["spec"]["affinity"], Value::Null);
}

#[test]
fn a_pod_with_a_node_gets_no_affinity() {
    let mut object = ascend(json!({}));
    object["spec"]["nodeName"] = json!("node-1");
    let injected = inject_and_undo(&object, NodeReadiness::Require);
    assert_eq!(injected.object["spec"]["affinity"], Value::Null);
    assert_eq!(action_and_reason(&injected), (ActionKind::Skipped, Reason::NodeAlreadyChosen));
    object["spec"]["nodeName"] = json!("");
    let injected = inject_and_undo(&object, NodeReadiness::Require);
    assert_eq!(action_and_reason(&injected), (ActionKind::Added, Reason::NodeReadiness));
}

#[test]
fn a_pod_that_is_not_injected_gets_no_affinity() {
    for (key, value) in [("swansong.dev/inject", "false"), ("recover-strategy", "retry")] {
        let mut object = ascend(json!({}));
        object["metadata"]["annotations"][key] = json!(value);
        let injected = inject_and_undo(&object, NodeReadiness::Require);
        assert_eq!(injected.object, object);
    }
}

#[test]
fn every_template_gets_the_affinity_and_its_pods_need_none() {
    let template = json!({"spec": {"containers": [{"name": "ascend"}]}});
    let job = json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": "j", "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": "dump"}},
        "spec": {"replicaSpecs": {"Master": {"template": template}, "Worker": {"template": template}}},
    });
    let required = policy(NodeReadiness::Require);
    let injected = run(WorkloadKind::AscendJob, &job, &required);
    for replica in ["Master", "Worker"] {
        let template = &injected.object["spec"]["replicaSpecs"][replica]["template"];
        let terms = &template["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
        assert_eq!(*terms, json!([{"matchExpressions": [ready()]}]));
        let mut pod = template.clone();
        pod["kind"] = json!("Pod");
        pod["metadata"]["labels"] = json!({"replica-type": replica});
        let injected = run(WorkloadKind::Pod, &pod, &required);
        assert!(!injected.paths().iter().any(|path| path.contains("affinity")), "{replica}");
    }
    assert_eq!(undone(WorkloadKind::AscendJob, &injected.object), job);
}

#[test]
fn the_undo_keeps_later_changes_of_the_affinity() {
    let terms = |terms: Value| json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}});
    let injected = inject_and_undo(&ascend(json!({})), NodeReadiness::Require).object;
    for (now, expected) in [
        // A further alternative.
        (
            json!([{"matchExpressions": [ready()]}, {"matchExpressions": [zone()]}]),
            terms(json!([{"matchExpressions": [zone()]}])),
        ),
        (
            json!([{"matchExpressions": [zone(), ready()]}, {"matchExpressions": [ready()]}]),
            terms(json!([{"matchExpressions": [zone()]}])),
        ),
        // A further requirement in our term.
        (json!([{"matchExpressions": [ready(), zone()]}]), terms(json!([{"matchExpressions": [zone()]}]))),
        // A changed operator of our requirement.
        (
            json!([{"matchExpressions": [{"key": "swansong.dev/dump-ready", "operator": "Exists"}]}]),
            terms(json!([{"matchExpressions": [{"key": "swansong.dev/dump-ready", "operator": "Exists"}]}])),
        ),
    ] {
        let mut changed = injected.clone();
        changed["spec"]["affinity"] = terms(now);
        assert_eq!(undone(WorkloadKind::Pod, &changed)["spec"]["affinity"], expected);
    }
    let mut changed = injected.clone();
    changed["spec"].as_object_mut().unwrap().remove("affinity");
    assert_eq!(undone(WorkloadKind::Pod, &changed)["spec"]["affinity"], Value::Null);

    let mut changed = injected;
    changed["spec"]["affinity"]["podAffinity"] = json!({"x": 1});
    assert_eq!(undone(WorkloadKind::Pod, &changed)["spec"]["affinity"], json!({"podAffinity": {"x": 1}}));

    // The user removed the other requirement, and an empty term would match no node.
    let injected = inject_and_undo(
        &with_affinity(&terms(json!([{"matchExpressions": [zone()]}]))),
        NodeReadiness::Require,
    )
    .object;
    let mut changed = injected;
    changed["spec"]["affinity"] = terms(json!([{"matchExpressions": [ready()]}]));
    assert_eq!(undone(WorkloadKind::Pod, &changed)["spec"]["affinity"], json!({"nodeAffinity": {}}));

    let mut changed = inject_and_undo(&ascend(json!({})), NodeReadiness::Prefer).object;
    changed["spec"]["affinity"]["nodeAffinity"][PREFERRED][0]["weight"] = json!(80);
    let heavier = changed["spec"]["affinity"].clone();
    let undo = swansong_inject::undo::uninject(WorkloadKind::Pod, &changed.to_string()).unwrap();
    let [stays] = &undo.remaining[..] else { panic!("{:?}", undo.remaining) };
    assert!(stays.contains("preferred") && stays.contains("swansong.dev/dump-ready"), "{stays}");
    assert_eq!(undone(WorkloadKind::Pod, &changed)["spec"]["affinity"], heavier);
}

#[test]
fn wrong_types_in_an_affinity_name_their_field() {
    let error = |affinity: Value| {
        let object = with_affinity(&affinity).to_string();
        inject(WorkloadKind::Pod, &object, &Policy::default()).expect_err("refused").field
    };
    let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    assert_eq!(error(json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": {}}}})), field);
    assert_eq!(error(json!({"nodeAffinity": []})), "spec.affinity.nodeAffinity");
}

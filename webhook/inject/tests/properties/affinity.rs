//! Affinities of every shape, and how Kubernetes evaluates them.

use proptest::prelude::*;
use serde_json::{Value, json};
use swansong_inject::policy::NodeReadiness;

use crate::generators::{any_json, maybe, put};

const LABEL: &str = "swansong.dev/dump-ready";

pub(super) fn node_readiness() -> impl Strategy<Value = NodeReadiness> {
    prop_oneof![Just(NodeReadiness::Off), Just(NodeReadiness::Prefer), Just(NodeReadiness::Require)]
}

/// A requirement of labels; ours among them.
fn requirement() -> impl Strategy<Value = Value> {
    let key = prop_oneof![5 => Just("zone"), 1 => Just(LABEL)];
    let value = || prop_oneof![Just("true"), Just("a"), Just("b")];
    let values = prop::collection::vec(value(), 1..3);
    let operator = prop_oneof![Just("In"), Just("NotIn"), Just("Exists"), Just("DoesNotExist")];
    let any = (key, operator, values, maybe(any_json())).prop_map(|(key, operator, values, future)| {
        let mut requirement = json!({"key": key, "operator": operator});
        if operator.ends_with("In") {
            requirement["values"] = json!(values);
        }
        put(&mut requirement, "futureField", future);
        requirement
    });
    prop_oneof![8 => any, 1 => Just(ours())]
}

fn ours() -> Value {
    json!({"key": LABEL, "operator": "In", "values": ["true"]})
}

fn list(item: impl Strategy<Value = Value>, max: usize) -> impl Strategy<Value = Option<Value>> {
    maybe(prop::collection::vec(item, 0..max).prop_map(Value::from))
}

fn term() -> impl Strategy<Value = Value> {
    let fields = Just(json!({"key": "metadata.name", "operator": "In", "values": ["node-a"]}));
    let term = (list(requirement(), 3), list(fields, 2), prop::option::weighted(0.1, any_json())).prop_map(
        |(expressions, fields, future)| {
            let mut term = json!({});
            put(&mut term, "matchExpressions", expressions);
            put(&mut term, "matchFields", fields);
            put(&mut term, "futureField", future);
            term
        },
    );
    prop_oneof![9 => term, 1 => Just(Value::Null)]
}

fn node_affinity() -> impl Strategy<Value = Value> {
    let required =
        (list(term().boxed(), 4), prop::option::weighted(0.1, any_json())).prop_map(|(terms, future)| {
            let mut required = json!({});
            put(&mut required, "nodeSelectorTerms", terms);
            put(&mut required, "futureField", future);
            required
        });
    let preferred =
        (prop_oneof![Just(50), 1..101], maybe(term().boxed())).prop_map(|(weight, preference)| {
            let mut preferred = json!({"weight": weight});
            put(&mut preferred, "preference", preference);
            preferred
        });
    (maybe(required), list(preferred, 3), prop::option::weighted(0.1, any_json())).prop_map(
        |(required, preferred, future)| {
            let mut affinity = json!({});
            put(&mut affinity, "requiredDuringSchedulingIgnoredDuringExecution", required);
            put(&mut affinity, "preferredDuringSchedulingIgnoredDuringExecution", preferred);
            put(&mut affinity, "futureField", future);
            affinity
        },
    )
}

pub(super) fn affinity() -> BoxedStrategy<Value> {
    let pod_affinity = json!({"preferredDuringSchedulingIgnoredDuringExecution": []});
    (maybe(node_affinity().boxed()), maybe(Just(pod_affinity)))
        .prop_map(|(node, pod)| {
            let mut affinity = json!({});
            put(&mut affinity, "nodeAffinity", node);
            put(&mut affinity, "podAntiAffinity", pod);
            affinity
        })
        .boxed()
}

pub(super) fn node_selector() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => Just(json!({"zone": "a"})),
        1 => Just(json!({LABEL: "true", "zone": "a"})),
        1 => Just(json!({LABEL: "unknown"})),
        1 => Just(json!({LABEL: null})),
    ]
}

pub(super) fn node_name() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![8 => Just(None), 1 => Just(Some(json!(""))), 1 => Just(Some(json!("node-a")))]
}

/// A node, as far as affinities see it.
pub(super) fn node() -> impl Strategy<Value = Value> {
    let zone = prop_oneof![Just(json!({})), Just(json!({"zone": "a"})), Just(json!({"zone": "b"}))];
    let ready = prop_oneof![Just(None), Just(Some(json!("true"))), Just(Some(json!("unknown")))];
    (zone, ready, prop_oneof![Just("node-a"), Just("node-b")]).prop_map(|(mut labels, ready, name)| {
        put(&mut labels, LABEL, ready);
        json!({"name": name, "labels": labels})
    })
}

pub(super) fn has_readiness_term(object: &Value) -> bool {
    object["spec"].to_string().contains(LABEL)
}

/// Whether the required part of the affinity lets a pod run on the node, as Kubernetes documents it: terms are
/// alternatives, an empty one matches nothing.
pub(super) fn may_run_on(spec: &Value, node: &Value) -> bool {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_null() {
        return true;
    }
    let terms = required["nodeSelectorTerms"].as_array();
    terms.is_some_and(|terms| terms.iter().any(|term| term_matches(term, node)))
}

fn term_matches(term: &Value, node: &Value) -> bool {
    let items = |key: &str| term[key].as_array().map_or(&[][..], Vec::as_slice);
    let (expressions, fields) = (items("matchExpressions"), items("matchFields"));
    let named = |field: &Value| field["values"].as_array().is_some_and(|names| names.contains(&node["name"]));
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|requirement| holds(requirement, &node["labels"]))
        && fields.iter().all(named)
}

fn holds(requirement: &Value, labels: &Value) -> bool {
    let label = &labels[requirement["key"].as_str().unwrap_or_default()];
    let listed = requirement["values"].as_array().is_some_and(|values| values.contains(label));
    match requirement["operator"].as_str() {
        Some("In") => listed,
        Some("NotIn") => !listed,
        Some("Exists") => label.is_string(),
        _ => label.is_null(),
    }
}

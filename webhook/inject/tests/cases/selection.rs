//! Selection of containers.

use super::*;

fn chosen(object: &Value) -> Vec<String> {
    let outcome = pod(object).outcome;
    outcome.templates[0].containers.iter().map(|container| container.name.clone()).collect()
}

#[test]
fn the_default_choice_is_never_a_guess() {
    let npu = json!({"limits": {"huawei.com/Ascend910": "8"}});
    for (containers, expected) in [
        (json!([{"name": "x"}, {"name": "ascend"}]), vec!["ascend"]),
        (json!([{"name": "x"}, {"name": "y", "resources": npu}]), vec!["y"]),
        (json!([{"name": "x"}]), vec!["x"]),
        (json!([{"name": "x"}, {"name": "y"}]), vec![]),
    ] {
        assert_eq!(chosen(&pod_with(containers.clone())), expected, "{containers}");
    }
    let injected = pod(&pod_with(json!([{"name": "x"}, {"name": "y"}])));
    assert_eq!(injected.outcome.skip, Some(Reason::NoContainerChosen));
    assert!(injected.outcome.operations.is_empty());
    assert!(injected.outcome.warnings[0].message.contains("x, y"));
}

#[test]
fn the_annotation_selects_exactly_the_named_containers() {
    let mut object = pod_with(json!([{"name": "ascend"}, {"name": "y"}]));
    object["metadata"]["annotations"]["swansong.dev/containers"] = json!(" y , missing ");
    assert_eq!(chosen(&object), ["y"]);
    assert_eq!(pod(&object).warned(), [Reason::UnknownContainer]);
}

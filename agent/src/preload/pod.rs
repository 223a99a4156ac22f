//! The libraries that Swansong had preloaded into the containers of a Pod.

use swansong_api::annotations::INJECTED;
use swansong_api::env::LD_PRELOAD;
use swansong_api::preload::{FILE_NAMES, entries, file_name};
use swansong_api::record::{ContainerRecord, Record, RecordError};

use super::discovery::Discovery;
use super::launcher::Launcher;
use crate::node::PodObject;

/// A Pod that Swansong injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedPod {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// The containers with preloaded libraries, or whose launcher is checked.
    pub containers: Vec<InjectedContainer>,
    pub discovery: Option<Discovery>,
}

/// A container whose processes are inspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedContainer {
    pub name: String,
    /// The runtime's id without its scheme; `None` until the container is started.
    pub id: Option<String>,
    /// The libraries, as LD_PRELOAD lists them.
    pub libraries: Vec<String>,
    /// What its launcher needs.
    pub launcher: Launcher,
}

impl InjectedPod {
    /// Reads the record and the environment of a Pod. `None` if nothing has to be inspected.
    pub fn of(pod: &PodObject) -> Result<Option<Self>, RecordError> {
        let annotations = pod.metadata.annotations.as_ref();
        let record = annotations.and_then(|annotations| annotations.get(INJECTED));
        let record = record.map(|record| Record::parse(record)).transpose()?.unwrap_or_default();
        let containers = pod.spec.iter().flat_map(|spec| [&spec.containers, &spec.init_containers]);
        let containers = containers.flatten().flatten().filter_map(|container| {
            let record = record.containers.get(&container.name);
            let preload = record.zip(container.variable(LD_PRELOAD));
            let libraries = preload.map(|(record, preload)| expected(preload, record)).unwrap_or_default();
            let (launcher, name) = (Launcher::of(pod, container), container.name.clone());
            let id = pod.container_id(&name);
            (!libraries.is_empty() || !launcher.is_empty()).then_some(InjectedContainer {
                name,
                id,
                libraries,
                launcher,
            })
        });
        let containers: Vec<InjectedContainer> = containers.collect();
        let own = |text: &Option<String>| text.clone().unwrap_or_default();
        let (uid, namespace, name) =
            (own(&pod.metadata.uid), own(&pod.metadata.namespace), own(&pod.metadata.name));
        let discovery = Discovery::of(pod);
        Ok((!containers.is_empty()).then_some(Self { uid, namespace, name, containers, discovery }))
    }
}

/// The libraries that Swansong added, and the user's own entries for the same libraries, which Swansong keeps instead.
fn expected(preload: &str, record: &ContainerRecord) -> Vec<String> {
    let added = record.preload.as_ref().map_or(&[][..], |preload| &preload.libraries);
    let libraries = entries(preload).filter(|entry| {
        let is_added = added.iter().any(|library| library == entry);
        entry.starts_with('/') && (is_added || FILE_NAMES.contains(&file_name(entry)))
    });
    libraries.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use swansong_api::record::{ContainerRecord, PreloadRecord, Record};

    use super::*;

    const BOTH: &str = "/c/libmspti.so:/t/libtaskd.so";

    /// A Pod with a record as the webhook writes it.
    fn pod(preload: &Value, record: ContainerRecord) -> PodObject {
        let containers = BTreeMap::from([("ascend".to_owned(), record)]);
        let annotation = Record { containers, ..Record::default() }.into_annotation();
        serde_json::from_value(json!({
            "metadata": {"uid": "u", "namespace": "n", "name": "p", "annotations": {INJECTED: annotation}},
            "spec": {"containers": [
                {"name": "sidecar", "env": [{"name": LD_PRELOAD, "value": "/s.so"}]},
                {"name": "ascend", "env": [{"name": LD_PRELOAD, "value": "/ignored.so"}, {"name": LD_PRELOAD, "value": preload}, {"name": "A", "valueFrom": {}}]},
            ]},
            "status": {"containerStatuses": [{"name": "ascend", "containerID": "containerd://abc"}, {"name": "sidecar"}]},
        }))
        .expect("a Pod")
    }

    #[test]
    fn libraries_of_the_record_are_expected() {
        let added = |libraries: &[&str]| {
            let libraries = libraries.iter().map(|path| (*path).to_owned()).collect();
            ContainerRecord {
                preload: Some(PreloadRecord { libraries, original: None }),
                ..ContainerRecord::default()
            }
        };
        for (preload, record, expected) in [
            (BOTH, added(&["/c/libmspti.so", "/t/libtaskd.so"]), &["/c/libmspti.so", "/t/libtaskd.so"][..]),
            (
                "/c/my-mspti.so:/t/libtaskd.so",
                added(&["/c/my-mspti.so", "/t/libtaskd.so"]),
                &["/c/my-mspti.so", "/t/libtaskd.so"],
            ),
            (
                "/c/libmspti.so:/t/taskd2.so:/user.so",
                added(&["/c/libmspti.so", "/t/taskd2.so"]),
                &["/c/libmspti.so", "/t/taskd2.so"],
            ),
            // One is the user's own.
            (
                "/c/libmspti.so:/u/libtaskd.so",
                added(&["/c/libmspti.so"]),
                &["/c/libmspti.so", "/u/libtaskd.so"],
            ),
            (
                "/c/libmspti.so:/t/libtaskd.so:$(SWANSONG_ORIGINAL_LD_PRELOAD)",
                added(&["/c/libmspti.so", "/t/libtaskd.so"]),
                &["/c/libmspti.so", "/t/libtaskd.so"],
            ),
            // Both are the user's own.
            (
                "/c/libmspti.so /t/libtaskd.so /mine.so",
                ContainerRecord::default(),
                &["/c/libmspti.so", "/t/libtaskd.so"],
            ),
            // The annotation swansong.dev/skip-preload.
            ("/mine.so", ContainerRecord::default(), &[]),
        ] {
            let read = InjectedPod::of(&pod(&json!(preload), record)).expect(preload);
            let containers = read.map(|pod| pod.containers).unwrap_or_default();
            let libraries: Vec<&str> =
                containers.iter().flat_map(|c| &c.libraries).map(String::as_str).collect();
            assert_eq!(libraries, expected, "{preload}");
            assert!(containers.iter().all(|c| c.name == "ascend" && c.id.as_deref() == Some("abc")));
        }
    }

    #[test]
    fn pods_without_preloads_are_left_out() {
        let read = |pod: Value| InjectedPod::of(&serde_json::from_value(pod).expect("a Pod"));
        for pod in [json!({}), json!({"metadata": {}, "spec": null, "status": null})] {
            assert!(matches!(read(pod), Ok(None)));
        }
        assert!(matches!(InjectedPod::of(&pod(&Value::Null, ContainerRecord::default())), Ok(None)));
        assert!(read(json!({"metadata": {"annotations": {INJECTED: "yes"}}})).is_err());
    }
}

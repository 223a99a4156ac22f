//! What is expected of a pod: which libraries Swansong had preloaded into which container.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

/// The annotation that says what was injected (`webhook/src/inject/record.rs`).
const RECORD: &str = "swansong.dev/injected";

const LD_PRELOAD: &str = "LD_PRELOAD";

/// The libraries by their usual names: a user who wrote one of them needed none from Swansong.
const USUAL: [&str; 2] = ["libmspti.so", "libtaskd.so"];

/// A pod that Swansong injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedPod {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The containers into which libraries are preloaded.
    pub containers: Vec<InjectedContainer>,
}

/// A container into which libraries are preloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedContainer {
    /// Its name.
    pub name: String,
    /// The runtime's id without its scheme; `None` until the container is started.
    pub id: Option<String>,
    /// The libraries, as LD_PRELOAD has them.
    pub libraries: Vec<String>,
}

/// A Pod that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// Not the JSON of a Pod.
    #[error("it isn't a Pod: {0}")]
    Pod(serde_json::Error),
    /// Its annotation isn't a record.
    #[error("its annotation {RECORD} can't be read: {0}")]
    Record(serde_json::Error),
}

impl InjectedPod {
    /// Reads a Pod as the API server gives it. `None` if Swansong has preloaded nothing in it.
    pub fn read(json: &[u8]) -> Result<Option<Self>, PodError> {
        let pod: Pod<'_> = serde_json::from_slice(json).map_err(PodError::Pod)?;
        let metadata = pod.metadata.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let Some(record) = annotations.get(RECORD).and_then(Option::as_deref) else { return Ok(None) };
        let record: Record = serde_json::from_str(record).map_err(PodError::Record)?;
        let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
        let statuses: Vec<Status<'_>> = [status.container_statuses, status.init_container_statuses]
            .into_iter()
            .flat_map(Option::unwrap_or_default)
            .collect();
        let id = |name: &str| {
            let status = statuses.iter().find(|status| status.name == name)?;
            let (_, id) = status.container_id.as_deref()?.split_once("://")?;
            Some(id.to_owned())
        };
        let containers =
            [spec.containers, spec.init_containers].into_iter().flat_map(Option::unwrap_or_default);
        let containers: Vec<InjectedContainer> = containers
            .filter_map(|container| {
                let record = record.containers.get(&*container.name)?;
                let libraries = expected(preload(&container)?, record);
                let id = id(&container.name);
                (!libraries.is_empty()).then(|| InjectedContainer {
                    name: container.name.into_owned(),
                    id,
                    libraries,
                })
            })
            .collect();
        let own = |text: Option<Cow<'_, str>>| text.unwrap_or_default().into_owned();
        let (uid, namespace, name) = (own(metadata.uid), own(metadata.namespace), own(metadata.name));
        Ok((!containers.is_empty()).then_some(Self { uid, namespace, name, containers }))
    }
}

/// The entries of an LD_PRELOAD: ld.so splits at colons and white space (ld.so(8)).
pub(super) fn entries(preload: &str) -> impl Iterator<Item = &str> {
    preload.split(|c: char| c == ':' || c.is_ascii_whitespace()).filter(|entry| !entry.is_empty())
}

/// The file name of an entry.
pub(super) fn file_name(entry: &str) -> &str {
    entry.rsplit('/').next().unwrap_or(entry)
}

/// The kubelet takes the last of several entries.
fn preload<'a>(container: &'a Container<'_>) -> Option<&'a str> {
    let variables = container.env.as_deref()?;
    variables.iter().rev().find(|variable| variable.name == LD_PRELOAD)?.value.as_deref()
}

/// What Swansong added, and what the user had of the same.
fn expected(preload: &str, record: &ContainerRecord) -> Vec<String> {
    let libraries = record.preload.as_ref().map_or(&[][..], |preload| &preload.libraries);
    let ours = entries(preload).filter(|entry| {
        let added = libraries.iter().any(|library| library == entry);
        entry.starts_with('/') && (added || USUAL.contains(&file_name(entry)))
    });
    ours.map(str::to_owned).collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    containers: BTreeMap<String, ContainerRecord>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerRecord {
    preload: Option<PreloadRecord>,
}

/// Paths that were added to LD_PRELOAD.
#[derive(Debug, Deserialize)]
struct PreloadRecord {
    libraries: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
    #[serde(borrow)]
    status: Option<PodStatus<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    annotations: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
}

#[derive(Debug, Deserialize)]
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    env: Option<Vec<Variable<'a>>>,
}

#[derive(Debug, Deserialize)]
struct Variable<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus<'a> {
    #[serde(borrow)]
    container_statuses: Option<Vec<Status<'a>>>,
    #[serde(borrow)]
    init_container_statuses: Option<Vec<Status<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, rename = "containerID")]
    container_id: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use swansong_api::record::{ContainerRecord, PreloadRecord, Record};

    use super::*;

    const BOTH: &str = "/c/libmspti.so:/t/libtaskd.so";

    /// A Pod whose record the webhook itself writes.
    fn pod(preload: &Value, record: ContainerRecord) -> Vec<u8> {
        let containers = BTreeMap::from([("ascend".to_owned(), record)]);
        let annotation = Record { containers, ..Record::default() }.into_annotation();
        json!({
            "metadata": {"uid": "u", "namespace": "n", "name": "p", "annotations": {RECORD: annotation, "x": null}},
            "spec": {"containers": [
                {"name": "sidecar", "env": [{"name": LD_PRELOAD, "value": "/s.so"}]},
                {"name": "ascend", "env": [{"name": LD_PRELOAD, "value": "/ignored.so"}, {"name": LD_PRELOAD, "value": preload}, {"name": "A", "valueFrom": {}}]},
            ]},
            "status": {"containerStatuses": [{"name": "ascend", "containerID": "containerd://abc"}, {"name": "sidecar"}]},
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn what_the_webhook_added_is_expected() {
        let added = |libraries: &[&str]| {
            let libraries = libraries.iter().map(|path| (*path).to_owned()).collect();
            ContainerRecord {
                preload: Some(PreloadRecord { libraries, former: None }),
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
            // One was the user's own.
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
            // Nothing had to be added: the user had both.
            (
                "/c/libmspti.so /t/libtaskd.so /mine.so",
                ContainerRecord::default(),
                &["/c/libmspti.so", "/t/libtaskd.so"],
            ),
            // Opted out by swansong.dev/skip-preload.
            ("/mine.so", ContainerRecord::default(), &[]),
        ] {
            let read = InjectedPod::read(&pod(&json!(preload), record)).expect(preload);
            let containers = read.map(|pod| pod.containers).unwrap_or_default();
            let libraries: Vec<&str> =
                containers.iter().flat_map(|c| &c.libraries).map(String::as_str).collect();
            assert_eq!(libraries, expected, "{preload}");
            assert!(containers.iter().all(|c| c.name == "ascend" && c.id.as_deref() == Some("abc")));
        }
    }

    #[test]
    fn pods_that_are_not_ours_and_none() {
        for text in
            ["{}", r#"{"metadata":null,"spec":null,"status":null}"#, r#"{"metadata":{"annotations":null}}"#]
        {
            assert_eq!(InjectedPod::read(text.as_bytes()).expect(text), None);
        }
        let empty = pod(&Value::Null, ContainerRecord::default());
        assert_eq!(InjectedPod::read(&empty).expect("a Pod"), None);
        assert!(matches!(InjectedPod::read(b"[]"), Err(PodError::Pod(_))));
        let broken = br#"{"metadata":{"annotations":{"swansong.dev/injected":"yes"}}}"#;
        assert!(matches!(InjectedPod::read(broken), Err(PodError::Record(_))));
    }
}

//! The explanation as data, which `-o json` prints.

use serde::Serialize;
use swansong::manifest::objects::Object;
use swansong_api::annotations::INJECTED;
use swansong_inject::reason::Reason;
use swansong_inject::report::{Action, ActionKind, Outcome, TemplateReport};
use swansong_inject::workload::WorkloadKind;

use super::reset::Note;
use super::trainer::Trainer;

/// What admission can't add, in the terms of MindCluster's documentation, each with the field of the action that does it
/// on request.
const REMINDERS: [(&str, &str); 4] = [
    ("", "image: install the TaskD and MindIO-TTP wheels; CANN brings libmspti.so"),
    (
        "",
        "image: its own ENV LD_PRELOAD is hidden by the Pod's; write those libraries into the Pod's env, and they are joined",
    ),
    (
        "launcherPatch",
        "image, PyTorch: import taskd.python.adaptor.patch in torch's distributed/run.py, or set dump.launcherPatch",
    ),
    (
        "manager",
        "start script: when RANK is 0, start the TaskD Manager (manager.py) in the background before the training",
    ),
];

/// What discovery and the Manager's sidecar need. A failed init container blocks its Pod.
const SHELL: &str = "image: /bin/sh, which the added init containers run; without it the Pod doesn't start \
                     (`swansong image-check` shows it)";

/// The whole explanation.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) documents: Vec<Entry>,
    /// Manual steps for injected jobs.
    pub(super) reminders: Vec<&'static str>,
}

/// The explanation of one object.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    pub(super) file: String,
    /// Position in the file, from 0.
    pub(super) document: usize,
    /// JSON pointer in the document, for an item of a List.
    pub(super) path: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) strategies: Vec<String>,
    pub(super) injected: bool,
    #[serde(rename = "skipReason")]
    pub(super) skip: Option<Reason>,
    /// Number of added or changed fields.
    pub(super) changes: usize,
    /// Changes of the job's own metadata.
    pub(super) actions: Vec<Action>,
    pub(super) templates: Vec<TemplateReport>,
    pub(super) warnings: Vec<String>,
    /// Information that requires no action.
    pub(super) notes: Vec<String>,
    /// The training programs of its containers.
    pub(super) trainers: Vec<Trainer>,
    /// Whether a note is about a required object that isn't in the input.
    #[serde(skip)]
    pub(super) incomplete: bool,
    /// Common name of the kind.
    #[serde(skip)]
    pub(super) title: String,
}

impl Report {
    pub(super) fn new(documents: Vec<Entry>) -> Self {
        let any = documents.iter().any(|entry| entry.injected);
        let is_open = |(field, _): &&(&str, &str)| any && !documents.iter().any(|entry| entry.does(field));
        let mut reminders: Vec<_> = REMINDERS.iter().filter(is_open).map(|(_, reminder)| *reminder).collect();
        if documents.iter().any(|entry| entry.does("libraries") || entry.does("manager")) {
            reminders.push(SHELL);
        }
        Self { documents, reminders }
    }

    pub(super) fn has_warnings(&self) -> bool {
        self.documents.iter().any(|entry| !entry.warnings.is_empty())
    }
}

impl Entry {
    /// Whether an action on the field does something, at once or on each Pod.
    fn does(&self, field: &str) -> bool {
        let templates = self.templates.iter();
        let mut actions = templates.flat_map(|template| {
            template.containers.iter().flat_map(|container| &container.actions).chain(&template.actions)
        });
        actions.any(|action| {
            action.field == field
                && (action.action != ActionKind::Skipped
                    || matches!(action.reason, Reason::AddedToPods | Reason::ManagerAddedToPods))
        })
    }

    pub(super) fn new(
        file: &str,
        document: usize,
        object: &Object<'_>,
        outcome: Outcome,
        note: Option<Note>,
    ) -> Self {
        let actions = job_actions(object, &outcome);
        let has_changed_preload = object.workload == Ok(WorkloadKind::Pod) && changes_preload(&outcome);
        let containers = outcome.templates.iter().flat_map(|template| &template.containers);
        let fields = outcome.templates.iter().flat_map(|template| &template.actions);
        let changes = fields
            .chain(containers.flat_map(|container| &container.actions))
            .filter(|action| matches!(action.action, ActionKind::Added | ActionKind::Merged))
            .count();
        Self {
            file: file.to_owned(),
            document,
            path: object.path.clone(),
            kind: object.kind.clone(),
            name: object.name.clone(),
            namespace: object.namespace.clone(),
            injected: outcome.injected(),
            skip: outcome.skip,
            changes: changes + actions.len(),
            actions,
            warnings: outcome
                .warnings
                .iter()
                // The whole report on the trainer, which knows the files of the input too, takes their place.
                .filter(|warning| !warning.reason.is_of_trainer())
                .map(ToString::to_string)
                .collect(),
            strategies: outcome.strategies,
            templates: outcome.templates,
            incomplete: note.as_ref().is_some_and(|note| !note.sound),
            notes: outcome
                .notes
                .iter()
                .map(ToString::to_string)
                .chain(note.into_iter().map(|note| note.text))
                .chain(has_changed_preload.then(|| APPLY_AGAIN.to_owned()))
                .collect(),
            trainers: Vec::new(),
            title: title(object),
        }
    }
}

/// For a Pod whose own `LD_PRELOAD` is changed. The API server refuses the original's `apply`, which would change it back.
const APPLY_AGAIN: &str = "PreloadMerged: a second `kubectl apply` of this file fails while the Pod exists, since a Pod's \
     LD_PRELOAD can't be changed back: delete the Pod first, or apply the output of `swansong inject`";

/// Whether the injection changes an existing `LD_PRELOAD`.
fn changes_preload(outcome: &Outcome) -> bool {
    let containers = outcome.templates.iter().flat_map(|template| &template.containers);
    containers
        .flat_map(|container| &container.actions)
        .any(|action| action.field == "env.LD_PRELOAD" && action.action == ActionKind::Merged)
}

fn title(object: &Object<'_>) -> String {
    match object.workload {
        Ok(WorkloadKind::VolcanoJob) => "Volcano Job".to_owned(),
        Err(Reason::KindMissing) => "object without kind".to_owned(),
        _ => object.kind.clone(),
    }
}

/// The changes to a job's own metadata, from the operations.
fn job_actions(object: &Object<'_>, outcome: &Outcome) -> Vec<Action> {
    let mut actions = Vec::new();
    if !matches!(object.workload, Ok(kind) if kind != WorkloadKind::Pod) {
        return actions;
    }
    for operation in &outcome.operations {
        let Some(inside) = operation.path.strip_prefix("/metadata/") else { continue };
        let Some(value) = &operation.value else { continue };
        let value: serde_json::Value = serde_json::from_str(value.get()).unwrap_or_default();
        let (map, members) = match (inside.split_once('/'), value) {
            (Some((map, key)), value) => (map, vec![(key.replace("~1", "/").replace("~0", "~"), value)]),
            (None, serde_json::Value::Object(members)) => (inside, members.into_iter().collect()),
            (None, _) => continue,
        };
        for (key, value) in members.into_iter().filter(|(key, _)| key != INJECTED) {
            let there = object.metadata(map).is_some_and(|map| map.get(&key).is_some());
            actions.push(Action {
                field: format!("{map}.{key}").into(),
                action: if there { ActionKind::Merged } else { ActionKind::Added },
                value: value.as_str().map(str::to_owned),
                reason: if there { Reason::StrategyNormalised } else { Reason::Required },
            });
        }
    }
    actions
}

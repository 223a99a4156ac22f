//! Checks whether a job's `reset-config-<job>` is in the same input.
//!
//! ClusterD reads this ConfigMap after it ordered the ranks on a faulty node to be killed. Without it, or
//! without a valid `reset.json`, nothing is saved. In a cluster the reset-config controller creates it.

use swansong::manifest::data::Data;
use swansong::manifest::objects::Object;
use swansong_clusterd::reset_config::{self, LABEL, RESET_JSON};
use swansong_inject::report::Outcome;
use swansong_inject::workload::WorkloadKind;

/// A note about a job's ConfigMap.
#[derive(Debug)]
pub(super) struct Note {
    /// The text of the note.
    pub(super) text: String,
    /// Whether the ConfigMap is in the input and valid.
    pub(super) sound: bool,
}

/// The note about the ConfigMap of a job with the strategy `dump`; none for other objects.
pub(super) fn note<'o, 'd: 'o>(
    object: &Object<'_>,
    outcome: &Outcome,
    mut all: impl Iterator<Item = &'o Object<'d>>,
) -> Option<Note> {
    let is_job = matches!(object.workload, Ok(WorkloadKind::AscendJob | WorkloadKind::VolcanoJob));
    if !is_job || !outcome.strategies.iter().any(|strategy| strategy == "dump") {
        return None;
    }
    if object.metadata("name").and_then(Data::as_str).is_none_or(str::is_empty) {
        let text = "the job has no name yet: without a ConfigMap reset-config-<name of the job> ClusterD kills the \
                    ranks at a fault and saves nothing";
        return Some(Note { text: text.to_owned(), sound: false });
    }
    let name = reset_config::name_for(&object.name);
    let found = all.find(|other| {
        let same =
            other.namespace == object.namespace || other.namespace.is_empty() || object.namespace.is_empty();
        other.kind == "ConfigMap" && other.name == name && same
    });
    let Some(config_map) = found else {
        let text = format!(
            "ConfigMap {name} isn't in this input: Swansong's reset-config controller creates it in the cluster. Where \
             that doesn't run, create it in the job's namespace with label reset: \"true\", data reset.json: \
             '{{\"status\":\"initializing\"}}' and checkCode: \"\": without it ClusterD kills the ranks at a fault \
             and saves nothing"
        );
        return Some(Note { text, sound: false });
    };
    let mut faults = faults(config_map);
    if config_map.namespace != object.namespace {
        faults.push("only one of job and ConfigMap has a namespace: apply both to the same one".to_owned());
    }
    let sound = faults.is_empty();
    let text = if sound {
        format!("ConfigMap {name} is in this input and valid")
    } else {
        format!("ConfigMap {name} is in this input, but {}", faults.join("; "))
    };
    Some(Note { text, sound })
}

fn faults(config_map: &Object<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let label = config_map.metadata("labels").and_then(|labels| labels.get(LABEL.0)).and_then(Data::as_str);
    if label != Some(LABEL.1) {
        faults.push("lacks the label reset: \"true\"".to_owned());
    }
    let text = config_map.data.get("data").and_then(|data| data.get(RESET_JSON)).and_then(Data::as_str);
    if let Err(why) = reset_config::read(text) {
        faults.push(format!("it {why}: ClusterD saves nothing"));
    }
    faults
}

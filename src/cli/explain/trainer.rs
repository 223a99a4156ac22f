//! Whether the training programs of a job can save, with the scripts that are in the same input.

use serde::Serialize;
use swansong::manifest::data::Data;
use swansong::manifest::objects::Object;
use swansong::manifest::source::Document;
use swansong_inject::policy::DEFAULT_SAVE_LIMIT;
use swansong_inject::report::Outcome;
use swansong_inject::workload::WorkloadKind;
use swansong_trainer::{Finding, Report, Setting, Source, read_command};

use super::report::Entry;
use crate::cli::files::Input;
use crate::cli::trainer_text::is_warning;

/// A file that a container may read.
pub(super) struct File {
    path: String,
    text: String,
}

/// Scripts, programs and MindFormers' YAML files of the input.
pub(super) fn files(
    inputs: &[Input],
    documents: &[Vec<Document>],
    scripts: &[(String, String)],
) -> Vec<File> {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let is_object =
        |documents: &[Document]| documents.iter().any(|document| document.data.get("kind").is_some());
    let configurations =
        inputs.iter().zip(documents).filter(|(_, documents)| !is_object(documents)).map(|(input, _)| input);
    scripts
        .iter()
        .map(|(path, text)| file(path, text))
        .chain(configurations.map(|input| file(&input.name, &input.source.text)))
        .collect()
}

/// What saving has to keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    save_limit_seconds: u64,
    /// Bytes a second.
    storage_rate: Option<u64>,
}

impl Limits {
    /// The limit of the configuration or MindIO's own, in seconds, and the speed of the storage in bytes a second.
    pub(super) fn new(save_limit: Option<u16>, storage_rate: Option<u64>) -> Self {
        Self { save_limit_seconds: u64::from(save_limit.unwrap_or(DEFAULT_SAVE_LIMIT)), storage_rate }
    }
}

/// The training program of a container.
#[derive(Debug, Serialize)]
pub(super) struct Trainer {
    /// JSON pointer of the template.
    template: String,
    container: String,
    #[serde(flatten)]
    pub(super) report: Report,
}

impl Trainer {
    pub(super) fn place(&self) -> String {
        format!("container {}", self.container)
    }
}

/// The trainers of an object, each only once if templates have the same.
pub(super) struct Trainers(Vec<Trainer>);

impl Trainers {
    pub(super) fn of(
        object: &Object<'_>,
        outcome: &Outcome,
        objects: &[&Object<'_>],
        files: &[File],
        limits: Limits,
    ) -> Self {
        let mut trainers: Vec<Trainer> = Vec::new();
        if !outcome.injected() {
            return Self(trainers);
        }
        let npus = outcome.templates.iter().map(|template| npus(object, &template.path)).sum::<u64>();
        for template in &outcome.templates {
            let Some(spec) = pointer(object.data, &template.path).and_then(|template| template.get("spec"))
            else {
                continue;
            };
            for container in items(spec.get("containers")) {
                let name = container.get("name").and_then(Data::as_str).unwrap_or_default();
                if !template.containers.iter().any(|chosen| chosen.name == name) {
                    continue;
                }
                let Some(report) = read(object, spec, container, objects, files, npus, limits) else {
                    continue;
                };
                if !trainers.iter().any(|other| other.container == name && other.report == report) {
                    trainers.push(Trainer {
                        template: template.path.clone(),
                        container: name.to_owned(),
                        report,
                    });
                }
            }
        }
        Self(trainers)
    }

    pub(super) fn add_to(self, entry: &mut Entry) {
        for trainer in &self.0 {
            let shown = |finding: &Finding| {
                let Finding { reason, message, file, line } = finding;
                let place = match (file.as_str(), *line) {
                    ("", _) => String::new(),
                    (file, 0) => format!("{file}: "),
                    (file, line) => format!("{file}:{line}: "),
                };
                format!("{reason}: {}: {place}{message}", trainer.place())
            };
            for finding in trainer.report.all_findings() {
                let list = if is_warning(finding) { &mut entry.warnings } else { &mut entry.notes };
                let text = shown(finding);
                if !list.contains(&text) {
                    list.push(text);
                }
            }
        }
        entry.trainers = self.0;
    }
}

/// What the command of a container shows; `None` without a command, which the image has then.
fn read(
    object: &Object<'_>,
    spec: &Data,
    container: &Data,
    objects: &[&Object<'_>],
    files: &[File],
    npus: u64,
    limits: Limits,
) -> Option<Report> {
    let words = items(container.get("command")).iter().chain(items(container.get("args")));
    let words: Vec<&str> = words.filter_map(Data::as_str).collect();
    if words.is_empty() {
        return None;
    }
    let mounted = mounted(object, spec, container, objects);
    let mounted = mounted.iter().map(|(path, text)| Source { path, text });
    let sources: Vec<Source<'_>> =
        files.iter().map(|File { path, text }| Source { path, text }).chain(mounted).collect();
    let number = npus.to_string();
    let mut variables: Vec<(&str, Option<&str>)> = Vec::new();
    let is_ascend_job = object.workload == Ok(WorkloadKind::AscendJob);
    if is_ascend_job && npus > 0 {
        // ascend-operator counts processes.
        variables.extend([("WORLD_SIZE", Some(number.as_str())), ("MS_WORKER_NUM", Some(number.as_str()))]);
    }
    for entry in items(container.get("env")) {
        if let Some(name) = entry.get("name").and_then(Data::as_str) {
            let value = entry.get("value").and_then(Data::as_str).filter(|value| !value.contains("$("));
            variables.push((name, value));
        }
    }
    let setting = Setting {
        sources: &sources,
        variables: &variables,
        has_unknown_variables: !items(container.get("envFrom")).is_empty(),
        has_operator_variables: is_ascend_job,
        npus: (npus > 0).then_some(npus),
        save_limit_seconds: limits.save_limit_seconds,
        storage_rate: limits.storage_rate,
    };
    Some(read_command(&words, &setting))
}

/// The files that a container mounts from ConfigMaps of the input, by their path.
fn mounted(
    object: &Object<'_>,
    spec: &Data,
    container: &Data,
    objects: &[&Object<'_>],
) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for mount in items(container.get("volumeMounts")) {
        let (Some(name), Some(path)) = (text(mount, "name"), text(mount, "mountPath")) else { continue };
        let volume = items(spec.get("volumes")).iter().find(|volume| text(volume, "name") == Some(name));
        let Some(source) = volume.and_then(|volume| volume.get("configMap")) else { continue };
        let config_map = objects.iter().find(|other| {
            other.kind == "ConfigMap"
                && Some(other.name.as_str()) == text(source, "name")
                && (other.namespace == object.namespace
                    || other.namespace.is_empty()
                    || object.namespace.is_empty())
        });
        let Some(Data::Mapping(data)) = config_map.and_then(|config_map| config_map.data.get("data")) else {
            continue;
        };
        for (key, value) in data {
            let item = items(source.get("items")).iter().find(|item| text(item, "key") == Some(key));
            let file = item.and_then(|item| text(item, "path")).unwrap_or(key);
            let path = match text(mount, "subPath") {
                Some(sub_path) if sub_path == file => path.to_owned(),
                Some(_) => continue,
                None => format!("{}/{file}", path.trim_end_matches('/')),
            };
            found.extend(value.as_str().map(|text| (path, text.to_owned())));
        }
    }
    found
}

/// The NPUs of all Pods of a template.
fn npus(object: &Object<'_>, path: &str) -> u64 {
    let holder = path.rsplit_once('/').map_or("", |(holder, _)| holder);
    let number = |data: Option<&Data>| match data {
        Some(Data::Number(text) | Data::String(text)) => text.parse::<u64>().ok(),
        _ => None,
    };
    let replicas =
        pointer(object.data, holder).and_then(|holder| number(holder.get("replicas"))).unwrap_or(1);
    let Some(spec) = pointer(object.data, path).and_then(|template| template.get("spec")) else { return 0 };
    let of_container = |container: &Data| -> u64 {
        let Some(Data::Mapping(limits)) =
            container.get("resources").and_then(|resources| resources.get("limits"))
        else {
            return 0;
        };
        let npus = limits.iter().filter(|(name, _)| name.starts_with("huawei.com/"));
        npus.filter_map(|(_, value)| number(Some(value))).sum()
    };
    items(spec.get("containers")).iter().map(of_container).sum::<u64>().saturating_mul(replicas)
}

fn text<'d>(data: &'d Data, key: &str) -> Option<&'d str> {
    data.get(key).and_then(Data::as_str)
}

fn items(data: Option<&Data>) -> &[Data] {
    match data {
        Some(Data::Sequence(items)) => items,
        _ => &[],
    }
}

/// The part of an object at a JSON pointer.
fn pointer<'d>(data: &'d Data, path: &str) -> Option<&'d Data> {
    path.split('/').filter(|part| !part.is_empty()).try_fold(data, |data, part| match data {
        Data::Sequence(items) => items.get(part.parse::<usize>().ok()?),
        data => data.get(&part.replace("~1", "/").replace("~0", "~")),
    })
}

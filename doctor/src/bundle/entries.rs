//! The files of a bundle, without secrets.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::{Value, json};

use super::timeline::timeline;
use super::{Material, Redactor};
use crate::checks;
use crate::fault_course;
use crate::report::Report;
use crate::snapshot::{Job, Seen, Snapshot};

/// No log has more bytes in a bundle.
const MOST_OF_A_LOG: usize = 1 << 20;

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: String,
    pub content: Vec<u8>,
}

/// Collects files. Objects come first, so that their secrets are known when texts are written.
#[derive(Debug, Default)]
struct Files {
    redactor: Redactor,
    objects: Vec<(String, Value)>,
    texts: Vec<Entry>,
}

impl Files {
    fn object(&mut self, path: String, object: &impl Serialize) {
        // Objects that were read as JSON can be written as such.
        let mut value = serde_json::to_value(object).unwrap_or_default();
        self.redactor.object(&mut value);
        self.objects.push((path, value));
    }

    fn seen(&mut self, path: String, object: &Seen<impl Serialize>) {
        if let Seen::Read(object) = object {
            self.object(path, object);
        }
    }

    fn json(&mut self, path: String, value: &impl Serialize) {
        let mut value = serde_json::to_value(value).unwrap_or_default();
        self.redactor.strings(&mut value);
        self.texts.push(Entry { path, content: serde_json::to_vec_pretty(&value).unwrap_or_default() });
    }

    fn text(&mut self, path: String, text: &str) {
        self.texts.push(Entry { path, content: self.redactor.text(text).into_bytes() });
    }
}

/// The files of a bundle, the most important first.
pub fn entries(material: &Material) -> Vec<Entry> {
    let mut files = Files::default();
    for (path, pod) in material.pods.iter().map(|pod| (pod_path(pod), pod)) {
        files.object(path, pod);
    }
    objects(&mut files, &material.snapshot);
    let report = Report::new(checks::run(&material.snapshot));
    files.text("README.txt".to_owned(), &readme(material));
    files.text("doctor.txt".to_owned(), &report.text(true).to_string());
    files.json("doctor.json".to_owned(), &report);
    files.json("versions.json".to_owned(), &versions(material));
    for course in &material.courses {
        let name = course.job.replace('/', "-");
        files.text(format!("last-fault/{name}.txt"), &fault_course::Text(course).to_string());
        files.json(format!("last-fault/{name}.json"), course);
    }
    files.text("timeline.txt".to_owned(), &timeline(material));
    let mut events: Vec<Value> =
        material.events.iter().map(|event| serde_json::to_value(event).unwrap_or_default()).collect();
    for event in &mut events {
        files.redactor.object(event);
    }
    files.json("events.json".to_owned(), &events);
    for (node, status) in &material.agents {
        if let Seen::Read(status) = status {
            files.json(format!("agents/{node}.json"), status);
        }
    }
    let Files { redactor, objects, mut texts } = files;
    texts.extend(objects.into_iter().map(|(path, mut value)| {
        redactor.known_strings(&mut value);
        Entry { path, content: serde_json::to_vec_pretty(&value).unwrap_or_default() }
    }));
    let logs = material.logs.iter().filter_map(|(namespace, source, log)| {
        let path = format!("logs/{namespace}/{}/{}.log", source.pod, source.container);
        Some(Entry { path, content: redactor.text(last_part(log.read()?)).into_bytes() })
    });
    texts.extend(logs);
    texts
}

/// The end of a log, from the beginning of a line on.
fn last_part(log: &str) -> &str {
    let Some(mut start) = log.len().checked_sub(MOST_OF_A_LOG) else { return log };
    while !log.is_char_boundary(start) {
        start += 1;
    }
    let end = &log[start..];
    end.split_once('\n').map_or(end, |(_, lines)| lines)
}

fn pod_path(pod: &Pod) -> String {
    format!("objects/pods/{}/{}.json", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn objects(files: &mut Files, snapshot: &Snapshot) {
    if let Some(installation) = &snapshot.installation {
        let path = |name: &str| format!("objects/installation/{name}.json");
        files.seen(path("webhook-configuration"), &installation.configuration);
        files.seen(path("webhook-deployment"), &installation.deployment);
        files.seen(path("webhook-endpoints"), &installation.endpoints);
        files.seen(path("policies"), &installation.policies);
        files.seen(path("agents"), &installation.agents);
    }
    if let Some(cluster) = &snapshot.cluster {
        let path = |name: &str| format!("objects/mindcluster/{name}.json");
        files.seen(path("clusterd-endpoints"), &cluster.clusterd);
        files.seen(path("cluster-info"), &cluster.cluster_info);
        files.seen(path("queues"), &cluster.queues);
    }
    for job in &snapshot.jobs {
        of_job(files, job);
    }
    for node in &snapshot.nodes {
        let path = |name: &str| format!("objects/nodes/{}/{name}.json", node.name);
        files.seen(path("node"), &node.node);
        files.seen(path("device-plugin"), &node.device_info);
    }
}

fn of_job(files: &mut Files, job: &Job) {
    let path = |name: &str| format!("objects/jobs/{}/{}/{name}.json", job.namespace, job.name);
    if let Seen::Read(object) = &job.object {
        files.object(path("job"), &object.object);
    }
    files.seen(path("pod-group"), &job.group);
    files.seen(path("reset-config"), &job.reset_config);
    files.seen(path("job-summary"), &job.summary);
    files.seen(path("service"), &job.service);
    files.seen(path("endpoints"), &job.endpoints);
    for pod in job.pods.read().into_iter().flatten() {
        files.object(path(&format!("pods/{}", pod.name_any())), pod);
    }
}

fn versions(material: &Material) -> Value {
    let replicas = material.snapshot.installation.as_ref().and_then(|all| all.replicas.read());
    let replicas = replicas.into_iter().flatten();
    let agents = material.snapshot.nodes.iter().filter_map(|node| Some((&node.name, node.status.read()?)));
    let kubelet = |node: &crate::snapshot::NodeSnapshot| {
        let info = node.node.read()?.status.as_ref()?.node_info.as_ref()?;
        Some((node.name.clone(), format!("{}, {}", info.kubelet_version, info.container_runtime_version)))
    };
    json!({
        "doctor": env!("CARGO_PKG_VERSION"),
        "apiServer": material.api_server.read(),
        "webhook": replicas.map(|replica| (replica.name.clone(), json!(replica.version.read()))).collect::<serde_json::Map<_, _>>(),
        "agents": agents.map(|(node, status)| (node.clone(), json!(status.version))).collect::<serde_json::Map<_, _>>(),
        "kubelets": material.snapshot.nodes.iter().filter_map(kubelet).map(|(node, version)| (node, json!(version))).collect::<serde_json::Map<_, _>>(),
    })
}

fn readme(material: &Material) -> String {
    let mut text = format!(
        "A bundle of swansong doctor {}.\n\n\
         doctor.txt     every check of swansong doctor\n\
         last-fault/    the course of each job's last fault\n\
         timeline.txt   Events, changes of conditions, ends of containers and known lines of logs, by time (UTC)\n\
         events.json    Events of the jobs' namespaces and of Nodes\n\
         agents/        what each agent's /status shows\n\
         objects/       objects of the API server\n\
         logs/          the last lines of logs, each with its time\n\n\
         Each time is by the clock of the node where it was written; the agents' check `clock` in doctor.txt and agents/\n\
         compares these clocks. Removed are: values of variables but those of the dump, annotations of other programs,\n\
         and what has the form of a key, a token or a password. Secrets aren't read.\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut problems: Vec<String> = material.unread.clone();
    let agents = material.agents.iter().filter_map(|(node, status)| Some((node, status.known().err()?)));
    problems.extend(agents.map(|(node, why)| format!("the /status of the agent of node {node} {why}")));
    let logs = material
        .logs
        .iter()
        .filter_map(|(namespace, source, log)| Some((namespace, source, log.known().err()?)));
    problems.extend(logs.map(|(namespace, source, why)| {
        format!("the log of {namespace}/{}/{} {why}", source.pod, source.container)
    }));
    if !problems.is_empty() {
        text.push_str("\nNot in it:\n");
    }
    for problem in problems {
        // Writing into a String doesn't fail.
        let _ = writeln!(text, "- {problem}");
    }
    text
}

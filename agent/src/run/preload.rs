//! Repeats the scan of the processes of Pods, and reports settled verdicts.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use swansong_api::documented::Documented as _;

use std::sync::Arc;
use swansong_api::pod::LIBRARIES;
use swansong_api::pod_status::{PodStatus, TrainerStatus};
use swansong_faults::{NpuPod, unix_millis};
use swansong_image::{Finding, ImageCheck, Report, Status};
use swansong_runtime::events::{Event, EventSender, container_reference};
use swansong_runtime::supervisor::{Progress, TaskError};
use swansong_trainer as trainer;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::Context;
use crate::host::Machine;
use crate::pod_processes::PodProcesses;
use crate::preload::{
    ContainerVerdict, Debouncer, Discovery, DiscoveryReason, HookVerdict, ImageReports, Outcome, PodVerdict,
    ScanError, Verdict, scan,
};
use crate::readiness::truncate;
use crate::trainer::TrainerVerdict;

/// The annotation of Events with the verdict's reason.
const REASON: &str = "swansong.dev/reason";

/// By UID of the Pod, name of the container and kind of report.
type PodDebouncer = Debouncer<(String, String, &'static str), (Option<&'static str>, String)>;

/// Scans the processes of injected Pods, and the sockets of those with NPUs.
pub(super) async fn run(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let Context { shared, config, host_root, events, .. } = context;
    let proc = host_root.join("proc");
    let started = Instant::now();
    let mut debouncer = Debouncer::new(config.preload.grace);
    let mut images = ImageReports::default();
    loop {
        progress.alive();
        let pods = shared.pods.borrow().clone();
        let scan_started = Instant::now();
        let verdicts = if pods.is_empty() {
            Vec::new()
        } else {
            let (proc, grace) = (proc.clone(), config.preload.grace);
            let mut known = std::mem::take(&mut images);
            // If a container's file system hangs, this task waits and counts as stuck.
            let scanned = spawn_blocking(move || {
                let mut verdicts = scan(&proc, &pods, grace, Machine::HOST)?;
                known.attach(&proc, &pods, &mut verdicts);
                Ok::<_, ScanError>((verdicts, known))
            });
            let scanned = scanned.await.map_err(|panic| TaskError(panic.to_string()))?;
            let (verdicts, known) = scanned.map_err(|error| TaskError(error.to_string()))?;
            images = known;
            verdicts
        };
        let (processes, npu_pods) = (PodProcesses::new(proc.clone()), shared.npu_pods.borrow().clone());
        let running = npu_pods.iter().flat_map(|pods| pods.iter()).filter(|pod| pod.is_running);
        let running: Vec<NpuPod> = running.cloned().collect();
        let mut statuses = if running.is_empty() {
            // Without Pods no procfs is needed.
            Vec::new()
        } else {
            let statuses = spawn_blocking(move || processes.statuses(&running, unix_millis())).await;
            statuses
                .map_err(|panic| TaskError(panic.to_string()))?
                .map_err(|error| TaskError(error.to_string()))?
        };
        add_trainers(&mut statuses, &verdicts);
        shared.pod_statuses.send_replace(Arc::new(statuses));
        report(&mut debouncer, &verdicts, started.elapsed(), &events);
        shared.metrics.record_scan(&verdicts, scan_started.elapsed());
        shared.verdicts.send_replace(Arc::new(verdicts));
        progress.succeeded();
        sleep(config.preload.interval).await;
    }
}

/// Adds the verdicts on trainers to what `/status` shows of their Pods.
fn add_trainers(statuses: &mut [PodStatus], verdicts: &[PodVerdict]) {
    for status in statuses {
        let pod = verdicts.iter().find(|pod| pod.uid == status.uid);
        let container =
            pod.and_then(|pod| pod.containers.iter().find(|container| container.name == status.container));
        status.trainer = container.and_then(|container| container.trainer.as_ref()).map(|trainer| {
            TrainerStatus { verdict: trainer.outcome.to_string(), message: trainer.message.clone() }
        });
    }
}

fn report(debouncer: &mut PodDebouncer, verdicts: &[PodVerdict], now: Duration, events: &EventSender) {
    for pod in verdicts {
        if let Some(discovery) = &pod.discovery {
            let report = search_report(discovery);
            let key = (pod.uid.clone(), LIBRARIES.to_owned(), report.kind);
            let observed = (report.event, report.reason.clone());
            if debouncer.record(key, observed, report.is_good, now)
                && let Some(reason) = report.event
            {
                events.send(event(pod, LIBRARIES, reason, report));
            }
        }
        for container in &pod.containers {
            for report in reports(container) {
                let key = (pod.uid.clone(), container.name.clone(), report.kind);
                let observed = (report.event, report.reason.clone());
                if debouncer.record(key, observed, report.is_good, now)
                    && let Some(reason) = report.event
                {
                    events.send(event(pod, &container.name, reason, report));
                }
            }
        }
    }
    debouncer.retain(|(uid, name, _)| {
        let pod = verdicts.iter().find(|pod| pod.uid == *uid);
        pod.is_some_and(|pod| {
            name == LIBRARIES || pod.containers.iter().any(|container| container.name == *name)
        })
    });
}

/// What is said of a container.
struct ContainerReport {
    kind: &'static str,
    is_good: bool,
    /// The reason of the Event. An unknown verdict has none, since its cause is usually the agent's permissions.
    event: Option<&'static str>,
    reason: String,
    message: String,
}

fn search_report(discovery: &Discovery) -> ContainerReport {
    let is_good = discovery.reason == DiscoveryReason::LibrariesFound;
    ContainerReport {
        kind: "discovery",
        is_good,
        event: (!is_good).then_some(discovery.reason.as_str()),
        reason: discovery.reason.as_str().to_owned(),
        message: discovery.message.clone(),
    }
}

fn reports(container: &ContainerVerdict) -> Vec<ContainerReport> {
    let mut reports = Vec::new();
    if let Some(Verdict { outcome, reason, message, .. }) = &container.verdict {
        let event = match outcome {
            Outcome::Live => Some("PreloadLive"),
            Outcome::PartlyLive => Some("PreloadPartlyLive"),
            Outcome::NotLive => Some("PreloadNotLive"),
            Outcome::Unknown => None,
        };
        let (is_good, reason) = (*outcome == Outcome::Live, reason.as_str().to_owned());
        reports.push(ContainerReport { kind: "preload", is_good, event, reason, message: message.clone() });
    }
    if let Some(HookVerdict { is_active, reason, message }) = &container.launcher_hook {
        let event =
            is_active.map(|active| if active { "LauncherHookActive" } else { "LauncherHookNotActive" });
        let (is_good, reason) = (*is_active == Some(true), reason.as_str().to_owned());
        reports.push(ContainerReport { kind: "hook", is_good, event, reason, message: message.clone() });
    }
    if let Some(TrainerVerdict { outcome, reasons, message, .. }) = &container.trainer {
        let event = match outcome {
            trainer::Verdict::Can => Some("TrainerCanSave"),
            trainer::Verdict::Cannot => Some("TrainerCannotSave"),
            trainer::Verdict::Unknown => None,
        };
        let reason = reasons.first().map_or("Can", |reason| reason.as_str()).to_owned();
        let (is_good, message) = (*outcome == trainer::Verdict::Can, message.clone());
        reports.push(ContainerReport { kind: "trainer", is_good, event, reason, message });
    }
    if let Some(finding) = container.image.as_ref().and_then(known_defects) {
        let is_good = finding.status == Status::Ok;
        reports.push(ContainerReport {
            kind: "releases",
            is_good,
            event: (!is_good).then_some("KnownDefects"),
            reason: finding.check.to_string(),
            message: finding.message.clone(),
        });
    }
    let missing = container.missing_environment.join(", ");
    let event = (!missing.is_empty()).then_some("DumpEnvironmentMissing");
    let message = format!(
        "the processes lack {missing}, so they don't reach MindIO's controller, and nothing is saved: the Pod was created \
         while Swansong's webhook didn't answer; create it again, or export them in the start script"
    );
    reports.push(ContainerReport {
        kind: "environment",
        is_good: event.is_none(),
        event,
        reason: missing,
        message,
    });
    let problem = container.ld_so_preload.clone();
    reports.push(ContainerReport {
        kind: "ld-so-preload",
        is_good: problem.is_none(),
        event: problem.is_some().then_some("LdSoPreloadInvalid"),
        reason: "LdSoPreloadInvalid".to_owned(),
        message: problem.unwrap_or_default() + "; correct the image or the mount that the file is from",
    });
    reports
}

/// The finding about the releases of TaskD and MindIO in an image.
fn known_defects(image: &Report) -> Option<&Finding> {
    image.findings.iter().find(|finding| finding.check == ImageCheck::Releases)
}

fn event(pod: &PodVerdict, container: &str, reason: &'static str, report: ContainerReport) -> Event {
    let mut message = format!("{} ({})", report.message.trim_end_matches('.'), report.reason);
    truncate(&mut message);
    Event {
        regarding: container_reference(&pod.namespace, &pod.name, &pod.uid, container),
        warning: !report.is_good,
        reason,
        message,
        annotations: BTreeMap::from([(REASON, report.reason)]),
        is_state: true,
    }
}

//! Reads which templates request the dying checkpoint, and checks the spelling and place of the strategy.

use std::collections::HashSet;

use swansong_api::annotations::RECOVER_STRATEGY;
use swansong_api::env;
use swansong_api::labels::{PROCESS_RECOVER_ENABLE, SUB_HEALTHY_STRATEGY};
use swansong_api::record::Record;
use swansong_api::strategy::{self, KNOWN, Strategies};

use super::metadata::MetadataChanges;
use super::report::Outcome;
use super::view::{Container, Kept, Metadata, Object, Template};
use crate::policy::{DumpStrategy, Policy};
use crate::reason::Reason;
use crate::spelling;
use crate::workload::{LocatedTemplate, WorkloadKind};

/// What a template requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateRequest {
    /// Whether a strategy triggers the injection.
    pub(super) triggered: bool,
    pub(super) dump: DumpStrategy,
}

/// Which templates of an object request an injection.
#[derive(Debug)]
pub(super) struct InjectionRequest {
    /// By template, in the object's order.
    pub(super) templates: Vec<TemplateRequest>,
    any_strategy: bool,
}

impl InjectionRequest {
    /// Why the whole object is left unchanged, if it is.
    pub(super) fn skip_reason(&self) -> Option<Reason> {
        match (self.any_strategy, self.templates.iter().any(|template| template.triggered)) {
            (_, true) => None,
            (false, false) => Some(Reason::NoStrategy),
            (true, false) if self.templates.is_empty() => Some(Reason::NoTemplate),
            (true, false) => Some(Reason::StrategyWithoutDump),
        }
    }
}

/// Reads the strategies of the job and its templates, or of the Pod.
pub(super) fn read(
    kind: WorkloadKind,
    job: Option<&Metadata<'_>>,
    templates: &[LocatedTemplate<'_, '_>],
    policy: &Policy,
    outcome: &mut Outcome,
) -> InjectionRequest {
    let jobs = job.and_then(|metadata| metadata.annotation(RECOVER_STRATEGY)).map(Strategies::parse);
    let mut known = HashSet::new();
    if let Some(jobs) = &jobs {
        add_tokens(jobs, &mut known, outcome);
        check_spelling(jobs, outcome);
    }
    let job_triggered = jobs.as_ref().is_some_and(|jobs| jobs.triggered_by(&policy.triggers));
    if let Some(job) = job {
        check_keys(job, "", outcome);
    }
    let mut request =
        InjectionRequest { templates: Vec::with_capacity(templates.len()), any_strategy: jobs.is_some() };
    for located in templates {
        let metadata = located.template.metadata.present();
        if let Some(metadata) = metadata {
            check_keys(metadata, &located.path, outcome);
        }
        let own = metadata.and_then(|metadata| metadata.annotation(RECOVER_STRATEGY)).map(Strategies::parse);
        let mut triggered = job_triggered;
        if let Some(own) = &own {
            request.any_strategy = true;
            triggered |= own.triggered_by(&policy.triggers);
            if jobs.as_ref().is_none_or(|jobs| jobs.tokens() != own.tokens()) {
                add_tokens(own, &mut known, outcome);
                check_template(kind, jobs.as_ref(), own, located, outcome);
            }
        }
        // The marker has the job's strategy, which takes precedence over the Pod's own annotation.
        if kind == WorkloadKind::Pod
            && !triggered
            && let Some(marked) = operator_marker(located.template, policy)
        {
            triggered = true;
            outcome.strategies.push(marked.to_owned());
        }
        let dump = dump_strategy(job, [jobs.as_ref(), own.as_ref()], located.template);
        request.templates.push(TemplateRequest { triggered, dump });
    }
    if !kind.strategy_reaches_mindcluster() && kind != WorkloadKind::Pod && request.skip_reason().is_none() {
        outcome.warn(
            Reason::StrategyNotPropagated,
            "MindCluster doesn't read the strategy of this kind, so ClusterD won't order a checkpoint: \
             run the training as an AscendJob"
                .to_owned(),
        );
    }
    request
}

/// The part of `dump` in the lists of a job and its template, and in what ascend-operator wrote on a Pod.
fn dump_strategy(
    job: Option<&Metadata<'_>>,
    lists: [Option<&Strategies<'_>>; 2],
    template: &Template<'_>,
) -> DumpStrategy {
    let lists = || lists.into_iter().flatten();
    let marked = operator_strategies(template);
    if !marked.contains(&"dump") && !lists().any(|list| list.tokens().contains(&"dump")) {
        return DumpStrategy::Absent;
    }
    // ascend-operator marks `exit` as `recover`.
    let exits = lists().any(|list| list.tokens().contains(&"exit"));
    let is_known = |strategy: &&str| *strategy == "dump" || exits && *strategy == "recover";
    let hot_switch = job.and_then(|job| job.label(SUB_HEALTHY_STRATEGY)) == Some("hotSwitch");
    if lists().all(Strategies::is_dump_only) && marked.iter().all(is_known) && !hot_switch {
        DumpStrategy::Only
    } else {
        DumpStrategy::WithOthers
    }
}

/// Warns about keys of `metadata` at `path` that are probably mistakes.
fn check_keys(metadata: &Metadata<'_>, path: &str, outcome: &mut Outcome) {
    let place = if path.is_empty() { String::new() } else { format!(" on {path}") };
    for key in metadata.labels.present().into_iter().flat_map(Kept::keys) {
        if spelling::resembles_strategy(key) {
            outcome.warn(
                Reason::StrategyIsLabel,
                format!("label {key:?}{place} has no effect; write it as annotation {RECOVER_STRATEGY}"),
            );
        } else if spelling::is_option(key) {
            outcome.warn(
                Reason::OptionIsLabel,
                format!("label {key:?}{place} has no effect; write it as an annotation"),
            );
        }
    }
    for key in metadata.annotations.present().into_iter().flat_map(Kept::keys) {
        if key != RECOVER_STRATEGY && spelling::resembles_strategy(key) {
            outcome.warn(
                Reason::StrategyMisspelled,
                format!("annotation {key:?}{place} has no effect; rename it to {RECOVER_STRATEGY:?} if that is meant"),
            );
        } else if spelling::is_option(key)
            && let Err(nearest) = spelling::check_option(key)
        {
            let advice = nearest
                .map_or_else(|| "remove it".to_owned(), |nearest| format!("did you mean {nearest:?}?"));
            outcome.warn(Reason::OptionUnknown, format!("annotation {key:?}{place} is unknown; {advice}"));
        }
    }
}

/// The trigger in the variables that ascend-operator adds to a Pod.
fn operator_marker<'p>(pod: &Template<'_>, policy: &'p Policy) -> Option<&'p str> {
    let marked = operator_strategies(pod);
    // ascend-operator marks these as `recover`.
    let name = |trigger| match trigger {
        "recover-in-place" | "exit" => "recover",
        other => other,
    };
    let mut triggers = policy.triggers.iter().map(String::as_str);
    triggers.find(|trigger| marked.contains(trigger) || marked.contains(&name(trigger)))
}

/// The strategies in the variables that ascend-operator adds to a Pod (`env.go` `addEnvByStrategy`).
fn operator_strategies<'p>(pod: &'p Template<'_>) -> Vec<&'p str> {
    let containers = pod.spec.present().map_or(&[][..], |spec| spec.containers.items());
    containers.iter().flat_map(marks).collect()
}

fn marks<'c>(container: &'c Container<'_>) -> impl Iterator<Item = &'c str> {
    let pytorch = container.env_value(env::HIGH_AVAILABILITY).unwrap_or_default();
    // Releases 7.2 and 7.3 wrote the braces inside single quotes.
    let mindspore = container.env_value(env::MS_ENABLE_TFT).unwrap_or_default();
    let features = mindspore.split(['{', '}', ',', '\'', ' ']).filter_map(|feature| match feature {
        "TTP:1" => Some("dump"),
        "ARF:1" => Some("recover"),
        "UCE:1" => Some("retry"),
        _ => None,
    });
    pytorch.split(',').map(str::trim).filter(|token| !token.is_empty()).chain(features)
}

fn add_tokens(strategies: &Strategies<'_>, known: &mut HashSet<String>, outcome: &mut Outcome) {
    for token in strategies.tokens() {
        if !known.contains(*token) {
            known.insert((*token).to_owned());
            outcome.strategies.push((*token).to_owned());
        }
    }
}

/// Warns about blanks and unknown tokens.
fn check_spelling(strategies: &Strategies<'_>, outcome: &mut Outcome) {
    if strategies.is_padded() && !strategies.tokens().is_empty() {
        let normalised = strategies.normalised();
        outcome.warn(
            Reason::StrategyPadded,
            format!("annotation recover-strategy: MindCluster ignores tokens with blanks around them; write {normalised:?}"),
        );
    }
    check_tokens(strategies, outcome);
}

/// Replaces the advice to remove blanks by the report that they were removed.
fn report_rewritten(normalised: &str, outcome: &mut Outcome) {
    for warning in &mut outcome.warnings {
        if warning.reason == Reason::StrategyPadded {
            warning.reason = Reason::StrategyNormalised;
            warning.message = format!(
                "annotation recover-strategy was rewritten to {normalised:?}: MindCluster ignores tokens with blanks around them"
            );
        }
    }
}

fn check_tokens(strategies: &Strategies<'_>, outcome: &mut Outcome) {
    for token in strategies.unknown() {
        let known = KNOWN.join(", ");
        let advice = strategy::hint(token).map_or_else(|| format!("it knows {known}"), str::to_owned);
        outcome.warn(
            Reason::StrategyUnknownToken,
            format!(
                "annotation recover-strategy: MindCluster doesn't know {token:?} and ignores it; {advice}"
            ),
        );
    }
}

fn check_template(
    kind: WorkloadKind,
    jobs: Option<&Strategies<'_>>,
    own: &Strategies<'_>,
    located: &LocatedTemplate<'_, '_>,
    outcome: &mut Outcome,
) {
    check_tokens(own, outcome);
    if !kind.strategy_reaches_mindcluster() {
        return;
    }
    let path = &located.path;
    match jobs {
        None => outcome.warn(
            Reason::StrategyOnTemplateOnly,
            format!("annotation recover-strategy is on {path} only; MindCluster reads it from the job's own metadata.annotations: put it there"),
        ),
        Some(jobs) => outcome.warn(
            Reason::StrategyDiffers,
            format!(
                "annotation recover-strategy is {:?} on {path} but {:?} on the job, and MindCluster reads the job's",
                own.normalised(),
                jobs.normalised()
            ),
        ),
    }
}

/// Changes the job's own metadata to what MindCluster reads, and warns about what else the job lacks. Called only if at
/// least one template was injected. Returns whether the annotations fit.
pub(super) fn amend_job(
    kind: WorkloadKind,
    object: &Object<'_>,
    templates: &[LocatedTemplate<'_, '_>],
    policy: &Policy,
    outcome: &mut Outcome,
) -> bool {
    let Some(metadata) = object.metadata().present() else { return true };
    let mut changes = MetadataChanges::default();
    match kind {
        WorkloadKind::AscendJob => {
            let raw = metadata.annotation(RECOVER_STRATEGY).unwrap_or_default();
            let strategies = Strategies::parse(raw);
            // The record keeps the original list, so a long one isn't rewritten.
            if raw.len() <= 1024 && strategies.is_padded() && strategies.triggered_by(&policy.triggers) {
                let normalised = strategies.normalised();
                report_rewritten(&normalised, outcome);
                changes.rewritten.push((RECOVER_STRATEGY, raw.to_owned(), normalised));
            }
            if !templates.iter().any(|located| located.rank_zero == Some(true)) {
                outcome.warn(
                    Reason::NoRankZero,
                    "no replica type is Master, Scheduler or Chief, so ascend-operator makes no Service for rank 0 \
                     and other ranks can't reach the TaskD Manager: name the first replica type accordingly"
                        .to_owned(),
                );
            }
            if metadata.labels.present().is_none_or(|labels| labels.len == 0) {
                outcome.warn(
                    Reason::ProcessRecoverOff,
                    "the job has no label at all, so ascend-operator won't set process-recover-enable and ClusterD \
                     will answer 403: give it its labels (framework, ring-controller.atlas)"
                        .to_owned(),
                );
            }
        }
        WorkloadKind::VolcanoJob => {
            amend_volcano_job(metadata, &mut changes, outcome);
            warn_of_missing_operator(templates, outcome);
        }
        _ => return true,
    }
    changes.emit("", object.metadata(), Record::default(), &mut outcome.operations, &mut outcome.warnings)
}

fn amend_volcano_job(metadata: &Metadata<'_>, changes: &mut MetadataChanges, outcome: &mut Outcome) {
    match metadata.label(PROCESS_RECOVER_ENABLE) {
        None => changes.labels.push((PROCESS_RECOVER_ENABLE, "on")),
        Some("on") => {}
        Some(other) => outcome.warn(
            Reason::ProcessRecoverOff,
            format!("label {PROCESS_RECOVER_ENABLE} is {other:?}: ClusterD answers 403 and nothing will be saved; set it to \"on\""),
        ),
    }
}

fn warn_of_missing_operator(templates: &[LocatedTemplate<'_, '_>], outcome: &mut Outcome) {
    let mut containers = templates
        .iter()
        .filter_map(|located| located.template.spec.present())
        .flat_map(|spec| spec.containers.items());
    if !containers.any(|container| container.last_env(env::PROCESS_RECOVER).is_some()) {
        outcome.warn(
            Reason::VolcanoNoOperatorEnv,
            "ascend-operator adds no environment to a Volcano Job: set PROCESS_RECOVER=on, \
             ELASTIC_PROCESS_RECOVER_ENABLE=1, HIGH_AVAILABILITY=dump (MindSpore: MS_ENABLE_TFT={TTP:1}), the rank \
             variables and TTP_ADDR yourself"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_of_the_operator_is_an_exact_token() {
        for (name, value, expected) in [
            ("HIGH_AVAILABILITY", "dump", true),
            ("HIGH_AVAILABILITY", "dump,recover", true),
            ("HIGH_AVAILABILITY", "recover", false),
            ("HIGH_AVAILABILITY", "nodump", false),
            ("MS_ENABLE_TFT", "{TTP:1}", true),
            ("MS_ENABLE_TFT", "'{UCE:1,TTP:1}'", true),
            ("MS_ENABLE_TFT", "{TTP:10}", false),
            ("MS_ENABLE_TFT", "{ARF:1}", false),
            ("OTHER", "dump", false),
        ] {
            let json =
                format!(r#"{{"spec":{{"containers":[{{"env":[{{"name":"{name}","value":"{value}"}}]}}]}}}}"#);
            let Object::Pod(pod) = Object::parse(WorkloadKind::Pod, &json).expect("a pod") else {
                unreachable!()
            };
            assert_eq!(operator_marker(&pod, &Policy::default()).is_some(), expected, "{name}={value}");
        }
    }
}

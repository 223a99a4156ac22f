//! Objects of other kinds that request a dump.

use swansong::manifest::data::Data;
use swansong::manifest::objects::Object;
use swansong_api::annotations::RECOVER_STRATEGY;
use swansong_api::strategy::Strategies;
use swansong_inject::policy::Policy;
use swansong_inject::reason::Reason;
use swansong_inject::report::Warning;
use swansong_inject::spelling::resembles_strategy;

/// A warning for an object that Swansong doesn't inject although it or a template in it requests a dump.
pub(crate) fn warn_of_unsupported_kind(object: &Object<'_>, policy: &Policy) -> Option<Warning> {
    // Volcano copies the annotations of a job to its PodGroup.
    let is_unsupported = object.workload == Err(Reason::KindNotHandled) && object.kind != "PodGroup";
    (is_unsupported && requests_dump(object.data, policy))
        .then(|| Warning { reason: Reason::KindNotHandled, message: message(object) })
}

fn message(object: &Object<'_>) -> String {
    let kind = object.kind.as_str();
    let group = |it: &str| it.rsplit_once('/').map_or(String::new(), |(group, _)| group.to_owned());
    let api_version = object.data.get("apiVersion").and_then(Data::as_str).unwrap_or_default();
    // The kind is supported, but not in this API group.
    if matches!(kind, "AscendJob" | "Deployment" | "StatefulSet" | "CronJob" | "Job" | "Pod") {
        return format!(
            "annotation {RECOVER_STRATEGY} has no effect on a {kind} of the API group {:?}, which Swansong doesn't change; \
             correct its apiVersion, or run the training as an AscendJob of mindxdl.gitee.com",
            group(api_version)
        );
    }
    format!(
        "annotation {RECOVER_STRATEGY} has no effect on a {kind}, which Swansong doesn't change; run the training as an \
         AscendJob"
    )
}

/// Whether annotations anywhere in it request a dump, also by a misspelled key or as a label.
fn requests_dump(data: &Data, policy: &Policy) -> bool {
    let is_request = |key: &str, value: &Data| {
        let strategies = value.as_str().filter(|_| resembles_strategy(key)).map(Strategies::parse);
        strategies.is_some_and(|strategies| strategies.triggered_by(&policy.triggers))
    };
    match data {
        Data::Mapping(members) => members.iter().any(|(key, value)| match value {
            Data::Mapping(entries) if matches!(key.as_str(), "annotations" | "labels") => {
                entries.iter().any(|(key, value)| is_request(key, value))
            }
            value => requests_dump(value, policy),
        }),
        Data::Sequence(items) => items.iter().any(|item| requests_dump(item, policy)),
        _ => false,
    }
}

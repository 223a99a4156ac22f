//! Objects of other kinds that request a dump.

use swansong::manifest::data::Data;
use swansong::manifest::objects::Object;
use swansong_api::annotations::RECOVER_STRATEGY;
use swansong_api::strategy::Strategies;
use swansong_inject::policy::Policy;
use swansong_inject::reason::Reason;
use swansong_inject::report::Warning;

/// A warning for an object that Swansong doesn't inject although it or a template in it requests a dump.
pub(crate) fn warn_of_unsupported_kind(object: &Object<'_>, policy: &Policy) -> Option<Warning> {
    // Volcano copies the annotations of a job to its PodGroup.
    let is_unsupported = object.workload == Err(Reason::KindNotHandled) && object.kind != "PodGroup";
    (is_unsupported && requests_dump(object.data, policy)).then(|| Warning {
        reason: Reason::KindNotHandled,
        message: format!(
            "annotation {RECOVER_STRATEGY} has no effect on a {}, which Swansong doesn't change; run the training as an \
             AscendJob",
            object.kind
        ),
    })
}

fn requests_dump(data: &Data, policy: &Policy) -> bool {
    match data {
        Data::Mapping(members) => members.iter().any(|(key, value)| {
            let strategy =
                value.get(RECOVER_STRATEGY).and_then(Data::as_str).filter(|_| key == "annotations");
            strategy.is_some_and(|raw| Strategies::parse(raw).triggered_by(&policy.triggers))
                || requests_dump(value, policy)
        }),
        Data::Sequence(items) => items.iter().any(|item| requests_dump(item, policy)),
        _ => false,
    }
}

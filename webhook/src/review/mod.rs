//! From the body of an admission review to the body of its response: pure and synchronous.
//!
//! The object isn't deserialized into a tree: one pass over the body reads the envelope and the core's view of the object
//! (`request`). An object that the core can't process is admitted with a warning, unless the configuration says to
//! deny it.

mod audit;
mod head;
mod name;
mod request;
mod response;
mod trim;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use strum::{IntoStaticStr, VariantArray};

use self::head::Head;
use self::name::Object;
pub use self::name::Subject;
use self::request::{ReceivedObject, Request, text};
use crate::config::{Config, Strictness};
use crate::ready_nodes::ReadyNodes;
use swansong_api::labels::DUMP_READY;
use swansong_inject::policy::NodeReadiness;
use swansong_inject::reason::Reason;
use swansong_inject::report::{Outcome, Warning};
use swansong_inject::view::ShapeError;
use swansong_inject::workload::WorkloadKind;
use swansong_inject::{self, ObjectJson, node_readiness};

/// The only supported version of reviews, which every supported API server sends.
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The response to a review, with what logs and metrics need.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The body to send, JSON.
    pub body: Vec<u8>,
    /// The kind of the object.
    pub kind: Kind,
    /// The result of the review.
    pub verdict: Verdict,
    /// The reasons of all warnings, including those beyond the limit of the response.
    pub warnings: Vec<Reason>,
    /// Names the object.
    pub subject: Subject<'a>,
}

/// The kinds of object that logs and metrics distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
pub enum Kind {
    /// Pod of core/v1.
    Pod,
    /// AscendJob of mindxdl.gitee.com.
    AscendJob,
    /// Job of batch.volcano.sh.
    VolcanoJob,
    Other,
}

impl Kind {
    /// The name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The result of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Verdict {
    /// The object was changed.
    Injected,
    /// The object already had everything.
    Complete,
    /// There was nothing to do.
    Skipped(Reason),
    /// The core failed, and the object was admitted unchanged.
    Failed(Reason),
    /// The review couldn't be processed in time, and the object was admitted unchanged.
    Shed(Reason),
    /// As [`Verdict::Failed`] or [`Verdict::Shed`], but the request was denied; or the configuration denies such a trainer.
    Denied(Reason),
}

impl Verdict {
    /// The name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The reason, if the result has one.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Injected | Self::Complete => None,
            Self::Skipped(reason) | Self::Failed(reason) | Self::Shed(reason) | Self::Denied(reason) => {
                Some(reason)
            }
        }
    }

    /// Why the object was admitted or denied without being processed, if it was.
    pub const fn unprocessed(self) -> Option<Reason> {
        match self {
            Self::Injected | Self::Complete | Self::Skipped(_) => None,
            Self::Denied(reason) if reason.is_of_trainer() => None,
            Self::Failed(reason) | Self::Shed(reason) | Self::Denied(reason) => Some(reason),
        }
    }
}

/// Why a body can't be answered. The texts are sent to the client and aren't logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAReview {
    /// Not JSON, or not the shape of a review.
    #[error("the body is no AdmissionReview: {0}")]
    Unreadable(String),
    /// Another version or kind.
    #[error(
        "the body is {kind:?} of {api_version:?}; only AdmissionReview of admission.k8s.io/v1 is answered"
    )]
    Unknown {
        /// The body's `apiVersion`.
        api_version: String,
        /// The body's `kind`.
        kind: String,
    },
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// An answer is matched to its request by the uid.
    #[error("the request of the AdmissionReview has no uid")]
    NoUid,
}

/// Processes the review in `body`; `ready` says whether there are nodes that a job may be made to require.
///
/// # Errors
///
/// When the body isn't a review; the response is then HTTP 400.
pub fn answer<'a>(body: &'a [u8], config: &Config, ready: ReadyNodes) -> Result<Answer<'a>, NotAReview> {
    let policy = config.policy();
    answer_with(body, config.strictness(), |kind, object| {
        let mut outcome = match object {
            ReceivedObject::Read(object) => {
                let json = ObjectJson {
                    length: Request::object_length(body),
                    parse: &|| Request::object_tree(body),
                };
                swansong_inject::inject_object(kind, object, json, policy)
            }
            ReceivedObject::Raw(json) => swansong_inject::inject(kind, json.get(), policy)?,
        };
        if policy.node_readiness == NodeReadiness::Require {
            outcome.warnings.extend(may_stay_pending(&outcome, ready));
        }
        outcome.denied = denial(kind, &outcome, config);
        Ok(outcome)
    })
}

/// The denial that the configuration asks for. A Pod belongs to a job that was admitted, whose controller would create it
/// again and again.
fn denial(kind: WorkloadKind, outcome: &Outcome, config: &Config) -> Option<Warning> {
    if kind == WorkloadKind::Pod {
        return None;
    }
    let cause = config.denies(&outcome.trainer)?;
    let reason = Reason::of_trainer(cause)?;
    let warning = outcome.warnings.iter().find(|warning| warning.reason == reason)?;
    let message = &warning.message;
    Some(Warning { reason, message: format!("{message}; the configuration denies {cause}") })
}

/// The warning for Pods that are made to require a node that doesn't exist, or may not.
fn may_stay_pending(outcome: &Outcome, ready: ReadyNodes) -> Option<Warning> {
    let actions = outcome.templates.iter().flat_map(|template| &template.actions);
    let mut asked = actions.filter(|action| action.field == node_readiness::FIELD);
    // The user's own requirement needs no warning.
    asked.find(|action| matches!(action.reason, Reason::NodeReadiness | Reason::AlreadyPresent))?;
    let (reason, what) = match ready {
        ReadyNodes::Some => return None,
        ReadyNodes::None => (Reason::NoNodeReady, "no node that takes pods is labelled so now"),
        ReadyNodes::Unknown => (Reason::NodeReadinessUnknown, "whether any node is labelled so isn't known"),
    };
    let message = format!(
        "the configuration requires nodes with {DUMP_READY}=true, and {what}: if there is none the pods stay \
         Pending; see `kubectl get nodes -L {DUMP_READY}`"
    );
    Some(Warning { reason, message })
}

/// The core is a parameter so that tests can use one that fails.
fn answer_with(
    body: &[u8],
    strictness: Strictness,
    core: impl FnOnce(WorkloadKind, &ReceivedObject<'_>) -> Result<Outcome, ShapeError>,
) -> Result<Answer<'_>, NotAReview> {
    let request = Request::read(body)?;
    if text(&request.uid).is_empty() {
        return Err(NotAReview::NoUid);
    }
    let handled = request.handled_kind();
    let Decision { verdict, outcome, warning } = match target(&request) {
        Ok((kind, object)) => Decision::of(strictness, catch_unwind(AssertUnwindSafe(|| core(kind, object)))),
        Err(reason) => Decision::skipped(reason),
    };
    let Request { uid, namespace, name, object, .. } = request;
    let subject = Subject { namespace, name, object: object.into() };
    let warnings = outcome.as_ref().map_or(&[][..], |outcome| &outcome.warnings);
    let warnings: Vec<&Warning> = warnings.iter().chain(&warning).collect();
    let body = response::write(text(&uid), verdict, outcome.as_ref(), &warnings, &subject);
    let reasons = warnings.iter().map(|warning| warning.reason).collect();
    Ok(Answer { body, kind: label(handled), verdict, warnings: reasons, subject })
}

/// Answers a review that can't be processed in time, from `head`, its first bytes: the object is admitted unchanged with
/// a warning, or denied if the configuration is strict.
///
/// `None` if the head lacks the uid, which a response needs.
pub fn admit_unprocessed<'a>(head: &'a [u8], reason: Reason, config: &Config) -> Option<Answer<'a>> {
    let Head { api_version, kind, request, names } = Head::read(head);
    if (text(&api_version), text(&kind)) != (API_VERSION, KIND) || text(&request.uid).is_empty() {
        return None;
    }
    let handled = request.handled_kind();
    // The operation comes after the other fields that decide whether the review applies.
    let passed_over = request.operation.present().and_then(|_| request.applicable_kind().err());
    let Decision { verdict, warning, .. } = match passed_over {
        Some(reason) => Decision::skipped(reason),
        None => Decision::unprocessed(config.strictness(), Verdict::Shed(reason), untimely(reason)),
    };
    let Request { uid, namespace, name, .. } = request;
    let subject = Subject { namespace, name, object: Object::Searched(names) };
    let warnings: Vec<&Warning> = warning.iter().collect();
    let body = response::write(text(&uid), verdict, None, &warnings, &subject);
    let warnings = warnings.iter().map(|warning| warning.reason).collect();
    Some(Answer { body, kind: label(handled), verdict, warnings, subject })
}

const fn untimely(reason: Reason) -> &'static str {
    match reason {
        Reason::Overloaded => "too many large reviews came at a time",
        Reason::BodyTimeout => "the review took too long to arrive",
        _ => "the review could not be answered in time",
    }
}

const fn label(kind: Option<WorkloadKind>) -> Kind {
    match kind {
        Some(WorkloadKind::Pod) => Kind::Pod,
        Some(WorkloadKind::AscendJob) => Kind::AscendJob,
        Some(WorkloadKind::VolcanoJob) => Kind::VolcanoJob,
        _ => Kind::Other,
    }
}

/// The object for the core, or why it is skipped.
fn target<'r, 'a>(request: &'r Request<'a>) -> Result<(WorkloadKind, &'r ReceivedObject<'a>), Reason> {
    let kind = request.applicable_kind()?;
    let object = request.object.as_ref().ok_or(Reason::NoObject)?;
    Ok((kind, object))
}

struct Decision {
    verdict: Verdict,
    outcome: Option<Outcome>,
    /// The warning if there is no outcome.
    warning: Option<Warning>,
}

impl Decision {
    fn of(strictness: Strictness, result: std::thread::Result<Result<Outcome, ShapeError>>) -> Self {
        match result {
            Ok(Ok(Outcome { denied: Some(warning), .. })) => {
                Self { verdict: Verdict::Denied(warning.reason), outcome: None, warning: Some(warning) }
            }
            Ok(Ok(outcome)) => {
                let verdict = match outcome.skip {
                    Some(reason) => Verdict::Skipped(reason),
                    None if outcome.operations.is_empty() => Verdict::Complete,
                    None => Verdict::Injected,
                };
                Self { verdict, outcome: Some(outcome), warning: None }
            }
            Ok(Err(error)) => {
                Self::unprocessed(strictness, Verdict::Failed(Reason::ObjectInvalid), &shape_fault(&error))
            }
            Err(_) => Self::unprocessed(
                strictness,
                Verdict::Failed(Reason::InternalError),
                "Swansong failed on it; please report this",
            ),
        }
    }

    const fn skipped(reason: Reason) -> Self {
        Self { verdict: Verdict::Skipped(reason), outcome: None, warning: None }
    }

    /// `admitted` is the verdict unless the request is denied.
    fn unprocessed(strictness: Strictness, admitted: Verdict, fault: &str) -> Self {
        let reason = admitted.reason().unwrap_or(Reason::InternalError);
        let (verdict, consequence) = match strictness {
            Strictness::Warn => (admitted, "the object was admitted unchanged"),
            Strictness::Deny => (Verdict::Denied(reason), "the request was denied"),
        };
        let message = format!("{fault}; {consequence}");
        Self { verdict, outcome: None, warning: Some(Warning { reason, message }) }
    }
}

/// The parser quotes the unexpected value, which may be a secret. What it expected is enough to fix it.
fn shape_fault(error: &ShapeError) -> String {
    let ShapeError { field, message } = error;
    match message.rsplit_once("expected ") {
        Some((_, expected)) => format!("field {field} can't be read: {expected} was expected"),
        None => format!("field {field} can't be read"),
    }
}

//! The JSON of a response.
//!
//! It is a separate struct, since kube writes `patch` as an array of numbers where the API requires base64 text
//! (kube-rs/kube#1781).

use base64_simd::STANDARD;
use serde::Serialize;

use super::audit::Annotations;
use super::name::Subject;
use super::trim::{cut, printable};
use super::{API_VERSION, KIND, Verdict};
use swansong_inject::operation::Operation;
use swansong_inject::reason::Reason;
use swansong_inject::report::{Outcome, Warning};

/// The most warnings that are sent. The API server has a common allowance for the warnings of all webhooks.
const MOST_WARNINGS: usize = 8;

/// The longest warning, in bytes. The API server cuts at 256 characters.
const LONGEST_WARNING: usize = 240;

/// Room for an operation without its path and value, and for the usual answer without its patch.
const OPERATION: usize = 48;
const ENVELOPE: usize = 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    audit_annotations: Annotations,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Why a request is denied, as shown to the user.
#[derive(Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

pub(super) fn write(
    uid: &str,
    verdict: Verdict,
    outcome: Option<&Outcome>,
    warnings: &[&Warning],
    subject: &Subject<'_>,
) -> Vec<u8> {
    let operations = outcome.map_or(&[][..], |outcome| &outcome.operations);
    let patch = if operations.is_empty() { Vec::new() } else { to_json(operations, length(operations)) };
    let review = Review {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid,
            allowed: !matches!(verdict, Verdict::Denied(_)),
            status: status(verdict, warnings),
            audit_annotations: Annotations::of(verdict, outcome, warnings, subject),
            warnings: shown_warnings(warnings),
        },
    };
    let mut json = to_json(&review, ENVELOPE + STANDARD.encoded_length(patch.len()));
    // The API server refuses a patchType without a patch.
    if !patch.is_empty() {
        append_patch(&mut json, &patch);
    }
    json
}

/// Adds the patch as last members of the response: it is the bulk of the answer, and what is base64 needs no
/// escaping.
fn append_patch(json: &mut Vec<u8>, patch: &[u8]) {
    const END: &[u8] = b"}}";
    debug_assert!(json.ends_with(END), "the response is the review's last member");
    json.truncate(json.len() - END.len());
    json.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
    STANDARD.encode_append(patch, json);
    json.push(b'"');
    json.extend_from_slice(END);
}

/// About as many bytes as the operations have as JSON.
fn length(operations: &[Operation]) -> usize {
    let values =
        operations.iter().map(|operation| operation.value.as_ref().map_or(0, |value| value.get().len()));
    values.zip(operations).map(|(value, operation)| OPERATION + operation.path.len() + value).sum()
}

/// Only strings, numbers, sequences and string-keyed maps are passed in, for which serialisation into memory has no way
/// to fail.
fn to_json<T: Serialize + ?Sized>(value: &T, capacity: usize) -> Vec<u8> {
    let mut json = Vec::with_capacity(capacity);
    serde_json::to_writer(&mut json, value).expect("strings, numbers and string-keyed maps always serialise");
    json
}

fn status(verdict: Verdict, warnings: &[&Warning]) -> Option<Status> {
    let Verdict::Denied(reason) = verdict else { return None };
    let (code, name) = match reason {
        Reason::ObjectInvalid => (422, "Invalid"),
        Reason::Overloaded => (429, "TooManyRequests"),
        Reason::BodyTimeout | Reason::DeadlineExceeded => (504, "Timeout"),
        _ if reason.is_of_trainer() => (403, "Forbidden"),
        _ => (500, "InternalError"),
    };
    let message = warnings.first().map(|warning| line(warning)).unwrap_or_default();
    Some(Status { code, reason: name, message })
}

fn shown_warnings(warnings: &[&Warning]) -> Vec<String> {
    let shown = if warnings.len() > MOST_WARNINGS { MOST_WARNINGS - 1 } else { warnings.len() };
    let mut lines: Vec<String> = warnings[..shown].iter().map(|warning| line(warning)).collect();
    if shown < warnings.len() {
        let more = warnings.len() - shown;
        lines.push(format!("swansong: {more} more warnings; run `swansong explain` on the manifest"));
    }
    lines
}

fn line(warning: &Warning) -> String {
    let line = format!("swansong: {}: {}", warning.reason, warning.message);
    printable(cut(&line, LONGEST_WARNING))
}

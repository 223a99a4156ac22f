//! The answer's JSON.
//!
//! A struct of our own, since kube writes `patch` as an array of numbers where the API wants base64 text
//! (kube-rs/kube#1781).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::audit::Annotations;
use super::name::Subject;
use super::trim::{cut, printable};
use super::{API_VERSION, KIND, Verdict};
use crate::inject::operation::Operation;
use crate::inject::report::{Outcome, Warning};
use crate::reason::Reason;

/// The most warnings that are sent. The API server has a common allowance for the warnings of all webhooks.
const MOST_WARNINGS: usize = 8;

/// The longest warning, in bytes. The API server cuts at 256 characters.
const LONGEST_WARNING: usize = 240;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    audit_annotations: Annotations,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Why a request is refused, as the user gets to read it.
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
    let patch = outcome.and_then(|outcome| patch(&outcome.operations));
    let review = Review {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid,
            allowed: !matches!(verdict, Verdict::Denied(_)),
            status: status(verdict, warnings),
            // The API server refuses a patchType without a patch.
            patch_type: patch.is_some().then_some("JSONPatch"),
            audit_annotations: Annotations::of(verdict, outcome, warnings, subject),
            warnings: told(warnings),
            patch,
        },
    };
    to_json(&review)
}

fn patch(operations: &[Operation]) -> Option<String> {
    (!operations.is_empty()).then(|| STANDARD.encode(to_json(operations)))
}

/// Only strings, numbers, sequences and string-keyed maps are passed in, for which serialisation into memory has no way
/// to fail.
fn to_json<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, numbers and string-keyed maps always serialise")
}

fn status(verdict: Verdict, warnings: &[&Warning]) -> Option<Status> {
    let Verdict::Denied(reason) = verdict else { return None };
    let (code, name) = match reason {
        Reason::ObjectInvalid => (422, "Invalid"),
        _ => (500, "InternalError"),
    };
    let message = warnings.first().map(|warning| line(warning)).unwrap_or_default();
    Some(Status { code, reason: name, message })
}

fn told(warnings: &[&Warning]) -> Vec<String> {
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
    printable(if line.len() > LONGEST_WARNING { cut(&line, LONGEST_WARNING) } else { line })
}

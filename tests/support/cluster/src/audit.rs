//! The API server's audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// One request as the API server recorded it. Creations carry their request object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `create`, `get`, `watch`, …
    pub verb: String,
    /// The request's path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The user who sent the request.
    pub user: User,
    /// The program that asked, as it named itself.
    #[serde(default)]
    pub user_agent: String,
    /// What was asked for, when it was an object.
    pub object_ref: Option<ObjectReference>,
    /// How it was answered.
    pub response_status: Option<ResponseStatus>,
    /// `ResponseComplete` nearly always; `ResponseStarted` for watches.
    pub stage: String,
    /// The request's body, for creations.
    pub request_object: Option<serde_json::Value>,
    /// What admission noted: which webhooks changed the object, their patches and annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// The user who sent the request.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub groups: Vec<String>,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Plural name of the kind.
    pub resource: String,
    /// Namespace, empty when there is none.
    pub namespace: String,
    /// Name, empty for lists and generated names.
    pub name: String,
    /// Group of the API, empty for the core.
    pub api_group: String,
    /// Part of the object, such as `status`.
    pub subresource: String,
}

/// How it was answered.
#[derive(Clone, Debug, Deserialize)]
pub struct ResponseStatus {
    /// The HTTP status code.
    #[serde(default)]
    pub code: u16,
    /// What went wrong, if anything.
    #[serde(default)]
    pub message: String,
}

/// Reads all events recorded so far. A last line that is still being written is left out.
pub(crate) fn read(path: &Path) -> Result<impl Iterator<Item = Result<AuditEvent, Error>> + use<>, Error> {
    let path = path.to_owned();
    let mut log = BufReader::new(File::open(&path).map_err(Error::file("read", &path))?);
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        match log.read_until(b'\n', &mut line) {
            Err(error) => Some(Err(Error::file("read", &path)(error))),
            Ok(_) if line.ends_with(b"\n") => {
                Some(serde_json::from_slice(&line).map_err(Error::json("an event of the audit log")))
            }
            Ok(_) => None,
        }
    }))
}

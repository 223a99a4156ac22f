//! What an agent is told, and what it makes of it.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use swansong_clusterd::SendError;

use crate::pump::NotTaken;

/// The body of an answer that isn't 204.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Why, for programs.
    pub reason: Reason,
    /// Why, for people.
    pub message: String,
    /// ClusterD's code, where it isn't documented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
}

/// Why faults weren't taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The token isn't one of an agent.
    NotAnAgent,
    /// A fault is of another node than the agent's.
    NotYours,
    /// The request isn't what it has to be.
    Malformed,
    /// Too many requests wait.
    Busy,
    /// ClusterD's 410.
    TooMany,
    /// ClusterD doesn't answer.
    ClusterdUnavailable,
    /// ClusterD's 409.
    Refused,
    /// An answer of ClusterD's that isn't documented.
    Undocumented,
    /// The API server doesn't say whose the token is.
    NoReview,
}

impl Problem {
    /// A reason and a sentence.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), code: None }
    }

    /// The status that it is sent with.
    pub const fn status(&self) -> StatusCode {
        match self.reason {
            Reason::NotAnAgent => StatusCode::UNAUTHORIZED,
            Reason::NotYours => StatusCode::FORBIDDEN,
            Reason::Malformed => StatusCode::BAD_REQUEST,
            Reason::Busy => StatusCode::TOO_MANY_REQUESTS,
            Reason::Refused => StatusCode::CONFLICT,
            Reason::Undocumented => StatusCode::BAD_GATEWAY,
            Reason::TooMany | Reason::ClusterdUnavailable | Reason::NoReview => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// Seconds after which it is worth another try.
    pub const fn retry_after(&self) -> Option<u64> {
        match self.reason {
            Reason::Busy | Reason::NoReview => Some(2),
            Reason::TooMany | Reason::ClusterdUnavailable => Some(5),
            _ => None,
        }
    }

    /// What the agent's relay makes of it.
    pub fn into_send_error(self) -> SendError {
        let Self { reason, message, code } = self;
        let later = |after| SendError::RetryAfter { reason: format!("the relay: {message}"), after };
        match reason {
            Reason::TooMany => SendError::TooMany(message),
            Reason::Refused => SendError::Invalid(message),
            Reason::Undocumented => {
                SendError::UnexpectedResponse { code: code.unwrap_or_default(), info: message }
            }
            Reason::Busy | Reason::NoReview => later(Duration::from_secs(2)),
            Reason::ClusterdUnavailable => later(Duration::from_secs(5)),
            // Of no use to this agent: it has to send by itself.
            Reason::NotAnAgent | Reason::NotYours | Reason::Malformed => {
                SendError::Unavailable(format!("the relay doesn't take our faults: {message}"))
            }
        }
    }
}

impl From<NotTaken> for Problem {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Full => Self::new(Reason::Busy, "too many agents wait already"),
            NotTaken::Late(None) => Self::new(Reason::Busy, "there are more faults than ClusterD takes"),
            NotTaken::Late(Some(error)) | NotTaken::Failed(error) => match error {
                SendError::TooMany(info) => Self::new(Reason::TooMany, info),
                SendError::Invalid(info) => Self::new(Reason::Refused, info),
                SendError::InvalidBatch(error) => Self::new(Reason::Malformed, error.to_string()),
                SendError::UnexpectedResponse { code, info } => {
                    Self { code: Some(code), ..Self::new(Reason::Undocumented, info) }
                }
                error @ (SendError::Unavailable(_) | SendError::RetryAfter { .. }) => {
                    Self::new(Reason::ClusterdUnavailable, error.to_string())
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ClusterD says comes through the relay as if it had been said to the agent itself.
    #[test]
    fn clusterds_answers_come_through() {
        let info = || "info".to_owned();
        for error in [
            SendError::TooMany(info()),
            SendError::Invalid(info()),
            SendError::UnexpectedResponse { code: 500, info: info() },
        ] {
            let problem = Problem::from(NotTaken::Late(Some(error.clone())));
            let body = serde_json::to_string(&problem).expect("JSON");
            let problem: Problem = serde_json::from_str(&body).expect("a problem");
            assert_eq!(problem.into_send_error(), error);
        }
        let away = Problem::from(NotTaken::Late(Some(SendError::Unavailable(info()))));
        assert!(
            matches!(away.into_send_error(), SendError::RetryAfter { .. }),
            "not a reason to send by oneself"
        );
    }
}

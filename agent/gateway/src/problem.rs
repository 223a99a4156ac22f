//! Error responses, and how the agent handles them.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use swansong_clusterd::SendError;

/// The body of an error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The machine-readable reason.
    pub reason: Reason,
    /// A description for users.
    pub message: String,
    /// ClusterD's code, if it isn't documented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
}

/// Why faults weren't accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The token isn't that of an agent.
    Unauthenticated,
    /// A fault belongs to another node than the agent's.
    WrongNode,
    /// The request is malformed.
    Malformed,
    /// The gateway is overloaded.
    Busy,
    /// ClusterD answered 410.
    TooMany,
    /// ClusterD doesn't answer.
    ClusterdUnavailable,
    /// ClusterD answered 409.
    Refused,
    /// ClusterD's answer isn't documented.
    UnexpectedResponse,
    /// The API server doesn't review the token.
    TokenReviewUnavailable,
}

impl Problem {
    /// A problem without a code of ClusterD.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), code: None }
    }

    /// The HTTP status.
    pub const fn status(&self) -> StatusCode {
        match self.reason {
            Reason::Unauthenticated => StatusCode::UNAUTHORIZED,
            Reason::WrongNode => StatusCode::FORBIDDEN,
            Reason::Malformed => StatusCode::BAD_REQUEST,
            Reason::Busy => StatusCode::TOO_MANY_REQUESTS,
            Reason::Refused => StatusCode::CONFLICT,
            Reason::UnexpectedResponse => StatusCode::BAD_GATEWAY,
            Reason::TooMany | Reason::ClusterdUnavailable | Reason::TokenReviewUnavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The header `Retry-After`, in seconds.
    pub const fn retry_after(&self) -> Option<u64> {
        match self.reason {
            Reason::Busy | Reason::TokenReviewUnavailable => Some(2),
            Reason::TooMany | Reason::ClusterdUnavailable => Some(5),
            _ => None,
        }
    }

    /// The error that the agent's transport returns for it.
    pub fn into_send_error(self) -> SendError {
        let after = self.retry_after().map(Duration::from_secs);
        let Self { reason, message, code } = self;
        match (reason, after) {
            (Reason::TooMany, _) => SendError::TooMany(message),
            (Reason::Refused, _) => SendError::Invalid(message),
            (Reason::UnexpectedResponse, _) => {
                SendError::UnexpectedResponse { code: code.unwrap_or_default(), info: message }
            }
            (_, Some(after)) => SendError::RetryAfter { reason: format!("the gateway: {message}"), after },
            // A retry wouldn't help: the agent has to send directly.
            (_, None) => SendError::Unavailable(format!("the gateway doesn't accept our faults: {message}")),
        }
    }
}

impl From<SendError> for Problem {
    fn from(error: SendError) -> Self {
        match error {
            SendError::TooMany(info) => Self::new(Reason::TooMany, info),
            SendError::Invalid(info) => Self::new(Reason::Refused, info),
            SendError::InvalidBatch(error) => Self::new(Reason::Malformed, error.to_string()),
            SendError::UnexpectedResponse { code, info } => {
                Self { code: Some(code), ..Self::new(Reason::UnexpectedResponse, info) }
            }
            error @ (SendError::Unavailable(_) | SendError::RetryAfter { .. }) => {
                Self::new(Reason::ClusterdUnavailable, error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusterds_responses_reach_the_agent_unchanged() {
        let info = || "info".to_owned();
        for error in [
            SendError::TooMany(info()),
            SendError::Invalid(info()),
            SendError::UnexpectedResponse { code: 500, info: info() },
        ] {
            let problem = Problem::from(error.clone());
            let body = serde_json::to_string(&problem).expect("JSON");
            let problem: Problem = serde_json::from_str(&body).expect("a problem");
            assert_eq!(problem.into_send_error(), error);
        }
        let unavailable = Problem::from(SendError::Unavailable(info()));
        assert!(
            matches!(unavailable.into_send_error(), SendError::RetryAfter { .. }),
            "no reason to send directly"
        );
    }
}

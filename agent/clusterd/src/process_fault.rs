//! The fast path: faults of a job's ranks, reported as MindIO reports them.
//!
//! ClusterD orders the dump 40 to 240 ms after the report instead of about 11 s, and acts on the whole job. No registered
//! resource is needed, but the job has to be registered with ClusterD. Source:
//! `docs/zh/scheduling/06_api/04_clusterd/02_process_level_recovery_apis.md` of MindCluster.

/// What ended the rank; displayed as the value of `faultType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
pub enum Cause {
    /// An uncorrectable error of on-chip memory (UCE). ClusterD waits for a retry first.
    #[strum(to_string = "0")]
    OnChipMemory,
    /// Any other fault.
    #[strum(to_string = "1")]
    Other,
    /// Collective communication or the network. ClusterD waits for a retry first.
    #[strum(to_string = "2")]
    Network,
}

/// Why a report failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// Code 400: no job with that UID is registered with ClusterD.
    #[error("ClusterD doesn't know the job, 400: {0}")]
    UnknownJob(String),
    /// Any other code except 0.
    #[error("ClusterD refuses the report of failed ranks, {code}: {info}")]
    Refused { code: i32, info: String },
    /// The report lists no ranks.
    #[error("there are no ranks to report")]
    NoRanks,
    /// There was no response in time. ClusterD may or may not have acted.
    #[error("{0}")]
    Unavailable(String),
}

/// Maps the code of ClusterD's response.
pub fn check_response(code: i32, info: String) -> Result<(), ReportError> {
    match code {
        0 => Ok(()),
        400 => Err(ReportError::UnknownJob(info)),
        code => Err(ReportError::Refused { code, info }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_response_codes() {
        let check = |code| check_response(code, "x".to_owned());
        assert_eq!(check(0), Ok(()));
        assert_eq!(check(400), Err(ReportError::UnknownJob("x".to_owned())));
        assert_eq!(check(501), Err(ReportError::Refused { code: 501, info: "x".to_owned() }));
    }
}

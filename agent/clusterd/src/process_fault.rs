//! The fast path: a fault of a job's ranks, told as MindIO tells it.
//!
//! ClusterD orders the dump 40 to 240 ms after it instead of about 11 s, and it acts on the whole job. It needs no
//! registered resource, but the job has to have registered with ClusterD. Source:
//! `docs/zh/scheduling/06_api/04_clusterd/02_process_level_recovery_apis.md` of MindCluster.

use crate::proto;

/// What ended the rank; `faultType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// On-chip memory that can't be corrected (UCE). ClusterD waits for a retry first.
    OnChipMemory,
    /// All else.
    Other,
    /// Collective communication or the network. ClusterD waits for a retry first.
    Network,
}

/// Why ClusterD wasn't told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// Code 400: no job with that UID has registered with ClusterD.
    #[error("ClusterD doesn't know the job, 400: {0}")]
    UnknownJob(String),
    /// ClusterD answered another code than 0.
    #[error("ClusterD refuses the report of failed ranks, {code}: {info}")]
    Refused {
        /// The code.
        code: i32,
        /// The text.
        info: String,
    },
    /// Nothing to report.
    #[error("there are no ranks to report")]
    NoRanks,
    /// Nobody answered, or not in time; whether ClusterD has acted can't be told.
    #[error("{0}")]
    Unavailable(String),
}

impl Cause {
    const fn as_str(self) -> &'static str {
        match self {
            Self::OnChipMemory => "0",
            Self::Other => "1",
            Self::Network => "2",
        }
    }
}

/// The request for `ranks` (global ranks) of the job with the UID `job`.
pub(crate) fn request(job: &str, ranks: &[u32], cause: Cause) -> proto::ProcessFaultRequest {
    let rank =
        |rank: &u32| proto::FaultRank { rank_id: rank.to_string(), fault_type: cause.as_str().to_owned() };
    proto::ProcessFaultRequest { job_id: job.to_owned(), fault_ranks: ranks.iter().map(rank).collect() }
}

/// What the answer says.
pub(crate) fn outcome(status: proto::Status) -> Result<(), ReportError> {
    match status.code {
        0 => Ok(()),
        400 => Err(ReportError::UnknownJob(status.info)),
        code => Err(ReportError::Refused { code, info: status.info }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_digits() {
        let request = request("3f1c", &[3, 11], Cause::Other);
        let ranks: Vec<_> =
            request.fault_ranks.iter().map(|rank| (&*rank.rank_id, &*rank.fault_type)).collect();
        assert_eq!((&*request.job_id, ranks), ("3f1c", vec![("3", "1"), ("11", "1")]));
    }

    #[test]
    fn every_code_has_its_meaning() {
        let of = |code| outcome(proto::Status { code, info: "x".to_owned() });
        assert_eq!(of(0), Ok(()));
        assert_eq!(of(400), Err(ReportError::UnknownJob("x".to_owned())));
        assert_eq!(of(501), Err(ReportError::Refused { code: 501, info: "x".to_owned() }));
    }
}

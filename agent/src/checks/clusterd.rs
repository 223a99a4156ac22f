//! Whether ClusterD is reachable. It receives faults and sends recovery orders.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::finding::{Finding, Reason};

/// The result of an attempt to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialOutcome {
    /// The connection was accepted; it was closed at once.
    Connected,
    /// The address refused the connection.
    Refused,
    /// The address didn't answer within this time.
    TimedOut(Duration),
    /// The name couldn't be resolved.
    NotResolved(String),
    /// The connection couldn't be attempted.
    Failed(String),
}

impl fmt::Display for DialOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("it accepts connections"),
            Self::Refused => f.write_str("it refuses connections"),
            Self::TimedOut(waited) => write!(f, "no answer within {}", humantime::format_duration(*waited)),
            Self::NotResolved(problem) => write!(f, "the name can't be resolved: {problem}"),
            Self::Failed(problem) => write!(f, "the connection couldn't be attempted: {problem}"),
        }
    }
}

/// The finding for an attempt to connect.
pub(super) fn check(address: &str, outcome: &DialOutcome) -> Finding {
    const ADVICE: &str = "is ClusterD running, and does a NetworkPolicy or firewall let this node through? See `kubectl get pods,svc -n mindx-dl`";
    match outcome {
        DialOutcome::Connected => {
            Finding::new(Reason::ClusterdReachable, format!("ClusterD accepts connections at {address}"))
        }
        DialOutcome::Refused => {
            Finding::new(Reason::ClusterdRefused, format!("{address} refuses connections: {ADVICE}"))
        }
        DialOutcome::TimedOut(waited) => {
            let waited = humantime::format_duration(*waited);
            Finding::new(
                Reason::ClusterdTimeout,
                format!("{address} didn't answer within {waited}: {ADVICE}"),
            )
        }
        DialOutcome::NotResolved(problem) => {
            let message = format!(
                "the name in {address} can't be resolved here ({problem}); set `clusterd.address` to an address that this host can reach, or `clusterd.dial: false`"
            );
            Finding::new(Reason::ClusterdNotResolved, message)
        }
        DialOutcome::Failed(problem) => Finding::new(
            Reason::ClusterdDialFailed,
            format!("{address} couldn't be dialled: {problem}; check this host's network"),
        ),
    }
}

/// Connects to `address` within `timeout`. The resolver may block for much longer than its own timeouts suggest, so it
/// runs on a thread that is abandoned in that case.
pub fn dial(address: &str, timeout: Duration) -> DialOutcome {
    let start = Instant::now();
    let (answer, answers) = mpsc::channel();
    let name = address.to_owned();
    let resolver = thread::Builder::new().name("resolve".to_owned()).spawn(move || {
        // The receiver is gone if resolving took too long.
        let _ = answer.send(name.to_socket_addrs().map(Vec::from_iter));
    });
    if let Err(error) = resolver {
        return DialOutcome::Failed(error.to_string());
    }
    let addresses = match answers.recv_timeout(timeout) {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => return DialOutcome::NotResolved(error.to_string()),
        Err(_) => return DialOutcome::NotResolved("the resolver doesn't answer".to_owned()),
    };
    let mut outcome = DialOutcome::NotResolved("it has no address".to_owned());
    for address in addresses {
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return DialOutcome::TimedOut(timeout);
        }
        outcome = match TcpStream::connect_timeout(&address, left) {
            Ok(_) => return DialOutcome::Connected,
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => DialOutcome::Refused,
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => DialOutcome::TimedOut(timeout),
                _ => DialOutcome::Failed(error.to_string()),
            },
        };
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::finding::Status;

    #[test]
    fn connects_to_a_listener_only() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let long = Duration::from_secs(30);
        assert_eq!(dial(&address, long), DialOutcome::Connected);
        drop(listener);
        assert_eq!(dial(&address, long), DialOutcome::Refused);
    }

    #[test]
    fn an_unresolvable_name_is_unknown() {
        let outcome = dial("swansong.invalid:8899", Duration::from_secs(30));
        let finding = check("swansong.invalid:8899", &outcome);
        assert_eq!(finding.status(), Status::Unknown, "{finding:?}");
        assert!(finding.message.contains("swansong.invalid:8899"));
    }

    #[test]
    fn a_zero_timeout_does_not_connect() {
        assert!(matches!(
            dial("127.0.0.1:9", Duration::ZERO),
            DialOutcome::NotResolved(_) | DialOutcome::TimedOut(_)
        ));
    }

    #[test]
    fn every_outcome_has_a_finding() {
        for (outcome, status, text) in [
            (DialOutcome::Connected, Status::Pass, "accepts"),
            (DialOutcome::Refused, Status::Fail, "refuses"),
            (DialOutcome::TimedOut(Duration::from_secs(3)), Status::Fail, "within 3s"),
            (DialOutcome::NotResolved("no".to_owned()), Status::Unknown, "resolved"),
            (DialOutcome::Failed("no route".to_owned()), Status::Unknown, "no route"),
        ] {
            let finding = check("a:1", &outcome);
            assert_eq!(finding.status(), status, "{outcome:?}");
            assert!(finding.message.contains(text), "{}", finding.message);
            // `/status` shows it to people.
            let shown = outcome.to_string();
            assert!(shown.contains(text) && !shown.contains('"'), "{shown}");
        }
    }
}

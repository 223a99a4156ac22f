//! Can ClusterD be reached? Faults go to it, and orders come from it.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::reason::Reason;
use crate::report::Finding;

/// What a try to connect gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialled {
    /// The connection was accepted, and closed again.
    Connected,
    /// The address refuses.
    Refused,
    /// Nothing came back in time.
    Silent(Duration),
    /// The name has no address.
    NotResolved(String),
    /// Something else went wrong.
    Failed(String),
}

impl fmt::Display for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("it accepts connections"),
            Self::Refused => f.write_str("it refuses connections"),
            Self::Silent(waited) => write!(f, "no answer within {}", humantime::format_duration(*waited)),
            Self::NotResolved(problem) => write!(f, "the name can't be resolved: {problem}"),
            Self::Failed(problem) => write!(f, "the connection couldn't be tried: {problem}"),
        }
    }
}

/// What follows from it.
pub(super) fn judge(address: &str, dialled: &Dialled) -> Finding {
    const ADVICE: &str = "is ClusterD running, and does a NetworkPolicy or firewall let this node through? See `kubectl get pods,svc -n mindx-dl`";
    match dialled {
        Dialled::Connected => {
            Finding::new(Reason::ClusterdReachable, format!("ClusterD accepts connections at {address}"))
        }
        Dialled::Refused => {
            Finding::new(Reason::ClusterdRefused, format!("{address} refuses connections: {ADVICE}"))
        }
        Dialled::Silent(waited) => {
            let waited = humantime::format_duration(*waited);
            Finding::new(Reason::ClusterdSilent, format!("{address} didn't answer within {waited}: {ADVICE}"))
        }
        Dialled::NotResolved(problem) => {
            let message = format!(
                "the name in {address} can't be resolved here ({problem}); set `clusterd.address` to an address that this host can reach, or `clusterd.dial: false`"
            );
            Finding::new(Reason::ClusterdNotResolved, message)
        }
        Dialled::Failed(problem) => Finding::new(
            Reason::ClusterdNotTried,
            format!("{address} couldn't be tried: {problem}; look at this host's network"),
        ),
    }
}

/// Tries to connect, and gives up after `timeout` whatever the resolver does: it may block for much longer than any
/// of its own limits suggest, so it is asked on a thread that is left behind then.
pub fn dial(address: &str, timeout: Duration) -> Dialled {
    let start = Instant::now();
    let (answer, answers) = mpsc::channel();
    let name = address.to_owned();
    let resolver = thread::Builder::new().name("resolve".to_owned()).spawn(move || {
        // Nobody listens any more when it took too long.
        let _ = answer.send(name.to_socket_addrs().map(Vec::from_iter));
    });
    if let Err(error) = resolver {
        return Dialled::Failed(error.to_string());
    }
    let addresses = match answers.recv_timeout(timeout) {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => return Dialled::NotResolved(error.to_string()),
        Err(_) => return Dialled::NotResolved("the resolver doesn't answer".to_owned()),
    };
    let mut outcome = Dialled::NotResolved("it has no address".to_owned());
    for address in addresses {
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Dialled::Silent(timeout);
        }
        outcome = match TcpStream::connect_timeout(&address, left) {
            Ok(_) => return Dialled::Connected,
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => Dialled::Refused,
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Dialled::Silent(timeout),
                _ => Dialled::Failed(error.to_string()),
            },
        };
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::report::Status;

    #[test]
    fn a_listener_and_none() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let long = Duration::from_secs(30);
        assert_eq!(dial(&address, long), Dialled::Connected);
        drop(listener);
        assert_eq!(dial(&address, long), Dialled::Refused);
    }

    #[test]
    fn a_name_without_address_is_unknown() {
        let dialled = dial("swansong.invalid:8899", Duration::from_secs(30));
        let finding = judge("swansong.invalid:8899", &dialled);
        assert_eq!(finding.status(), Status::Unknown, "{finding:?}");
        assert!(finding.message.contains("swansong.invalid:8899"));
    }

    #[test]
    fn no_time_is_no_answer() {
        assert!(matches!(dial("127.0.0.1:9", Duration::ZERO), Dialled::NotResolved(_) | Dialled::Silent(_)));
    }

    #[test]
    fn judgements() {
        for (dialled, status, word) in [
            (Dialled::Connected, Status::Pass, "accepts"),
            (Dialled::Refused, Status::Fail, "refuses"),
            (Dialled::Silent(Duration::from_secs(3)), Status::Fail, "within 3s"),
            (Dialled::NotResolved("no".to_owned()), Status::Unknown, "resolved"),
            (Dialled::Failed("no route".to_owned()), Status::Unknown, "no route"),
        ] {
            let finding = judge("a:1", &dialled);
            assert_eq!(finding.status(), status, "{dialled:?}");
            assert!(finding.message.contains(word), "{}", finding.message);
            // `/status` shows it, for people.
            let shown = dialled.to_string();
            assert!(shown.contains(word) && !shown.contains('"'), "{shown}");
        }
    }
}

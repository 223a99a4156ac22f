//! Room for connections among the files that a process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Files beside connections: ports, pipes, the kernel's queues of events, what is read now and then.
const OTHERS: u64 = 64;

/// Raises the soft limit to `connections` and some more. It is often 1024, for the sake of programs that use select(2),
/// which this one doesn't.
pub(super) fn make_room(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) if soft >= wanted => {}
        Ok((_, hard)) => {
            let raised = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard);
            if hard < wanted || raised.is_err() {
                warn!(
                    limit = hard,
                    wanted,
                    "fewer files may be open than connections; raise the limit or lower --max-connections"
                );
            }
        }
        Err(error) => warn!(%error, "the limit on open files can't be read"),
    }
}

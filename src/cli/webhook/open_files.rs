use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Files beside connections: ports, pipes, event queues, files that are read from time to time.
const OTHER_FILES: u64 = 64;

/// Raises the soft limit on open files for this many connections. It is often 1024 for programs that use select(2),
/// which this one doesn't.
pub(super) fn raise_limit(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER_FILES);
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
        Err(error) => warn!(%error, "can't read the limit on open files"),
    }
}

//! The id of a fault.

use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::code::Code;
use crate::source_update::Subject;

/// The longest id that ClusterD accepts.
const MAX: usize = 128;
/// Digits of the hash of a node name that had to be changed.
const HASH: usize = 16;

/// What a rehearsal's id has in place of subject and code; not a hexadecimal number.
const REHEARSAL: &str = "rehearsal";
/// How long a rehearsal may take, with room for an observation every five minutes.
const REHEARSAL_TTL: Duration = Duration::from_mins(10);

/// The id of a fault that occurred at `occurred`, in milliseconds since 1970: `NODE.SUBJECT.CODE.OCCURRED`, as in
/// `worker-7.npu3.80E01801.1756000000000`.
///
/// It depends on its arguments only, so that a fault that is sent twice is one fault to ClusterD, and no two faults share
/// an id. A node name that is too long, or has characters that a node name can't have, is replaced by as much of it as
/// fits, `_` and a hash; no node name contains `_`.
pub fn fault_id(node: &str, subject: Subject, code: &Code, occurred: u64) -> String {
    // The number, since one code can be written in several ways.
    id_with_tail(node, &format!(".{subject}.{:X}.{occurred}", code.number()))
}

/// The id of the fault of a rehearsal that began at `started`: `NODE.rehearsal.STARTED`. No fault of a device has such an id.
pub fn rehearsal_id(node: &str, started: u64) -> String {
    id_with_tail(node, &format!(".{REHEARSAL}.{started}"))
}

/// When a rehearsal's fault becomes stale, if `id` is the id of one. By then its process has withdrawn it, or has died.
pub fn rehearsal_expiry(id: &str, now: Duration) -> Option<Duration> {
    let (rest, started) = id.rsplit_once('.')?;
    let is_rehearsal = rest.rsplit_once('.')?.1 == REHEARSAL;
    // The clock of an earlier boot may have been ahead.
    is_rehearsal.then(|| Duration::from_millis(started.parse().unwrap_or(0)).min(now) + REHEARSAL_TTL)
}

fn id_with_tail(node: &str, tail: &str) -> String {
    let room = MAX - tail.len();
    let mut id = if node.len() <= room && node.bytes().all(is_name_byte) {
        node.to_owned()
    } else {
        let kept = node.chars().map(|c| if u8::try_from(c).is_ok_and(is_name_byte) { c } else { '-' });
        let mut name: String = kept.take(room - HASH - 1).collect();
        name.push('_');
        for byte in Sha256::digest(node.as_bytes()).iter().take(HASH / 2) {
            // Writing into a String doesn't fail.
            let _ = write!(name, "{byte:02x}");
        }
        name
    };
    id.push_str(tail);
    id
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}

/// The parts of an id behind the node's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultId {
    pub subject: Subject,
    pub code: Code,
    /// When it occurred, in milliseconds since 1970.
    pub since: u64,
}

impl FaultId {
    /// Reads an id that [`fault_id`] made.
    pub fn parse(id: &str) -> Option<Self> {
        let mut parts = id.rsplit('.');
        let since = parts.next()?.parse().ok()?;
        let code = parts.next()?.parse().ok()?;
        let subject = parts.next()?.parse().ok()?;
        Some(Self { subject, code, since })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// The rule of ClusterD's `checker.go`.
    fn is_id(id: &str) -> bool {
        (8..=128).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    }

    fn subject() -> impl Strategy<Value = Subject> {
        prop_oneof![Just(Subject::Node), any::<u32>().prop_map(Subject::Npu)]
    }

    fn code() -> impl Strategy<Value = Code> {
        "[0-9A-Fa-f]{1,16}".prop_map(|text| text.parse().expect("a code"))
    }

    #[test]
    fn id_names_node_subject_code_and_time() {
        let code = Code::from(0x80E0_1801);
        let id = fault_id("worker-7.rack-2", Subject::Npu(3), &code, 1_756_000_000_000);
        assert_eq!(id, "worker-7.rack-2.npu3.80E01801.1756000000000");
        // The same code, written with a leading zero.
        let padded = "080e01801".parse().expect("a code");
        assert_eq!(fault_id("worker-7.rack-2", Subject::Npu(3), &padded, 1_756_000_000_000), id);
    }

    #[test]
    fn rehearsal_is_no_fault_of_a_device_and_expires() {
        let now = Duration::from_secs(1_756_000_000);
        let id = rehearsal_id("worker-7", 1_756_000_000_000);
        assert_eq!(id, "worker-7.rehearsal.1756000000000");
        assert!(is_id(&id) && is_id(&rehearsal_id(&"a".repeat(253), u64::MAX)));
        assert_eq!(FaultId::parse(&id), None);
        assert_eq!(rehearsal_expiry(&id, now), Some(now + REHEARSAL_TTL));
        assert_eq!(rehearsal_expiry("n.rehearsal.9999999999999", now), Some(now + REHEARSAL_TTL));
        let fault = fault_id("n.rehearsal", Subject::Npu(3), &Code::from(1), 1_756_000_000_000);
        assert_eq!(rehearsal_expiry(&fault, now), None);
    }

    #[test]
    fn long_node_names_with_a_common_start_have_different_ids() {
        let name = |end: char| format!("{}{end}", "a".repeat(252));
        let id = |end| fault_id(&name(end), Subject::Npu(u32::MAX), &Code::from(u32::MAX), u64::MAX);
        assert!(is_id(&id('b')), "{}", id('b'));
        assert_ne!(id('b'), id('c'));
    }

    proptest! {
        #[test]
        fn id_is_valid_for_any_input(
            node in prop_oneof!["[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", any::<String>()],
            subject in subject(),
            code in code(),
            at in any::<u64>(),
        ) {
            let id = fault_id(&node, subject, &code, at);
            prop_assert!(is_id(&id), "{id}");
            prop_assert_eq!(FaultId::parse(&id), Some(FaultId { subject, code, since: at }));
        }

        /// Names are made of few letters here, so that a clash by joining would be found.
        #[test]
        fn no_two_faults_share_an_id(
            episodes in prop::collection::vec(
                ("[a0.-]{1,6}(\\.npu[01]|\\.node)?(\\.[01]{1,2}){0,2}", subject(), 0u32..20, 0u64..20),
                2..60,
            ),
        ) {
            let mut known = HashMap::new();
            for (node, subject, code, at) in episodes {
                let id = fault_id(&node, subject, &Code::from(code), at);
                let episode = (node, subject, code, at);
                let before = known.entry(id).or_insert_with(|| episode.clone());
                prop_assert_eq!(before, &episode);
            }
        }
    }
}

//! The name of an episode.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use swansong_fault_model::{Code, Subject};

/// As long as ClusterD takes.
const MAX: usize = 128;
/// Digits of the hash of a name that had to be changed.
const HASH: usize = 16;

/// The name of the episode in which `code` stood at `subject` of `node` since `occurred` (milliseconds since 1970):
/// `NODE.SUBJECT.CODE.OCCURRED`, as in `worker-7.npu3.80E01801.1756000000000`. It is the same whenever it is asked for,
/// so that whatever is sent twice is one fault to ClusterD, and no two episodes share one.
///
/// A node's name that is too long, or has other characters than a node's name has, is replaced by as much of it as
/// there is room for, `_` and a hash; `_` is in no node's name.
pub fn fault_id(node: &str, subject: Subject, code: &Code, occurred: u64) -> String {
    // By its number: one code may be written in several ways.
    let tail = format!(".{subject}.{:X}.{occurred}", code.number());
    let room = MAX - tail.len();
    let mut id = if node.len() <= room && node.bytes().all(in_a_name) {
        node.to_owned()
    } else {
        let kept = node.chars().map(|c| if u8::try_from(c).is_ok_and(in_a_name) { c } else { '-' });
        let mut name: String = kept.take(room - HASH - 1).collect();
        name.push('_');
        for byte in Sha256::digest(node.as_bytes()).iter().take(HASH / 2) {
            // Writing into a String has no way to fail.
            let _ = write!(name, "{byte:02x}");
        }
        name
    };
    id.push_str(&tail);
    id
}

fn in_a_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::public_fault::is_id;

    fn subject() -> impl Strategy<Value = Subject> {
        prop_oneof![Just(Subject::Node), any::<u32>().prop_map(Subject::Npu)]
    }

    fn code() -> impl Strategy<Value = Code> {
        "[0-9A-Fa-f]{1,16}".prop_map(|text| text.parse().expect("a code"))
    }

    #[test]
    fn it_reads_well() {
        let code = Code::from(0x80E0_1801);
        let id = fault_id("worker-7.rack-2", Subject::Npu(3), &code, 1_756_000_000_000);
        assert_eq!(id, "worker-7.rack-2.npu3.80E01801.1756000000000");
        // The same code, written with a leading zero.
        let padded = "080e01801".parse().expect("a code");
        assert_eq!(fault_id("worker-7.rack-2", Subject::Npu(3), &padded, 1_756_000_000_000), id);
    }

    #[test]
    fn long_names_that_begin_alike_stay_apart() {
        let name = |end: char| format!("{}{end}", "a".repeat(252));
        let id = |end| fault_id(&name(end), Subject::Npu(u32::MAX), &Code::from(u32::MAX), u64::MAX);
        assert!(is_id(&id('b')), "{}", id('b'));
        assert_ne!(id('b'), id('c'));
    }

    proptest! {
        #[test]
        fn it_is_legal_whatever_it_is_made_of(
            node in prop_oneof!["[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", any::<String>()],
            subject in subject(),
            code in code(),
            at in any::<u64>(),
        ) {
            let id = fault_id(&node, subject, &code, at);
            prop_assert!(is_id(&id), "{id}");
        }

        /// Names are made of few letters here, so that a clash by joining would be found.
        #[test]
        fn no_two_episodes_share_one(
            episodes in prop::collection::vec(
                ("[a0.-]{1,6}(\\.npu[01]|\\.node)?(\\.[01]{1,2}){0,2}", subject(), 0u32..20, 0u64..20),
                2..60,
            ),
        ) {
            let mut seen = HashMap::new();
            for (node, subject, code, at) in episodes {
                let id = fault_id(&node, subject, &Code::from(code), at);
                let episode = (node, subject, code, at);
                let before = seen.entry(id).or_insert_with(|| episode.clone());
                prop_assert_eq!(before, &episode);
            }
        }
    }
}

//! What a source reports.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, FromRepr};

use crate::code::Code;

/// The node or the device that has a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Subject {
    /// The node as a whole.
    Node,
    /// An NPU, by its physical id: the N of `/dev/davinciN`.
    Npu(u32),
}

/// The driver's severity of a fault: `severity` of `dcmi_dms_fault_event`, from 0 to 3.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    AsRefStr,
    Display,
    FromRepr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum Severity {
    Suggestion,
    Minor,
    Major,
    Critical,
}

/// The kind of an event: `assertion` of `dcmi_dms_fault_event`, from 0 to 2.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    AsRefStr,
    Display,
    FromRepr,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum Assertion {
    /// The fault ended.
    Recover,
    /// The fault began.
    Occur,
    /// A notice: something happened that has no end.
    Once,
}

/// An event that a source observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultEvent {
    /// The affected node or device.
    pub subject: Subject,
    pub code: Code,
    /// The severity, if the source knows it.
    pub severity: Option<Severity>,
    /// Whether the fault began, ended or is a notice.
    pub assertion: Assertion,
    /// The source's name of the fault, if it has one: one printable line.
    pub name: Option<String>,
    /// When the source observed it by this host's clock, in milliseconds since 1970.
    pub at: u64,
}

/// A fault that is active in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveFault {
    pub code: Code,
    /// The severity, if the source knows it.
    pub severity: Option<Severity>,
    /// The source's name of the fault, if it has one: one printable line.
    pub name: Option<String>,
}

/// What a source reports about a subject. A source in a separate process writes it as JSON; that form is internal to
/// one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceUpdate {
    Event(FaultEvent),
    /// All faults that are active at `subject`. A fault that this source reported earlier and that is missing here has
    /// ended.
    Snapshot {
        /// The node or device that was inspected.
        subject: Subject,
        /// The active faults; empty for a healthy subject.
        faults: Vec<ActiveFault>,
        /// When it was inspected by this host's clock, in milliseconds since 1970.
        at: u64,
    },
    /// The source can't inspect `subject` now. Faults that it reported earlier remain active.
    Unavailable {
        /// The node or device that can't be inspected.
        subject: Subject,
        /// Why it can't.
        reason: String,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("node"),
            Self::Npu(id) => write!(f, "npu{id}"),
        }
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = || text.strip_prefix("npu")?.parse().ok();
        if text == "node" {
            Ok(Self::Node)
        } else {
            id().map(Self::Npu).ok_or_else(|| format!("`{text}` is neither `node` nor `npuN`"))
        }
    }
}

impl TryFrom<String> for Subject {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> Self {
        subject.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trip() {
        let fault = ActiveFault { code: Code::from(0x40F8_4E00), severity: None, name: None };
        let event = FaultEvent {
            subject: Subject::Node,
            code: "020001002".parse().expect("a code"),
            severity: Some(Severity::Major),
            assertion: Assertion::Once,
            name: Some("node type=NPU".to_owned()),
            at: u64::MAX,
        };
        for (update, text) in [
            (
                SourceUpdate::Event(event),
                r#"{"event":{"subject":"node","code":"020001002","severity":"major","assertion":"once","name":"node type=NPU","at":18446744073709551615}}"#,
            ),
            (
                SourceUpdate::Snapshot { subject: Subject::Npu(15), faults: vec![fault], at: 0 },
                r#"{"snapshot":{"subject":"npu15","faults":[{"code":"40F84E00","severity":null,"name":null}],"at":0}}"#,
            ),
            (
                SourceUpdate::Unavailable { subject: Subject::Npu(0), reason: "gone".to_owned() },
                r#"{"unavailable":{"subject":"npu0","reason":"gone"}}"#,
            ),
        ] {
            let written = serde_json::to_string(&update).expect("written");
            assert_eq!(written, text);
            assert_eq!(serde_json::from_str::<SourceUpdate>(&written).expect("read"), update);
        }
    }
}

//! What a source sees.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::code::Code;

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Subject {
    /// The node as a whole.
    Node,
    /// An NPU, by its physical id: the N of `/dev/davinciN`.
    Npu(u32),
}

/// How bad the driver calls it; `severity` of `dcmi_dms_fault_event`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// 0.
    Suggestion,
    /// 1.
    Minor,
    /// 2.
    Major,
    /// 3.
    Critical,
}

/// Whether it came, went, or merely happened; `assertion` of `dcmi_dms_fault_event`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Assertion {
    /// 0.
    Recover,
    /// 1.
    Occur,
    /// 2: a notice that nothing takes back.
    Once,
}

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// To what.
    pub subject: Subject,
    /// What.
    pub code: Code,
    /// How bad, if the source knows.
    pub severity: Option<Severity>,
    /// Whether it came or went.
    pub assertion: Assertion,
    /// The source's own name of it, if it has one; printable, one line.
    pub name: Option<String>,
    /// When it was noticed by this host's clock, milliseconds since 1970.
    pub at: u64,
}

/// One of the faults that stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// What.
    pub code: Code,
    /// How bad, if the source knows.
    pub severity: Option<Severity>,
    /// The source's own name of it.
    pub name: Option<String>,
}

/// What a source says. A source that is another process writes it as JSON, which is internal to one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Seen {
    /// Something happened.
    Event(Event),
    /// Everything that stands at `subject` as this source sees it; what it told before and isn't here is over.
    All {
        /// At what.
        subject: Subject,
        /// All that stands; empty when all is well.
        standing: Vec<Standing>,
        /// When, milliseconds since 1970.
        at: u64,
    },
    /// The source can't see `subject` now: what it knew stays.
    Blind {
        /// What it can't see.
        subject: Subject,
        /// Why.
        why: String,
    },
}

impl Severity {
    /// From the driver's number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Suggestion),
            1 => Some(Self::Minor),
            2 => Some(Self::Major),
            3 => Some(Self::Critical),
            _ => None,
        }
    }

    /// A word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Suggestion => "suggestion",
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Critical => "critical",
        }
    }
}

impl Assertion {
    /// From the driver's number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Recover),
            1 => Some(Self::Occur),
            2 => Some(Self::Once),
            _ => None,
        }
    }
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
            id().map(Self::Npu).ok_or_else(|| format!("`{text}` is no subject"))
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
    fn it_comes_back_as_it_was_written() {
        let standing = Standing { code: Code::from(0x40F8_4E00), severity: None, name: None };
        let event = Event {
            subject: Subject::Node,
            code: "020001002".parse().expect("a code"),
            severity: Some(Severity::Major),
            assertion: Assertion::Once,
            name: Some("node type=NPU".to_owned()),
            at: u64::MAX,
        };
        for (seen, text) in [
            (
                Seen::Event(event),
                r#"{"event":{"subject":"node","code":"020001002","severity":"major","assertion":"once","name":"node type=NPU","at":18446744073709551615}}"#,
            ),
            (
                Seen::All { subject: Subject::Npu(15), standing: vec![standing], at: 0 },
                r#"{"all":{"subject":"npu15","standing":[{"code":"40F84E00","severity":null,"name":null}],"at":0}}"#,
            ),
            (
                Seen::Blind { subject: Subject::Npu(0), why: "gone".to_owned() },
                r#"{"blind":{"subject":"npu0","why":"gone"}}"#,
            ),
        ] {
            let written = serde_json::to_string(&seen).expect("written");
            assert_eq!(written, text);
            assert_eq!(serde_json::from_str::<Seen>(&written).expect("read"), seen);
        }
    }
}

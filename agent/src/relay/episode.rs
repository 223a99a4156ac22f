//! An episode: one fault of one subject, from its occurrence to its end.

use serde::{Deserialize, Serialize};
use swansong_clusterd::{Class, Draft, FaultType, InvalidFault, PublicFault};
use swansong_fault_model::{Assertion, Code, Level, Severity, Subject};

/// What the outbox keeps of an episode: all that is needed to tell ClusterD of it, also in another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Episode {
    pub(crate) subject: Subject,
    pub(crate) code: Code,
    pub(crate) level: Level,
    /// Why it has this level.
    pub(crate) because: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) severity: Option<Severity>,
    /// The source's own name of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Physical ids of the devices that it concerns.
    pub(crate) devices: Vec<u32>,
    /// When it occurred by this host's clock, milliseconds since 1970.
    pub(crate) began: u64,
    /// Who saw it come.
    pub(crate) source: String,
    /// Whether it only happened, and nothing takes it back.
    #[serde(default)]
    pub(crate) once: bool,
    /// Whether a rule on frequency or duration made this of a milder one, which has an episode of its own.
    #[serde(default)]
    pub(crate) raised: bool,
}

impl Episode {
    /// What its order among others is kept by.
    pub(crate) fn key(&self) -> String {
        key(self.subject, &self.code, self.raised)
    }

    /// What ClusterD is to do.
    pub(crate) const fn class(&self) -> Class {
        if self.once {
            // What has passed must not end anything.
            return Class::Notice;
        }
        match (self.subject, self.level.kills(), self.level) {
            (Subject::Npu(_), true, _) => Class::ChipSeparate,
            (Subject::Node, true, _) => Class::NodeSeparate,
            (Subject::Npu(_), false, Level::SubHealthFault) => Class::ChipSubHealth,
            (Subject::Node, false, Level::SubHealthFault) => Class::NodeSubHealth,
            _ => Class::Notice,
        }
    }

    /// Whether ranks end by it.
    pub(crate) const fn kills(&self) -> bool {
        matches!(self.class(), Class::ChipSeparate | Class::NodeSeparate)
    }

    /// For people, one line.
    pub(crate) fn describe(&self) -> String {
        use std::fmt::Write as _;
        let mut text = match self.subject {
            Subject::Npu(id) => format!("NPU {id}: {}", self.code),
            Subject::Node => format!("node: {}", self.code),
        };
        if let Some(name) = &self.name {
            let _ = write!(text, " ({name})");
        }
        let _ = write!(text, ", {}", self.level);
        if let Some(severity) = self.severity {
            let _ = write!(text, ", severity {}", severity);
        }
        let _ = write!(text, ", seen by {}", self.source);
        text
    }

    /// As ClusterD takes it.
    ///
    /// # Errors
    ///
    /// When ClusterD wouldn't take it whoever sent it: no time of its own, no device that it knows.
    pub(crate) fn fault(
        &self,
        node: &str,
        id: &str,
        assertion: Assertion,
    ) -> Result<PublicFault, InvalidFault> {
        let (subject, source) = (self.subject.to_string(), self.source.as_str());
        let location = [
            ("subject", subject.as_str()),
            ("code", self.code.as_str()),
            ("level", self.level.as_ref()),
            ("source", source),
        ];
        Draft {
            fault_id: id.to_owned(),
            fault_type: match self.subject {
                Subject::Npu(_) => FaultType::Npu,
                Subject::Node => FaultType::Node,
            },
            class: self.class(),
            // A host whose clock isn't set yet: ClusterD refuses times before its own.
            fault_time: self.began.max(FIRST_TIME),
            assertion,
            node,
            devices: &self.devices,
            location: &location,
            description: &self.describe(),
        }
        .finish()
    }

    /// Of a fault that only ClusterD remembers: what its id tells, which is enough to take it back.
    pub(crate) fn of_id(id: &str) -> Self {
        let mut parts = id.rsplit('.');
        let began = parts.next().and_then(|part| part.parse().ok());
        let code = parts.next().and_then(|part| part.parse().ok());
        let subject = parts.next().and_then(|part| part.parse().ok());
        let subject = subject.unwrap_or(Subject::Node);
        Self {
            subject,
            code: code.unwrap_or(Code::from(0)),
            // Nothing is to happen by it.
            level: Level::NotHandleFault,
            because: "only ClusterD knew of it".to_owned(),
            severity: None,
            name: None,
            devices: vec![if let Subject::Npu(id) = subject { id } else { 0 }],
            began: began.unwrap_or(FIRST_TIME),
            source: "clusterd".to_owned(),
            once: false,
            raised: false,
        }
    }
}

/// The first that ClusterD takes: 2025-01-01.
const FIRST_TIME: u64 = 1_735_689_600_000;

pub(crate) fn key(subject: Subject, code: &Code, raised: bool) -> String {
    // The number, not the text: two spellings of one code are one fault.
    format!("{subject}/{:X}{}", code.number(), if raised { "/raised" } else { "" })
}

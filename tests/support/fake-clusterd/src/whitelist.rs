//! Accepted senders and fault codes: `publicCustomization.json`, or ClusterD's built-in list.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Deserialize;
use swansong_clusterd::customization::BUILT_IN;

/// Accepted senders, and fault codes with their levels.
#[derive(Debug, Clone, Default)]
pub struct Whitelist {
    resources: HashSet<String>,
    levels: HashMap<String, &'static str>,
}

/// The file, with the members that Go's `encoding/json` accepts.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    public_fault_code: Option<Codes>,
    public_fault_resource: Option<Vec<Option<String>>>,
}

#[derive(Deserialize)]
struct Codes {
    #[serde(rename = "NotHandleFaultCodes")]
    not_handle: Option<Vec<Option<String>>>,
    #[serde(rename = "SubHealthFaultCodes")]
    sub_health: Option<Vec<Option<String>>>,
    #[serde(rename = "PreSeparateNPUCodes")]
    pre_separate: Option<Vec<Option<String>>>,
    #[serde(rename = "SeparateNPUCodes")]
    separate: Option<Vec<Option<String>>>,
}

impl Whitelist {
    /// Parses the text; `None` if ClusterD couldn't.
    pub fn parse(text: &str) -> Option<Self> {
        let file: File = serde_json::from_str(text).ok()?;
        let mut levels = HashMap::new();
        if let Some(codes) = file.public_fault_code {
            // In the order of severity: if several lists contain a code, the most severe level applies.
            let lists = [
                ("NotHandleFault", codes.not_handle),
                ("SubHealthFault", codes.sub_health),
                ("PreSeparateNPU", codes.pre_separate),
                ("SeparateNPU", codes.separate),
            ];
            for (level, codes) in lists {
                levels.extend(codes.into_iter().flatten().flatten().map(|code| (code, level)));
            }
        }
        let resources = file.public_fault_resource.into_iter().flatten().flatten().collect();
        Some(Self { resources, levels })
    }

    /// ClusterD's built-in list.
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).unwrap_or_default()
    }

    /// Whether the sender is accepted.
    pub fn knows_resource(&self, resource: &str) -> bool {
        self.resources.contains(resource)
    }

    /// The level of a fault code.
    pub fn level(&self, code: &str) -> Option<&'static str> {
        self.levels.get(code).copied()
    }

    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(String::as_str)
    }
}

/// The source of the whitelist.
#[derive(Debug, Clone)]
pub enum Customization {
    /// No file exists.
    Absent,
    /// The text of the file.
    Text(String),
    /// A file, checked for changes before each message.
    File(PathBuf),
}

/// Metadata of the file that changes with its content.
pub(crate) type Mark = Option<(u64, i64, i64, u64)>;

impl Customization {
    pub(crate) fn mark(&self) -> Mark {
        let Self::File(path) = self else { return None };
        let file = fs::metadata(path).ok()?;
        Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
    }

    /// Reads the list; the built-in one if the file is missing or invalid.
    pub(crate) fn read(&self) -> Whitelist {
        let text = match self {
            Self::Absent => None,
            Self::Text(text) => Some(text.clone()),
            Self::File(path) => fs::read_to_string(path).ok(),
        };
        text.and_then(|text| Whitelist::parse(&text)).unwrap_or_else(Whitelist::built_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_severe_level_applies() {
        let text = r#"{"publicFaultCode": {"SeparateNPUCodes": ["020011001"], "NotHandleFaultCodes": ["020011001"]}}"#;
        let list = Whitelist::parse(text).expect("sound");
        assert_eq!(list.level("020011001"), Some("SeparateNPU"));
        assert!(!list.knows_resource("CCAE"), "the file replaces the built-in list");
    }

    #[test]
    fn accepts_the_output_of_the_customization_command() {
        let ours = swansong_clusterd::customization::customize(BUILT_IN).expect("sound").text;
        let list = Whitelist::parse(&ours).expect("sound");
        assert!(list.knows_resource("swansong") && list.knows_resource("CCAE"));
        assert_eq!(list.level("110011001"), Some("SubHealthFault"));
        assert_eq!(Whitelist::built_in().level("020011001"), None);
    }
}

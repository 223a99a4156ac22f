//! Who may send and which codes there are: `publicCustomization.json`, or what is built in.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Deserialize;
use swansong_clusterd::customization::BUILT_IN;

/// Senders and codes.
#[derive(Debug, Clone, Default)]
pub struct Whitelist {
    resources: HashSet<String>,
    levels: HashMap<String, &'static str>,
}

/// The file, as Go's `encoding/json` takes it.
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
    /// What is in the text, or nothing if ClusterD couldn't read it.
    pub fn parse(text: &str) -> Option<Self> {
        let file: File = serde_json::from_str(text).ok()?;
        let mut levels = HashMap::new();
        if let Some(codes) = file.public_fault_code {
            // From harmless to bad: if a code stands in several lists, the worst wins.
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

    /// What is built into ClusterD.
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).unwrap_or_default()
    }

    /// Whether it may send.
    pub fn knows_resource(&self, resource: &str) -> bool {
        self.resources.contains(resource)
    }

    /// What is done with faults of the code.
    pub fn level(&self, code: &str) -> Option<&'static str> {
        self.levels.get(code).copied()
    }

    /// All senders.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(String::as_str)
    }
}

/// Where the whitelist comes from.
#[derive(Debug, Clone)]
pub enum Customization {
    /// There is no file.
    Absent,
    /// A text, as if it were in the file.
    Text(String),
    /// The file, looked at before each message.
    File(PathBuf),
}

/// By what a change of the file is noticed.
pub(crate) type Mark = Option<(u64, i64, i64, u64)>;

impl Customization {
    /// Changes whenever the file does.
    pub(crate) fn mark(&self) -> Mark {
        let Self::File(path) = self else { return None };
        let file = fs::metadata(path).ok()?;
        Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
    }

    /// A file that is missing or broken leaves the built-in list.
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
    fn the_worst_level_wins() {
        let text = r#"{"publicFaultCode": {"SeparateNPUCodes": ["020011001"], "NotHandleFaultCodes": ["020011001"]}}"#;
        let list = Whitelist::parse(text).expect("sound");
        assert_eq!(list.level("020011001"), Some("SeparateNPU"));
        assert!(!list.knows_resource("CCAE"), "the file replaces the built-in list");
    }

    #[test]
    fn what_the_command_writes_serves_us() {
        let ours = swansong_clusterd::customization::customize(BUILT_IN).expect("sound").text;
        let list = Whitelist::parse(&ours).expect("sound");
        assert!(list.knows_resource("swansong") && list.knows_resource("CCAE"));
        assert_eq!(list.level("110011001"), Some("SubHealthFault"));
        assert_eq!(Whitelist::built_in().level("020011001"), None);
    }
}

//! `publicCustomization.json`, the file that registers Swansong and its codes with ClusterD.
//!
//! ClusterD accepts public faults only from senders in `publicFaultResource` and with codes in one of the lists of
//! `publicFaultCode`. If the file exists and parses, it *replaces* ClusterD's built-in list, so a new one has to include that
//! list. Sources: `docs/zh/scheduling/04_usage/04_resumable_training/03_configuration/
//! 01_configuring_fault_detection_levels.md`, `clusterd/pkg/domain/publicfault/file.go` and
//! `clusterd/build/publicFaultConfiguration.json` of MindCluster.
//!
//! The existing text is preserved byte for byte; our entries are inserted.

mod edit;
mod read;

use strum::VariantArray as _;

use self::edit::Edits;
use self::read::{Elements, Members, Node};
use crate::class::{Class, RESOURCE};

pub const FILE: &str = "publicCustomization.json";
/// The folder of the host that ClusterD reads it from.
pub const FOLDER: &str = "/user1/mindx-dl/clusterd";

const CODES: &str = "publicFaultCode";
const RESOURCES: &str = "publicFaultResource";
/// ClusterD's lists; the most severe applies if several have a code.
const LISTS: [&str; 5] = [
    "SeparateNPUCodes",
    "PreSeparateNPUCodes",
    "SubHealthFaultCodes",
    "NotHandleFaultCodes",
    "SilentFaultCodes",
];

/// The built-in list of ClusterD in MindCluster 26.1.0.
pub const BUILT_IN: &str = r#"{
  "publicFaultCode": {
    "NotHandleFaultCodes":["200001006", "200001010", "200001011", "200001012", "100001011"],
    "SubHealthFaultCodes":["010001001", "010001002", "010001004", "310001005", "210001007", "210001008", "210001009", "110001010", "110001020", "110001021"],
    "SeparateNPUCodes":["220001001", "220001002", "220001003", "220001004", "220001005", "220001006", "220001007", "120001001", "120001002", "120001003", "020001001", "020001003", "020001004"],
    "PreSeparateNPUCodes":["110001022", "110001023"]
  },
  "publicFaultResource": [
    "CCAE", "fd-online", "pingmesh", "Netmind", "dpcStorage", "dtfsStorage"
  ]
}
"#;

/// The result of [`customize`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customized {
    /// The new text; unchanged if nothing was missing.
    pub text: String,
    /// Whether the sender was missing.
    pub resource_added: bool,
    /// The classes with a missing code.
    pub added: Vec<Class>,
    /// Codes in another list than [`Class::list`], and that list. They remain there.
    pub in_other_list: Vec<(Class, &'static str)>,
}

/// ClusterD would reject the file, or it is ambiguous.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct InvalidFile {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong and what is expected.
    pub problem: String,
}

/// Adds the missing entries of Swansong to the text of a `publicCustomization.json`.
pub fn customize(text: &str) -> Result<Customized, InvalidFile> {
    let file = File::read(text)?;
    let mut edits = Edits::default();
    // Members to add to the objects.
    let (mut top, mut codes) = (Vec::new(), Vec::new());
    let resource_added = !file.resources.contains(RESOURCE);
    if resource_added {
        top.extend(file.resources.add(&mut edits, RESOURCES, &[RESOURCE]));
    }
    let (mut added, mut in_other_list) = (Vec::new(), Vec::new());
    for &class in Class::VARIANTS {
        match LISTS.into_iter().zip(&file.lists).find(|(_, list)| list.contains(class.code())) {
            Some((name, _)) if name == class.list() => {}
            Some((name, _)) => in_other_list.push((class, name)),
            None => added.push(class),
        }
    }
    for (name, list) in LISTS.into_iter().zip(&file.lists) {
        let missing = added.iter().filter(|class| class.list() == name).map(|class| class.code());
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            codes.extend(list.add(&mut edits, name, &missing));
        }
    }
    match &file.codes {
        Codes::Object(members) => members.append(&mut edits, &codes),
        Codes::Null(node) if !codes.is_empty() => edits.replace(node.span.clone(), object(&codes)),
        Codes::Absent if !codes.is_empty() => top.push((CODES, object(&codes))),
        Codes::Null(_) | Codes::Absent => {}
    }
    file.top.append(&mut edits, &top);
    Ok(Customized { text: edits.apply(text), resource_added, added, in_other_list })
}

/// The positions of the known members in the text.
struct File {
    top: Members,
    resources: List,
    codes: Codes,
    /// In the order of [`LISTS`].
    lists: [List; LISTS.len()],
}

enum Codes {
    Absent,
    Null(Node),
    Object(Members),
}

/// A list of strings.
enum List {
    Absent,
    /// Equivalent to absent, but the member exists.
    Null(Node),
    Present {
        elements: Elements,
        strings: Vec<String>,
    },
}

impl File {
    fn read(text: &str) -> Result<Self, InvalidFile> {
        let top = read::members(text, &read::document(text)?, "the file")?;
        let resources = List::read(text, &top, RESOURCES, RESOURCES)?;
        let codes = match top.find(text, CODES)? {
            None => Codes::Absent,
            Some(node) if node.is_null(text) => Codes::Null(node.clone()),
            Some(node) => Codes::Object(read::members(text, node, CODES)?),
        };
        let mut lists = LISTS.map(|_| List::Absent);
        if let Codes::Object(members) = &codes {
            for (list, name) in lists.iter_mut().zip(LISTS) {
                *list = List::read(text, members, name, &format!("{CODES}.{name}"))?;
            }
        }
        Ok(Self { top, resources, codes, lists })
    }
}

impl List {
    fn read(text: &str, members: &Members, name: &str, path: &str) -> Result<Self, InvalidFile> {
        match members.find(text, name)? {
            None => Ok(Self::Absent),
            Some(node) if node.is_null(text) => Ok(Self::Null(node.clone())),
            Some(node) => {
                let (elements, strings) = read::strings(text, node, path)?;
                Ok(Self::Present { elements, strings })
            }
        }
    }

    fn contains(&self, wanted: &str) -> bool {
        matches!(self, Self::Present { strings, .. } if strings.iter().any(|string| string == wanted))
    }

    /// Appends `strings`. Returns a member for the enclosing object if the list is absent.
    fn add(&self, edits: &mut Edits, name: &'static str, strings: &[&str]) -> Option<(&'static str, String)> {
        match self {
            Self::Absent => return Some((name, array(strings))),
            Self::Null(node) => edits.replace(node.span.clone(), array(strings)),
            Self::Present { elements, .. } => {
                let strings: Vec<_> = strings.iter().map(|string| quoted(string)).collect();
                elements.append(edits, &strings);
            }
        }
        None
    }
}

fn object(members: &[(&str, String)]) -> String {
    format!("{{{}}}", read::joined(members))
}

fn quoted(string: &str) -> String {
    serde_json::Value::from(string).to_string()
}

fn array(strings: &[&str]) -> String {
    let quoted: Vec<_> = strings.iter().map(|string| quoted(string)).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests;

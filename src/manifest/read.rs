//! Reads nodes to data: resolves YAML 1.1 scalars, aliases and merge keys.

use std::collections::HashMap;

use super::data::Data;
use super::error::Problem;
use super::node::{Content, Member, Node, Style};
use super::scalar::{self, Scalar};

/// Limit of values to which the aliases of one document expand.
const MAX_VALUES: usize = 1_000_000;
/// Limit of the text of scalars to which the aliases of one document expand, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Limit of nesting, including aliases.
const MAX_DEPTH: usize = 300;

const CORE: &str = "tag:yaml.org,2002:";
/// The tags that kubectl resolves for a scalar.
const SCALAR_TAGS: [&str; 7] = ["binary", "bool", "float", "int", "null", "str", "timestamp"];

/// Reads the nodes of one document.
#[derive(Debug)]
pub struct Reader<'n> {
    anchors: HashMap<usize, &'n Node>,
}

/// An error at a line.
#[derive(Debug)]
pub struct ReadError {
    /// Line, from 1.
    pub line: usize,
    pub problem: Problem,
}

/// State of reading one node.
struct NodeReader<'r, 'n> {
    reader: &'r Reader<'n>,
    /// The anchors that contain the current node.
    inside: Vec<usize>,
    depth: usize,
    copied: usize,
    copied_bytes: usize,
}

impl<'n> Reader<'n> {
    /// A reader for the document with this root.
    pub fn new(root: &'n Node) -> Self {
        let mut anchors = HashMap::new();
        let mut pending = vec![root];
        while let Some(node) = pending.pop() {
            if node.anchor != 0 {
                anchors.insert(node.anchor, node);
            }
            pending.extend(node.children());
        }
        Self { anchors }
    }

    /// Whether the document has any anchor.
    pub fn has_anchors(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// All anchors of the document.
    pub fn anchors(&self) -> impl Iterator<Item = usize> + '_ {
        self.anchors.keys().copied()
    }

    /// The value of a node.
    pub fn read(&self, node: &Node) -> Result<Data, ReadError> {
        NodeReader { reader: self, inside: Vec::new(), depth: 0, copied: 0, copied_bytes: 0 }.read(node)
    }

    /// The members that a merge key adds to its mapping.
    pub fn merged(&self, member: &Member) -> Result<Vec<(String, Data)>, ReadError> {
        let mut out = Object::default();
        let mut node_reader =
            NodeReader { reader: self, inside: Vec::new(), depth: 0, copied: 0, copied_bytes: 0 };
        node_reader.merge(&member.value, &mut out)?;
        Ok(out.members)
    }

    /// The name of a member; `None` if its key is an alias or a merge key.
    pub fn plain_name(member: &Member) -> Option<String> {
        if is_merge(&member.key) {
            return None;
        }
        match &member.key.content {
            Content::Scalar { .. } => key_name(&scalar_data(&member.key).ok()?).ok(),
            _ => None,
        }
    }
}

impl NodeReader<'_, '_> {
    fn read(&mut self, node: &Node) -> Result<Data, ReadError> {
        let error = |problem| ReadError { line: node.line, problem };
        if self.depth > MAX_DEPTH {
            return Err(error(Problem::TooDeep(MAX_DEPTH)));
        }
        if !self.inside.is_empty() {
            self.copied += 1;
            if self.copied > MAX_VALUES {
                return Err(error(Problem::TooBig(MAX_VALUES)));
            }
            if let Content::Scalar { text, .. } = &node.content {
                self.copied_bytes += text.len();
                if self.copied_bytes > MAX_BYTES {
                    return Err(error(Problem::AliasesTooLarge(MAX_BYTES)));
                }
            }
        }
        self.depth += 1;
        let data = match &node.content {
            Content::Scalar { .. } => scalar_data(node).map_err(error),
            Content::Sequence { items, .. } => {
                items.iter().map(|item| self.read(item)).collect::<Result<_, _>>().map(Data::Sequence)
            }
            Content::Mapping { members, .. } => self.mapping(members),
            Content::Alias(anchor) => self.follow(node, *anchor),
        };
        self.depth -= 1;
        data
    }

    fn follow(&mut self, alias: &Node, anchor: usize) -> Result<Data, ReadError> {
        let target = self.reader.anchors.get(&anchor).copied();
        let cycle = self.inside.contains(&anchor) || target.is_some_and(|target| contains(target, alias));
        let Some(target) = target.filter(|_| !cycle) else {
            return Err(ReadError { line: alias.line, problem: Problem::Cycle });
        };
        self.inside.push(anchor);
        let data = self.read(target);
        self.inside.pop();
        data
    }

    fn mapping(&mut self, members: &[Member]) -> Result<Data, ReadError> {
        let mut out = Object::default();
        let mut lines: HashMap<String, usize> = HashMap::new();
        for member in members {
            if is_merge(&member.key) {
                self.merge(&member.value, &mut out)?;
                continue;
            }
            let error = |problem| ReadError { line: member.key.line, problem };
            let key = key_name(&self.read(&member.key)?).map_err(error)?;
            if let Some(first) = lines.insert(key.clone(), member.key.line) {
                return Err(error(Problem::DuplicateKey { key, first }));
            }
            let value = self.read(&member.value)?;
            out.set(key, value);
        }
        Ok(Data::Mapping(out.members))
    }

    /// A merged member overrides earlier ones and is overridden by later ones, as in yaml.v2.
    fn merge(&mut self, value: &Node, out: &mut Object) -> Result<(), ReadError> {
        let error = || ReadError { line: value.line, problem: Problem::Merge };
        match self.read(value)? {
            Data::Mapping(members) => out.extend(members),
            // In a literal list of mappings the earlier ones override.
            Data::Sequence(items) if matches!(value.content, Content::Sequence { .. }) => {
                for item in items.into_iter().rev() {
                    match item {
                        Data::Mapping(members) => out.extend(members),
                        _ => return Err(error()),
                    }
                }
            }
            _ => return Err(error()),
        }
        Ok(())
    }
}

/// A mapping being read, with an index of its keys.
#[derive(Default)]
struct Object {
    members: Vec<(String, Data)>,
    places: HashMap<String, usize>,
}

impl Object {
    fn set(&mut self, key: String, value: Data) {
        if let Some(&place) = self.places.get(&key) {
            self.members[place].1 = value;
        } else {
            self.places.insert(key.clone(), self.members.len());
            self.members.push((key, value));
        }
    }

    fn extend(&mut self, members: Vec<(String, Data)>) {
        for (key, value) in members {
            self.set(key, value);
        }
    }
}

fn contains(outer: &Node, inner: &Node) -> bool {
    outer.span.start < inner.span.start && inner.span.end <= outer.span.end
}

/// Whether a key is the merge key `<<`.
pub fn is_merge(key: &Node) -> bool {
    match &key.content {
        Content::Scalar { text, style, tag } if text == "<<" => match tag {
            None => *style == Style::Plain,
            Some(tag) => tag.strip_prefix(CORE) == Some("merge"),
        },
        _ => false,
    }
}

fn key_name(key: &Data) -> Result<String, Problem> {
    match key {
        Data::String(text) => Ok(text.clone()),
        Data::Bool(value) => Ok(value.to_string()),
        Data::Number(text) if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() => Ok(text.clone()),
        Data::Number(text) => Ok(scalar::float_key(text)),
        other => Err(Problem::Key(other.describe())),
    }
}

fn scalar_data(node: &Node) -> Result<Data, Problem> {
    let Content::Scalar { text, style, tag } = &node.content else { return Ok(Data::Null) };
    let plain = *style == Style::Plain;
    // The parser returns a missing scalar as `~`.
    let text = if plain && node.start == node.span.end { "" } else { text.as_str() };
    let core = match tag.as_deref() {
        None if !plain => return Ok(Data::String(text.to_owned())),
        None => None,
        Some(tag) => match tag.strip_prefix(CORE) {
            Some(core) if SCALAR_TAGS.contains(&core) => Some(core),
            // kubectl ignores every other tag; the text is a string.
            _ => return Ok(Data::String(text.to_owned())),
        },
    };
    let data = match scalar::resolve(text) {
        _ if core == Some("str") => Data::String(text.to_owned()),
        _ if core == Some("binary") => return binary(text),
        Scalar::Null => Data::Null,
        Scalar::Bool(value) => Data::Bool(value),
        Scalar::Float(_) if core == Some("int") => return Err(contradiction(text, "!!int")),
        Scalar::Integer(json) | Scalar::Float(json) => Data::Number(json),
        Scalar::NotFinite => return Err(Problem::NotFinite(text.to_owned())),
        Scalar::Text => Data::String(text.to_owned()),
    };
    let fits = match (core, &data) {
        (Some("bool"), data) => matches!(data, Data::Bool(_)),
        (Some("int" | "float"), data) => matches!(data, Data::Number(_)),
        (Some("null"), data) => matches!(data, Data::Null),
        _ => true,
    };
    if fits { Ok(data) } else { Err(contradiction(text, &format!("!!{}", core.unwrap_or_default()))) }
}

fn contradiction(text: &str, tag: &str) -> Problem {
    Problem::Tag { text: text.to_owned(), tag: tag.to_owned() }
}

/// `!!binary` is the decoded text for kubectl.
fn binary(text: &str) -> Result<Data, Problem> {
    use base64::Engine as _;
    let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(packed).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .map(Data::String)
        .ok_or_else(|| contradiction(text, "!!binary of UTF-8 text"))
}

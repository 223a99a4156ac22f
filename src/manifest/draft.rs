//! A document being patched: which nodes are kept, and which replace others.

use super::data::Data;
use super::node::{Content, Member, Node};
use super::read::{Reader, is_merge};

pub use swansong_inject::operation::Verb;

/// The desired state of a node.
#[derive(Debug)]
pub enum Draft<'n> {
    /// A node that keeps its text.
    Kept(&'n Node),
    /// A mapping with changed members, and its node if it has one.
    Mapping(Option<&'n Node>, Vec<Slot<'n>>),
    /// A sequence with changed items, and its node if it has one.
    Sequence(Option<&'n Node>, Vec<Slot<'n>>),
    /// An alias in whose place its value is written, with changes.
    Expanded(Expanded<'n>),
    /// A new value.
    New(Data),
}

/// The value in the place of an alias.
#[derive(Debug)]
pub struct Expanded<'n> {
    pub alias: &'n Node,
    pub draft: Box<Draft<'n>>,
    /// Whether it gets the anchor, to which later aliases refer.
    pub takes_anchor: bool,
}

/// A member of a mapping or an item of a sequence.
#[derive(Debug)]
pub struct Slot<'n> {
    /// The member's key; empty for an item.
    pub key: String,
    /// Its index in the node; `None` if it is new.
    pub from: Option<usize>,
    pub origin: Origin,
    /// The desired value.
    pub draft: Draft<'n>,
}

/// What a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A member or item.
    Own,
    /// A member that a merge key adds, which has no text here.
    Merged,
    /// A merge key with its value.
    MergeKey,
}

/// An operation that doesn't fit the document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nothing to patch at {0:?}")]
pub struct PatchError(pub String);

impl Slot<'_> {
    fn new(key: &str, data: Data) -> Self {
        Self { key: key.to_owned(), from: None, origin: Origin::Own, draft: Draft::New(data) }
    }

    fn is_member(&self, key: &str) -> bool {
        self.key == key && self.origin != Origin::MergeKey
    }

    /// Whether it has or gets text here.
    pub fn is_written(&self) -> bool {
        self.origin != Origin::Merged
    }
}

impl<'n> Draft<'n> {
    /// Applies an RFC 6902 operation at a JSON pointer.
    pub fn apply(
        &mut self,
        reader: &Reader<'n>,
        verb: Verb,
        pointer: &str,
        value: Option<Data>,
    ) -> Result<(), PatchError> {
        let mut tokens = pointer.split('/');
        // A pointer starts with a slash; the empty pointer is the whole document.
        tokens.next();
        let tokens: Vec<String> = tokens.map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
        let Some((last, parents)) = tokens.split_last() else {
            *self = Self::New(value.unwrap_or(Data::Null));
            return Ok(());
        };
        let error = || PatchError(pointer.to_owned());
        let mut target = self;
        for token in parents {
            target = target.open(reader).child(token).ok_or_else(error)?;
        }
        target.open(reader).change(reader, verb, last, value).ok_or_else(error)
    }

    /// Makes members or items changeable; scalars are left as they are.
    pub(super) fn open(&mut self, reader: &Reader<'n>) -> &mut Self {
        let opened = match self {
            Self::Kept(node) => opened(node, reader),
            Self::New(data) => match data {
                Data::Mapping(members) => {
                    let members = std::mem::take(members).into_iter();
                    Some(Self::Mapping(None, members.map(|(key, value)| Slot::new(&key, value)).collect()))
                }
                Data::Sequence(items) => {
                    let items = std::mem::take(items).into_iter();
                    Some(Self::Sequence(None, items.map(|item| Slot::new("", item)).collect()))
                }
                _ => None,
            },
            Self::Mapping(..) | Self::Sequence(..) | Self::Expanded(_) => None,
        };
        if let Some(opened) = opened {
            *self = opened;
            if matches!(self, Self::New(_)) {
                return self.open(reader);
            }
        }
        match self {
            Self::Expanded(expanded) => expanded.draft.open(reader),
            opened => opened,
        }
    }

    fn child(&mut self, token: &str) -> Option<&mut Self> {
        match self {
            Self::Mapping(_, slots) => {
                let slot = slots.iter_mut().find(|slot| slot.is_member(token))?;
                // A member from a merge key is written out to change it.
                slot.origin = Origin::Own;
                Some(&mut slot.draft)
            }
            Self::Sequence(_, slots) => Some(&mut slots.get_mut(index(token)?)?.draft),
            _ => None,
        }
    }

    fn change(&mut self, reader: &Reader<'n>, verb: Verb, token: &str, value: Option<Data>) -> Option<()> {
        match self {
            Self::Mapping(_, slots) => {
                let at = slots.iter().position(|slot| slot.is_member(token));
                match (verb, at, value) {
                    (Verb::Add | Verb::Replace, Some(at), Some(value)) => {
                        slots[at].origin = Origin::Own;
                        slots[at].draft = Self::New(value);
                    }
                    (Verb::Add, None, Some(value)) => {
                        // By convention metadata is before spec.
                        let spec = slots.iter().position(|slot| token == "metadata" && slot.key == "spec");
                        slots.insert(spec.unwrap_or(slots.len()), Slot::new(token, value));
                    }
                    (Verb::Remove, Some(at), _) => {
                        if slots.remove(at).origin == Origin::Merged {
                            for slot in slots.iter_mut().filter(|slot| slot.origin == Origin::MergeKey) {
                                slot.draft.remove_merged(reader, token);
                            }
                        }
                    }
                    _ => return None,
                }
            }
            Self::Sequence(_, slots) => {
                let at = if token == "-" { slots.len() } else { index(token)? };
                match (verb, value) {
                    (Verb::Add, Some(value)) if at <= slots.len() => slots.insert(at, Slot::new("", value)),
                    (Verb::Replace, Some(value)) => slots.get_mut(at)?.draft = Self::New(value),
                    (Verb::Remove, _) if at < slots.len() => {
                        slots.remove(at);
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Removes a member from the value of a merge key, a mapping or a list of them.
    fn remove_merged(&mut self, reader: &Reader<'n>, key: &str) {
        let value = self.open(reader);
        if let Self::Sequence(_, slots) = value {
            for slot in slots.iter_mut() {
                slot.draft.remove_merged(reader, key);
            }
        } else {
            // Only one of several may have it.
            let _ = value.change(reader, Verb::Remove, key, None);
        }
    }

    /// The desired value.
    pub fn data(&self, reader: &Reader<'n>) -> Data {
        match self {
            // Reading the document has succeeded before.
            Self::Kept(node) => reader.read(node).unwrap_or(Data::Null),
            Self::Mapping(_, slots) => {
                let members = slots.iter().filter(|slot| slot.origin != Origin::MergeKey);
                Data::Mapping(members.map(|slot| (slot.key.clone(), slot.draft.data(reader))).collect())
            }
            Self::Expanded(expanded) => expanded.draft.data(reader),
            Self::Sequence(_, slots) => {
                Data::Sequence(slots.iter().map(|slot| slot.draft.data(reader)).collect())
            }
            Self::New(data) => data.clone(),
        }
    }
}

/// A collection with its members or items; `None` for a scalar.
fn opened<'n>(node: &'n Node, reader: &Reader<'n>) -> Option<Draft<'n>> {
    match &node.content {
        Content::Scalar { .. } => None,
        Content::Alias(_) => {
            let draft = Box::new(Draft::New(reader.read(node).ok()?));
            Some(Draft::Expanded(Expanded { alias: node, draft, takes_anchor: false }))
        }
        Content::Sequence { items, .. } => {
            let slots = items.iter().enumerate().map(|(index, item)| Slot {
                key: String::new(),
                from: Some(index),
                origin: Origin::Own,
                draft: Draft::Kept(item),
            });
            Some(Draft::Sequence(Some(node), slots.collect()))
        }
        Content::Mapping { members, .. } => match mapping_slots(members, reader) {
            Some(slots) => Some(Draft::Mapping(Some(node), slots)),
            None => reader.read(node).ok().map(Draft::New),
        },
    }
}

/// The members of a mapping, including merged ones; `None` if its text can't be edited safely.
fn mapping_slots<'n>(members: &'n [Member], reader: &Reader<'n>) -> Option<Vec<Slot<'n>>> {
    let mut slots: Vec<Slot<'n>> = Vec::with_capacity(members.len());
    let mut merged: Vec<Slot<'n>> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        if is_merge(&member.key) {
            let brought = reader.merged(member).ok()?;
            if slots.iter().any(|slot| brought.iter().any(|(key, _)| slot.is_member(key))) {
                // It overrides members before it.
                return None;
            }
            for (key, value) in brought {
                // The last merge overrides earlier ones.
                merged.retain(|slot| slot.key != key);
                merged.push(Slot { origin: Origin::Merged, ..Slot::new(&key, value) });
            }
            let draft = Draft::Kept(&member.value);
            slots.push(Slot { key: String::new(), from: Some(index), origin: Origin::MergeKey, draft });
        } else {
            let key = Reader::plain_name(member)?;
            let draft = Draft::Kept(&member.value);
            slots.push(Slot { key, from: Some(index), origin: Origin::Own, draft });
        }
    }
    // Members with text override merged ones.
    merged.retain(|slot| !slots.iter().any(|written| written.is_member(&slot.key)));
    // A merged member that is written out has to follow its merge key.
    slots.extend(merged);
    Some(slots)
}

fn index(token: &str) -> Option<usize> {
    let canonical = token == "0" || !token.starts_with('0');
    if canonical && token.bytes().all(|byte| byte.is_ascii_digit()) { token.parse().ok() } else { None }
}

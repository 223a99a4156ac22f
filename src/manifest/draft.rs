//! A document being patched: which nodes are kept, and which replace others.

use std::collections::HashSet;

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
    /// A new value.
    New(Data),
}

/// A member of a mapping or an item of a sequence.
#[derive(Debug)]
pub struct Slot<'n> {
    /// The member's key; empty for an item.
    pub key: String,
    /// Its index in the node; `None` if it is new.
    pub from: Option<usize>,
    /// Whether it comes from a merge key and has no text here.
    pub merged: bool,
    /// The desired value.
    pub draft: Draft<'n>,
}

/// An operation that doesn't fit the document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nothing to patch at {0:?}")]
pub struct PatchError(pub String);

impl Slot<'_> {
    fn new(key: &str, data: Data) -> Self {
        Self { key: key.to_owned(), from: None, merged: false, draft: Draft::New(data) }
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
        target.open(reader).change(verb, last, value).ok_or_else(error)
    }

    /// Makes members or items changeable; scalars are left as they are.
    fn open(&mut self, reader: &Reader<'n>) -> &mut Self {
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
            Self::Mapping(..) | Self::Sequence(..) => None,
        };
        if let Some(opened) = opened {
            *self = opened;
            if matches!(self, Self::New(_)) {
                return self.open(reader);
            }
        }
        self
    }

    fn child(&mut self, token: &str) -> Option<&mut Self> {
        match self {
            Self::Mapping(_, slots) => {
                let slot = slots.iter_mut().find(|slot| slot.key == token)?;
                // A member from a merge key is written out to change it.
                slot.merged = false;
                Some(&mut slot.draft)
            }
            Self::Sequence(_, slots) => Some(&mut slots.get_mut(index(token)?)?.draft),
            _ => None,
        }
    }

    fn change(&mut self, verb: Verb, token: &str, value: Option<Data>) -> Option<()> {
        match self {
            Self::Mapping(_, slots) => {
                let at = slots.iter().position(|slot| slot.key == token);
                match (verb, at, value) {
                    (Verb::Add | Verb::Replace, Some(at), Some(value)) => {
                        slots[at].merged = false;
                        slots[at].draft = Self::New(value);
                    }
                    (Verb::Add, None, Some(value)) => {
                        // By convention metadata is before spec.
                        let spec = slots.iter().position(|slot| token == "metadata" && slot.key == "spec");
                        slots.insert(spec.unwrap_or(slots.len()), Slot::new(token, value));
                    }
                    // A merged member can't be removed from the anchor, so the mapping is replaced.
                    (Verb::Remove, Some(at), _) => {
                        let merged = slots.remove(at).merged;
                        if merged && let Self::Mapping(node, _) = self {
                            *node = None;
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

    /// The desired value.
    pub fn data(&self, reader: &Reader<'n>) -> Data {
        match self {
            // Reading the document has succeeded before.
            Self::Kept(node) => reader.read(node).unwrap_or(Data::Null),
            Self::Mapping(_, slots) => {
                Data::Mapping(slots.iter().map(|slot| (slot.key.clone(), slot.draft.data(reader))).collect())
            }
            Self::Sequence(_, slots) => {
                Data::Sequence(slots.iter().map(|slot| slot.draft.data(reader)).collect())
            }
            Self::New(data) => data.clone(),
        }
    }

    /// Replaces aliases of changed or removed anchors by their values.
    pub fn expand_lost_aliases(&mut self, reader: &Reader<'n>) {
        if !reader.has_anchors() {
            return;
        }
        loop {
            let mut kept = HashSet::new();
            self.collect_kept(&mut kept);
            let lost: HashSet<usize> = reader.anchors().filter(|anchor| !kept.contains(anchor)).collect();
            if lost.is_empty() || !self.detach(reader, &lost) {
                return;
            }
        }
    }

    fn collect_kept(&self, kept: &mut HashSet<usize>) {
        match self {
            Self::Kept(node) => {
                let mut pending = vec![*node];
                while let Some(node) = pending.pop() {
                    kept.insert(node.anchor);
                    pending.extend(node.children());
                }
            }
            Self::Mapping(_, slots) | Self::Sequence(_, slots) => {
                for slot in slots {
                    slot.draft.collect_kept(kept);
                }
            }
            Self::New(_) => {}
        }
    }

    /// Returns whether it replaced an alias.
    fn detach(&mut self, reader: &Reader<'n>, lost: &HashSet<usize>) -> bool {
        match self {
            Self::Kept(node) => {
                if !refers(node, lost) {
                    return false;
                }
                if merges(node, lost) {
                    *self = Self::New(self.data(reader));
                    return true;
                }
                match self.open(reader) {
                    Self::Mapping(_, slots) | Self::Sequence(_, slots) => {
                        for slot in slots {
                            slot.draft.detach(reader, lost);
                        }
                    }
                    _ => {
                        let data = self.data(reader);
                        *self = Self::New(data);
                    }
                }
                true
            }
            Self::Mapping(Some(node), _) if merges(node, lost) => {
                let data = self.data(reader);
                *self = Self::New(data);
                true
            }
            Self::Mapping(_, slots) | Self::Sequence(_, slots) => {
                slots.iter_mut().fold(false, |any, slot| slot.draft.detach(reader, lost) | any)
            }
            Self::New(_) => false,
        }
    }
}

/// A collection with its members or items; `None` for a scalar.
fn opened<'n>(node: &'n Node, reader: &Reader<'n>) -> Option<Draft<'n>> {
    match &node.content {
        Content::Scalar { .. } => None,
        Content::Alias(_) => reader.read(node).ok().map(Draft::New),
        Content::Sequence { items, .. } => {
            let slots = items.iter().enumerate().map(|(index, item)| Slot {
                key: String::new(),
                from: Some(index),
                merged: false,
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
            if slots.iter().any(|slot| brought.iter().any(|(key, _)| *key == slot.key)) {
                // It overrides members before it.
                return None;
            }
            for (key, value) in brought {
                // The last merge overrides earlier ones.
                merged.retain(|slot| slot.key != key);
                merged.push(Slot { merged: true, ..Slot::new(&key, value) });
            }
        } else {
            let key = Reader::plain_name(member)?;
            slots.push(Slot { key, from: Some(index), merged: false, draft: Draft::Kept(&member.value) });
        }
    }
    // Members with text override merged ones.
    merged.retain(|slot| !slots.iter().any(|written| written.key == slot.key));
    merged.extend(slots);
    Some(merged)
}

fn index(token: &str) -> Option<usize> {
    let canonical = token == "0" || !token.starts_with('0');
    if canonical && token.bytes().all(|byte| byte.is_ascii_digit()) { token.parse().ok() } else { None }
}

/// Whether a node contains an alias to one of these anchors.
fn refers(node: &Node, anchors: &HashSet<usize>) -> bool {
    match node.content {
        Content::Alias(anchor) => anchors.contains(&anchor),
        _ => node.children().any(|child| refers(child, anchors)),
    }
}

/// Whether a mapping itself merges one of these anchors, or has such a key.
fn merges(node: &Node, anchors: &HashSet<usize>) -> bool {
    match &node.content {
        Content::Mapping { members, .. } => members.iter().any(|member| {
            (is_merge(&member.key) && refers(&member.value, anchors)) || refers(&member.key, anchors)
        }),
        _ => false,
    }
}

//! YAML nodes with their position in the text.

use std::ops::Range;

/// How a scalar is written.
pub use granit_parser::ScalarStyle as Style;

/// A YAML node.
#[derive(Debug)]
pub struct Node {
    pub content: Content,
    /// From its first character (a block scalar's `|`, an anchor's `&`) to its last, without insignificant trailing blank
    /// lines of a block scalar.
    pub span: Range<usize>,
    /// Start of the content, after anchor and tag.
    pub start: usize,
    /// Number of its anchor; 0 if it has none.
    pub anchor: usize,
    /// Line, from 1.
    pub line: usize,
}

/// The content of a node.
#[derive(Debug)]
pub enum Content {
    /// A scalar node.
    Scalar {
        /// Its text after escapes and folding.
        text: String,
        /// How it is written.
        style: Style,
        /// Its tag in full, as `tag:yaml.org,2002:int`.
        tag: Option<String>,
    },
    /// A sequence node.
    Sequence {
        /// Whether it is written as `[…]`.
        flow: bool,
        /// The items in order.
        items: Vec<Node>,
    },
    /// A mapping node.
    Mapping {
        /// Whether it is written as `{…}`.
        flow: bool,
        /// The members in order.
        members: Vec<Member>,
    },
    /// A reference to the node with that anchor.
    Alias(usize),
}

/// A member of a mapping.
#[derive(Debug)]
pub struct Member {
    pub key: Node,
    pub value: Node,
    /// The offset after the `:`, if key and value are separated by one.
    pub colon: Option<usize>,
}

impl Node {
    /// Whether it has an anchor or a tag.
    pub fn has_properties(&self) -> bool {
        self.start != self.span.start
    }

    /// Whether it has no text.
    pub fn is_unwritten(&self) -> bool {
        self.span.is_empty()
    }

    /// Whether it is a collection in block style.
    pub fn is_block_collection(&self) -> bool {
        matches!(self.content, Content::Sequence { flow: false, .. } | Content::Mapping { flow: false, .. })
    }

    /// Its children, including keys.
    pub fn children(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        match &self.content {
            Content::Scalar { .. } | Content::Alias(_) => Box::new(std::iter::empty()),
            Content::Sequence { items, .. } => Box::new(items.iter()),
            Content::Mapping { members, .. } => {
                Box::new(members.iter().flat_map(|member| [&member.key, &member.value]))
            }
        }
    }
}

impl Member {
    /// The end of key and value.
    pub fn end(&self) -> usize {
        if self.value.is_unwritten() { self.colon.unwrap_or(self.key.span.end) } else { self.value.span.end }
    }
}

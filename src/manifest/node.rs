//! YAML as written: every node with its place in the text.

use std::ops::Range;

/// How a scalar is written.
pub use granit_parser::ScalarStyle as Style;

/// A node and where it stands.
#[derive(Debug)]
pub struct Node {
    /// What it is.
    pub content: Content,
    /// From its first character (a block scalar's `|`, an anchor's `&`) to its last; of a block scalar the
    /// trailing blank lines that don't count are left out.
    pub span: Range<usize>,
    /// Where the content starts, behind anchor and tag.
    pub start: usize,
    /// Number of its anchor; 0 is none.
    pub anchor: usize,
    /// Line, from 1.
    pub line: usize,
}

/// What a node is.
#[derive(Debug)]
pub enum Content {
    /// A scalar.
    Scalar {
        /// Its text, escapes and folding resolved.
        text: String,
        /// How it is written.
        style: Style,
        /// Its tag in full, as `tag:yaml.org,2002:int`.
        tag: Option<String>,
    },
    /// A sequence.
    Sequence {
        /// Whether it is written as `[…]`.
        flow: bool,
        /// Its items.
        items: Vec<Node>,
    },
    /// A mapping.
    Mapping {
        /// Whether it is written as `{…}`.
        flow: bool,
        /// Its members.
        members: Vec<Member>,
    },
    /// A reference to the node with that anchor.
    Alias(usize),
}

/// A member of a mapping.
#[derive(Debug)]
pub struct Member {
    /// The key.
    pub key: Node,
    /// The value.
    pub value: Node,
    /// The offset behind the `:`, when the two are written in the usual way.
    pub colon: Option<usize>,
}

impl Node {
    /// Whether it has an anchor or a tag in front.
    pub fn has_properties(&self) -> bool {
        self.start != self.span.start
    }

    /// Whether nothing is written for it at all.
    pub fn is_unwritten(&self) -> bool {
        self.span.is_empty()
    }

    /// Whether it is written as a block over lines of its own.
    pub fn is_block_collection(&self) -> bool {
        matches!(self.content, Content::Sequence { flow: false, .. } | Content::Mapping { flow: false, .. })
    }

    /// Its children, keys included.
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
    /// Where key and value end.
    pub fn end(&self) -> usize {
        if self.value.is_unwritten() { self.colon.unwrap_or(self.key.span.end) } else { self.value.span.end }
    }
}

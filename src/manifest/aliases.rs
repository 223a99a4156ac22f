//! Keeps the aliases of a patched document whose values still fit, and writes out the others.

use std::collections::HashMap;

use super::data::Data;
use super::draft::{Draft, Expanded};
use super::node::{Content, Node};
use super::read::Reader;

/// Makes every alias of a draft have its desired value. Where an anchor's value changes or goes, the first alias that
/// still has the former value gets it, and the anchor with it, so that later aliases stay as they are.
pub fn settle<'n>(draft: &mut Draft<'n>, root: &'n Node, reader: &Reader<'n>) {
    if reader.has_anchors() {
        let mut last_aliases = HashMap::new();
        visit(root, &mut |node| {
            if let Content::Alias(anchor) = node.content {
                let last: &mut usize = last_aliases.entry(anchor).or_default();
                *last = node.span.start.max(*last);
            }
        });
        Settler { reader, last_aliases, values: HashMap::new() }.settle(draft);
    }
}

/// The state at a point of the document.
struct Settler<'r, 'n> {
    reader: &'r Reader<'n>,
    /// The offset of each anchor's last alias.
    last_aliases: HashMap<usize, usize>,
    /// The anchors so far that have text.
    values: HashMap<usize, AnchorValue>,
}

#[derive(PartialEq, Eq)]
enum AnchorValue {
    Unchanged,
    Changed(Data),
}

impl<'n> Settler<'_, 'n> {
    fn settle(&mut self, draft: &mut Draft<'n>) {
        match draft {
            Draft::Kept(node) => {
                let node: &'n Node = node;
                if let Content::Alias(anchor) = node.content {
                    self.keep_or_expand(draft, node, anchor);
                } else if self.is_kept_whole(node) {
                    visit(node, &mut |node| {
                        self.values.insert(node.anchor, AnchorValue::Unchanged);
                    });
                } else {
                    draft.open(self.reader);
                    self.settle(draft);
                }
            }
            Draft::Mapping(node, slots) | Draft::Sequence(node, slots) => {
                for slot in slots.iter_mut() {
                    self.settle(&mut slot.draft);
                }
                if let Some(node) = node.filter(|node| node.anchor != 0) {
                    let data = draft.data(self.reader);
                    let value = if self.former(node) == data {
                        AnchorValue::Unchanged
                    } else {
                        AnchorValue::Changed(data)
                    };
                    self.values.insert(node.anchor, value);
                }
            }
            Draft::Expanded(Expanded { alias, draft: value, .. }) => {
                let alias: &'n Node = alias;
                if let Content::Alias(anchor) = alias.content
                    && let Some(AnchorValue::Changed(now)) = self.values.get(&anchor)
                    && *now == value.data(self.reader)
                {
                    *draft = Draft::Kept(alias);
                }
            }
            Draft::New(_) => {}
        }
    }

    /// An alias whose value doesn't change.
    fn keep_or_expand(&mut self, draft: &mut Draft<'n>, alias: &'n Node, anchor: usize) {
        let former = self.former(alias);
        let is_kept = match self.values.get(&anchor) {
            Some(AnchorValue::Unchanged) => true,
            Some(AnchorValue::Changed(now)) => *now == former,
            None => false,
        };
        if !is_kept {
            let takes_anchor = self.last_aliases.get(&anchor).is_some_and(|last| *last > alias.span.start);
            if takes_anchor {
                self.values.insert(anchor, AnchorValue::Unchanged);
            }
            let value = Box::new(Draft::New(former));
            *draft = Draft::Expanded(Expanded { alias, draft: value, takes_anchor });
        }
    }

    /// Whether all aliases in it still have their values.
    fn is_kept_whole(&self, node: &Node) -> bool {
        let mut own = Vec::new();
        let mut is_kept = true;
        visit(node, &mut |node| {
            own.push(node.anchor);
            if let Content::Alias(anchor) = node.content {
                is_kept &= own.contains(&anchor) || self.values.get(&anchor) == Some(&AnchorValue::Unchanged);
            }
        });
        is_kept
    }

    fn former(&self, node: &Node) -> Data {
        // Reading the document has succeeded before.
        self.reader.read(node).unwrap_or(Data::Null)
    }
}

/// Calls `with` for a node and those in it, in the order of the text.
fn visit<'n>(node: &'n Node, with: &mut impl FnMut(&'n Node)) {
    with(node);
    node.children().for_each(|child| visit(child, with));
}

//! Edits of collections in flow style, including JSON.

use std::ops::Range;

use super::{Editor, NotEditable};
use crate::manifest::data::Data;
use crate::manifest::draft::{Draft, Slot};
use crate::manifest::emit::Flow;
use crate::manifest::node::{Member, Node};

impl<'n> Editor<'_, 'n> {
    pub(super) fn flow_mapping(
        &mut self,
        node: &Node,
        members: &'n [Member],
        slots: &[Slot<'n>],
    ) -> Result<(), NotEditable> {
        let spans: Vec<_> = members.iter().map(|member| member.key.span.start..member.end()).collect();
        let mut removed = vec![true; members.len()];
        for slot in slots {
            if let Some(from) = slot.from {
                removed[from] = false;
                self.flow_value(&members[from].value, &slot.draft)?;
            }
        }
        self.flow_elements(node, &spans, &removed, slots, |flow, slot, data, out| {
            flow.member(&slot.key, data, out);
        })
    }

    pub(super) fn flow_sequence(
        &mut self,
        node: &Node,
        items: &'n [Node],
        slots: &[Slot<'n>],
    ) -> Result<(), NotEditable> {
        let spans: Vec<_> = items.iter().map(|item| item.span.clone()).collect();
        let mut removed = vec![true; items.len()];
        for slot in slots {
            if let Some(from) = slot.from {
                removed[from] = false;
                self.flow_value(&items[from], &slot.draft)?;
            }
        }
        self.flow_elements(node, &spans, &removed, slots, |flow, _, data, out| flow.write(data, out))
    }

    /// Edits a value in place or replaces it.
    fn flow_value(&mut self, old: &Node, draft: &Draft<'n>) -> Result<(), NotEditable> {
        if matches!(draft, Draft::Kept(_)) || self.try_draft(draft) {
            return Ok(());
        }
        if old.is_unwritten() {
            return Err(NotEditable);
        }
        self.replace_scalar(old, &draft.data(self.reader), &self.anchor(draft), true);
        Ok(())
    }

    /// Adds and removes elements with the commas between them.
    fn flow_elements(
        &mut self,
        node: &Node,
        spans: &[Range<usize>],
        removed: &[bool],
        slots: &[Slot<'n>],
        write: impl Fn(Flow, &Slot<'n>, &Data, &mut String),
    ) -> Result<(), NotEditable> {
        let Some(first_kept) = removed.iter().position(|removed| !removed) else {
            return self.flow_refill(node, slots);
        };
        self.remove_elements(spans, removed, first_kept);
        let first = spans[first_kept].start;
        let own_lines = self.text[node.start..spans[0].start].contains('\n');
        let flow = if own_lines { self.flow(first) } else { Flow { lines: None, ..self.flow(first) } };
        let between = if own_lines {
            format!(",\n{}", " ".repeat(self.indent(spans[0].start)))
        } else if flow.spaced {
            ", ".to_owned()
        } else {
            ",".to_owned()
        };
        let mut place = None;
        for slot in slots.iter().filter(|slot| slot.is_written()) {
            if let Some(from) = slot.from {
                place = Some(spans[from].end);
                continue;
            }
            let mut element = String::new();
            write(flow, slot, &slot.draft.data(self.reader), &mut element);
            match place {
                Some(end) => self.replace(end..end, format!("{between}{element}")),
                None => self.replace(first..first, format!("{element}{between}")),
            }
        }
        Ok(())
    }

    /// Removes all elements of a collection.
    fn flow_refill(&mut self, node: &Node, slots: &[Slot<'n>]) -> Result<(), NotEditable> {
        if slots.iter().any(Slot::is_written) {
            return Err(NotEditable);
        }
        if node.span.end >= node.start + 2 {
            self.replace(node.start + 1..node.span.end - 1, "");
        }
        Ok(())
    }

    fn remove_elements(&mut self, spans: &[Range<usize>], removed: &[bool], first_kept: usize) {
        if first_kept > 0 {
            self.replace(spans[0].start..spans[first_kept].start, "");
        }
        let mut kept_end = spans[first_kept].end;
        for (span, removed) in spans.iter().zip(removed).skip(first_kept + 1) {
            if *removed {
                self.replace(kept_end..span.end, "");
            }
            kept_end = span.end;
        }
    }
}

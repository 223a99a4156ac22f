//! Edits of collections in block style.

use super::text::dash_of;
use super::{Editor, NotEditable};
use crate::manifest::data::Data;
use crate::manifest::draft::{Draft, Slot};
use crate::manifest::node::{Content, Member, Node};
use crate::manifest::read::is_merge;

impl<'n> Editor<'_, 'n> {
    pub(super) fn block_mapping(
        &mut self,
        members: &'n [Member],
        slots: &[Slot<'n>],
    ) -> Result<(), NotEditable> {
        let Some(first) = members.first() else { return Err(NotEditable) };
        let indent = self.column(first.key.span.start);
        let before = &self.text[self.line_start(first.key.span.start)..first.key.span.start];
        if !before.bytes().all(|byte| matches!(byte, b' ' | b'-')) {
            // Its column is unknown, for example after `? ` or a byte order mark.
            return Err(NotEditable);
        }
        let mut removed = vec![true; members.len()];
        for slot in slots {
            let Some(from) = slot.from else { continue };
            removed[from] = false;
            if matches!(slot.draft, Draft::Kept(_)) || self.try_draft(&slot.draft) {
                continue;
            }
            let member = &members[from];
            self.replace_value(member, &slot.draft, self.column(member.key.span.start))?;
        }
        if removed.iter().all(|removed| *removed) {
            return Err(NotEditable);
        }
        for (member, _) in members.iter().zip(removed).filter(|(_, removed)| *removed) {
            if !self.begins_line(member.key.span.start) {
                return Err(NotEditable);
            }
            self.remove_lines(member.key.span.start, member.end());
        }
        self.insert_members(members, slots, indent);
        Ok(())
    }

    /// Inserts new members after the members that they follow, or before the first one.
    fn insert_members(&mut self, members: &'n [Member], slots: &[Slot<'n>], indent: usize) {
        let mut lines = String::new();
        let last = members.last().map(|last| self.after_comments(last.end(), indent));
        // Only members after a merge key override its members.
        let merges = members.iter().any(|member| is_merge(&member.key));
        let mut place = members.first().and_then(|first| self.before_first(first.key.span.start).ok());
        for slot in slots.iter().filter(|slot| slot.is_written()) {
            if let Some(from) = slot.from {
                // No line can be inserted between a dash and the first member.
                if let Some(place) = place.filter(|_| !lines.is_empty() && !merges) {
                    self.insert_lines(place, &std::mem::take(&mut lines));
                }
                let end = members[from].end();
                place = if from + 1 < members.len() { Some(self.line_end(end)) } else { last };
            } else {
                lines.extend(std::iter::repeat_n(' ', indent));
                self.layout.member(&slot.key, &slot.draft.data(self.reader), indent, &mut lines);
            }
        }
        if let Some(place) = if merges { last } else { place }.filter(|_| !lines.is_empty()) {
            self.insert_lines(place, &lines);
        }
    }

    /// Replaces the value of a key at column `indent`.
    fn replace_value(
        &mut self,
        member: &Member,
        draft: &Draft<'n>,
        indent: usize,
    ) -> Result<(), NotEditable> {
        let colon = member.colon.ok_or(NotEditable)?;
        let old = &member.value;
        let (data, anchor) = (draft.data(self.reader), self.anchor(draft));
        let below = old.is_block_collection() && !old.has_properties();
        if below && !(self.begins_line(old.span.start) || dash_of(self.text, old).is_some()) {
            return Err(NotEditable);
        }
        // A sequence starts with the dash of its first item.
        let below = below.then(|| (self.first_line(old), old.span.end));
        if data.is_filled() {
            let mut lines = String::new();
            let column = match data {
                Data::Sequence(_) => indent + self.layout.dash,
                _ => indent + self.layout.step,
            };
            self.layout.collection(&data, column, false, &mut lines);
            self.report(old);
            if let Some((first, last)) = below {
                self.replace(self.line_start(first)..self.line_end(last), lines);
            } else {
                let anchor = format!(" {anchor}");
                self.replace(colon..old.span.end.max(colon), anchor.trim_end());
                self.insert_lines(self.line_end(old.span.end.max(colon)), &lines);
            }
        } else if let Some((first, last)) = below {
            // A key without a value is null, and the usual way to write it.
            if data != Data::Null {
                self.replace(colon..colon, format!(" {}", self.scalar_like(old, &data, false)));
            }
            self.remove_lines(first, last);
        } else if data == Data::Null && anchor.is_empty() && !old.has_properties() {
            self.report(old);
            self.replace(colon..old.span.end, "");
        } else if old.is_unwritten() {
            self.replace(colon..colon, format!(" {}", self.scalar_like(old, &data, false)));
        } else {
            self.replace_scalar(old, &data, &anchor, false);
        }
        Ok(())
    }

    /// An offset on the first line of a block collection.
    fn first_line(&self, node: &Node) -> usize {
        match &node.content {
            Content::Sequence { items, .. } => {
                items.first().and_then(|item| dash_of(self.text, item)).unwrap_or(node.span.start)
            }
            _ => node.span.start,
        }
    }

    pub(super) fn block_sequence(
        &mut self,
        items: &'n [Node],
        slots: &[Slot<'n>],
    ) -> Result<(), NotEditable> {
        let dashes: Vec<usize> =
            items.iter().map(|item| dash_of(self.text, item)).collect::<Option<_>>().ok_or(NotEditable)?;
        let (Some(&first), false) = (dashes.first(), slots.is_empty()) else { return Err(NotEditable) };
        let indent = self.column(first);
        let mut removed = vec![true; items.len()];
        let mut lines = String::new();
        // The lines are inserted after the previous item, or before the first one.
        let mut place = self.before_first(first)?;
        for slot in slots {
            let Some(from) = slot.from else {
                lines.extend(std::iter::repeat_n(' ', indent));
                self.layout.item(&slot.draft.data(self.reader), indent, &mut lines);
                continue;
            };
            removed[from] = false;
            if !lines.is_empty() {
                self.insert_lines(place, &std::mem::take(&mut lines));
            }
            let end = items[from].span.end;
            // A comment in the column of the dashes can be about the next item.
            place = self.after_comments(end, if from + 1 < items.len() { indent + 1 } else { indent });
            if !matches!(slot.draft, Draft::Kept(_)) && !self.try_draft(&slot.draft) {
                self.replace_item(&items[from], dashes[from], &slot.draft);
            }
        }
        if !lines.is_empty() {
            self.insert_lines(place, &lines);
        }
        for (index, item) in items.iter().enumerate().filter(|(index, _)| removed[*index]) {
            if !self.begins_line(dashes[index]) {
                return Err(NotEditable);
            }
            self.remove_lines(dashes[index], item.span.end.max(dashes[index]));
        }
        Ok(())
    }

    /// The offset for lines before the first item, above its comments.
    fn before_first(&self, at: usize) -> Result<usize, NotEditable> {
        if !self.begins_line(at) {
            return Err(NotEditable);
        }
        let mut start = self.line_start(at);
        while self.text[..start].ends_with('\n') {
            let above = self.line_start(start - 1);
            if !self.text[above..start].trim_start().starts_with('#') {
                break;
            }
            start = above;
        }
        Ok(start)
    }

    fn replace_item(&mut self, item: &Node, dash: usize, draft: &Draft<'n>) {
        let (data, anchor) = (draft.data(self.reader), self.anchor(draft));
        if !data.is_filled() && !item.is_unwritten() {
            self.replace_scalar(item, &data, &anchor, false);
            return;
        }
        self.report(item);
        let column = self.column(dash) + 2;
        let mut text = format!(" {anchor}");
        if data.is_filled() {
            if !anchor.is_empty() {
                // On the same line it would be the anchor of the first key.
                text.truncate(text.trim_end().len());
                text.push('\n');
            }
            self.layout.collection(&data, column, anchor.is_empty(), &mut text);
            // The following line break ends its last line.
            text.pop();
        } else {
            text.push_str(&self.scalar_like(item, &data, false));
        }
        self.replace(dash + 1..item.span.end.max(dash + 1), text);
    }
}

//! Edits of scalars, and of collections that are written on one line.

use std::ops::Range;

use super::{Edit, Editor};
use crate::manifest::data::Data;
use crate::manifest::emit;
use crate::manifest::node::{Content, Node, Style};

impl Editor<'_, '_> {
    /// Replaces a node, with its anchor and tag, by a value on one line that follows `anchor`.
    pub(super) fn replace_scalar(&mut self, old: &Node, data: &Data, anchor: &str, flow: bool) {
        if let Some((range, text)) = self.find_change_at_end(old, data) {
            self.edits.push(Edit { range, text });
            return;
        }
        self.report(old);
        let text = self.scalar_like(old, data, flow);
        self.replace(old.span.clone(), format!("{anchor}{text}"));
    }

    /// A value on one line in the style of the replaced one.
    pub(super) fn scalar_like(&self, old: &Node, data: &Data, flow: bool) -> String {
        match (&old.content, data) {
            (Content::Scalar { style, .. }, Data::String(text)) if !self.json => {
                emit::string_like(text, *style, flow)
            }
            _ if !flow => emit::scalar(data),
            _ => {
                let mut text = String::new();
                self.flow(old.span.start).write(data, &mut text);
                text
            }
        }
    }

    /// The edit where a scalar with line breaks or escapes only gets or loses text at one end. The rest keeps its form, so
    /// that the undo of an injection is exact.
    fn find_change_at_end(&self, old: &Node, data: &Data) -> Option<(Range<usize>, String)> {
        let (Content::Scalar { text: was, style, .. }, Data::String(new)) = (&old.content, data) else {
            return None;
        };
        let content = self.content_of(old, *style)?;
        let raw = &self.text[content.clone()];
        let is_block = matches!(style, Style::Literal | Style::Folded);
        if !(is_block || raw.contains(['\n', '\\'])) || was.is_empty() || new.is_empty() {
            return None;
        }
        let begins_solid = |text: &str| !text.starts_with(char::is_whitespace);
        let ends_solid = |text: &str| !text.ends_with(char::is_whitespace);
        let insert = |at, text: &str| (at..at, text.to_owned());
        let edit = if let Some(added) = new.strip_suffix(was.as_str()).filter(|_| begins_solid(was)) {
            insert(content.start, added)
        } else if let Some(added) = new.strip_prefix(was.as_str()).filter(|_| ends_solid(was)) {
            insert(content.end, added)
        } else if let Some(removed) = was.strip_suffix(new.as_str()).filter(|_| begins_solid(new)) {
            raw.strip_prefix(removed).filter(|rest| begins_solid(rest))?;
            (content.start..content.start + removed.len(), String::new())
        } else {
            let removed = was.strip_prefix(new.as_str()).filter(|_| ends_solid(new))?;
            raw.strip_suffix(removed).filter(|rest| ends_solid(rest))?;
            (content.end - removed.len()..content.end, String::new())
        };
        let changed = if edit.0.is_empty() { edit.1.as_str() } else { &self.text[edit.0.clone()] };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:$()+=@%~".contains(c);
        changed.chars().all(is_plain).then_some(edit)
    }

    /// The range of a scalar's text, without quotes, the header of a block and the line breaks at its end.
    fn content_of(&self, node: &Node, style: Style) -> Option<Range<usize>> {
        let (start, end) = (node.start, node.span.end);
        match style {
            Style::SingleQuoted | Style::DoubleQuoted => Some(start + 1..end - 1),
            Style::Plain => {
                let begins_plainly = !self.text[start..end].starts_with(['-', '?', ':']);
                begins_plainly.then_some(start..end)
            }
            Style::Literal | Style::Folded => {
                let header = self.text[start..end].lines().next()?;
                if header.contains(|c: char| c.is_ascii_digit()) {
                    return None;
                }
                let body = &self.text[start + header.len()..end];
                let first = start + header.len() + body.len() - body.trim_start().len();
                Some(first..start + header.len() + body.trim_end().len())
            }
        }
    }
}

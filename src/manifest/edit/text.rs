//! Lines and columns of the edited text.

use super::{Edit, Editor};
use crate::manifest::emit::Layout;
use crate::manifest::node::{Content, Node};

impl Editor<'_, '_> {
    pub(super) fn line_start(&self, at: usize) -> usize {
        line_start(self.text, at)
    }

    /// End of the line of `at`, after its line break.
    pub(super) fn line_end(&self, at: usize) -> usize {
        self.text[at..].find('\n').map_or(self.text.len(), |length| at + length + 1)
    }

    /// End of the lines of comments that follow the line of `at`, as far as they are indented to `column`.
    pub(super) fn after_comments(&self, at: usize, column: usize) -> usize {
        let mut end = self.line_end(at);
        for line in self.text[end..].split_inclusive('\n') {
            let comment = line.trim_start_matches(' ');
            if !comment.starts_with('#') || line.len() - comment.len() < column {
                break;
            }
            end += line.len();
        }
        end
    }

    /// The column of `at`, in bytes.
    pub(super) fn column(&self, at: usize) -> usize {
        at - self.line_start(at)
    }

    /// Blanks at the start of the line of `at`.
    pub(super) fn indent(&self, at: usize) -> usize {
        let start = self.line_start(at);
        self.text[start..].bytes().take_while(|byte| *byte == b' ').count()
    }

    /// Whether only blanks precede `at` on its line.
    pub(super) fn begins_line(&self, at: usize) -> bool {
        self.text[self.line_start(at)..at].bytes().all(|byte| byte == b' ')
    }

    /// Inserts whole lines, each with its line break, at the start of a line or the end of the text.
    pub(super) fn insert_lines(&mut self, at: usize, lines: &str) {
        let unfinished = at == self.text.len() && !self.text.is_empty() && !self.text.ends_with('\n');
        if unfinished {
            self.replace(at..at, format!("\n{}", lines.strip_suffix('\n').unwrap_or(lines)));
        } else {
            self.replace(at..at, lines);
        }
    }

    /// Removes whole lines, from the one of `first` to the one of `last`.
    pub(super) fn remove_lines(&mut self, first: usize, last: usize) {
        self.replace(self.line_start(first)..self.line_end(last), "");
    }

    /// Removes the line break before removed last lines of a text without a last line break.
    pub(super) fn fix_last_line_break(&mut self) {
        if self.text.ends_with('\n') {
            return;
        }
        let mut start = self.text.len();
        let mut kept = self.edits.len();
        while let Some(edit) = kept.checked_sub(1).map(|last| &self.edits[last])
            && edit.range.end == start
            && !edit.range.is_empty()
            && edit.text.is_empty()
        {
            start = edit.range.start;
            kept -= 1;
        }
        let before = &self.text[..start];
        let trimmed = before.strip_suffix('\n').unwrap_or(before);
        let end = trimmed.strip_suffix('\r').unwrap_or(trimmed).len();
        let is_free = kept.checked_sub(1).is_none_or(|last| self.edits[last].range.end <= end);
        if kept < self.edits.len() && is_free {
            self.edits.truncate(kept);
            self.edits.push(Edit { range: end..self.text.len(), text: String::new() });
        }
    }
}

/// Start of the line of `at`, after a byte order mark.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    let start = text[..at].rfind('\n').map_or(0, |line_break| line_break + 1);
    let marked = text[start..at].starts_with('\u{feff}');
    start + if marked { '\u{feff}'.len_utf8() } else { 0 }
}

/// The offset of an item's dash, if only blanks and comments are between them.
pub(super) fn dash_of(text: &str, item: &Node) -> Option<usize> {
    let mut before = &text[..item.span.start];
    loop {
        before = before.trim_end_matches([' ', '\t', '\n', '\r']);
        let line = &before[line_start(text, before.len())..];
        let Some((written, _)) = line.split_once('#') else { break };
        // A comment is alone on its line or follows the dash.
        let behind_blank = written.is_empty() || written.ends_with([' ', '\t']);
        if !behind_blank || !written.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'-')) {
            return None;
        }
        before = &before[..before.len() - line.len() + written.len()];
    }
    before.ends_with('-').then(|| before.len() - 1)
}

/// The indentation of the document's first nested mapping and of its first sequence under a key.
pub(super) fn layout(text: &str, root: &Node) -> Layout {
    let column = |at: usize| at - line_start(text, at);
    let default = if text[root.span.clone()].contains("\n- ") { 0 } else { 2 };
    let mut found = (None, None);
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        let Content::Mapping { members, .. } = &node.content else {
            pending.extend(node.children());
            continue;
        };
        for member in members {
            let indent = column(member.key.span.start);
            match &member.value.content {
                Content::Mapping { members: inner, .. } => {
                    let inner = inner.first().map(|inner| inner.key.span.start);
                    let own_line = inner.filter(|at| text[line_start(text, *at)..*at].trim().is_empty());
                    let step = own_line.and_then(|at| column(at).checked_sub(indent));
                    found.0 = found.0.or(step.filter(|step| *step > 0));
                }
                Content::Sequence { flow: false, items } => {
                    let dash = items.first().and_then(|item| dash_of(text, item)).map(column);
                    found.1 = found.1.or(dash.and_then(|dash| dash.checked_sub(indent)));
                }
                _ => {}
            }
            pending.push(&member.value);
        }
    }
    Layout { step: found.0.unwrap_or(2), dash: found.1.unwrap_or(default) }
}

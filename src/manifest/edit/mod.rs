//! Drafts to text edits.
//!
//! Each node is edited in its own style where that can be done safely; where it can't (`Unsafe`), the
//! node that holds it writes it anew.

mod block;
mod flow;
mod text;

use std::ops::Range;

use super::data::Data;
use super::draft::Draft;
use super::emit::{Flow, Layout};
use super::node::{Content, Node};
use super::read::Reader;

/// A replacement of a part of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What goes.
    pub range: Range<usize>,
    /// What comes.
    pub text: String,
}

/// A node can't be edited in place.
#[derive(Debug)]
struct Unsafe;

/// Finds the edits that turn one document's text into what its draft says.
pub struct Editor<'t, 'n> {
    text: &'t str,
    reader: &'t Reader<'n>,
    layout: Layout,
    json: bool,
    /// Whether it is JSON over several lines.
    pretty: bool,
    /// `\n` or `\r\n`.
    line_break: &'static str,
    edits: Vec<Edit>,
}

impl<'t, 'n> Editor<'t, 'n> {
    /// An editor for the document with this root in `text`.
    pub fn new(text: &'t str, root: &'n Node, reader: &'t Reader<'n>, json: bool) -> Self {
        let line_break = if text[root.span.clone()].contains("\r\n") { "\r\n" } else { "\n" };
        let pretty = json && text[root.span.clone()].contains('\n');
        let layout = text::layout(text, root);
        Self { text, reader, layout, json, pretty, line_break, edits: Vec::new() }
    }

    /// The edits, in the order of the text.
    pub fn run(mut self, root: &'n Node, draft: &Draft<'n>) -> Vec<Edit> {
        if self.draft(draft).is_err() || matches!(draft, Draft::New(_)) {
            self.edits.clear();
            self.whole(root, &draft.data(self.reader));
        }
        // Stable, so that insertions at one place keep their order.
        self.edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        self.mend_end();
        self.edits
    }

    /// Writes the whole document anew.
    pub fn whole(&mut self, root: &Node, data: &Data) {
        let text = if self.json {
            let mut out = String::new();
            self.flow(root.span.start).write(data, &mut out);
            out
        } else {
            let mut out = self.layout.document(data);
            if root.span.end < self.text.len() {
                // The line break that follows ends its last line.
                out.pop();
            }
            // Behind `---` on the same line.
            if self.column(root.span.start) > 0 {
                out.insert(0, '\n');
            }
            out
        };
        self.replace(root.span.clone(), text);
    }

    /// The edits made so far, alone.
    pub fn into_edits(self) -> Vec<Edit> {
        self.edits
    }

    fn draft(&mut self, draft: &Draft<'n>) -> Result<(), Unsafe> {
        match draft {
            Draft::Kept(_) | Draft::New(_) => Ok(()),
            Draft::Mapping(Some(node), slots) => match &node.content {
                Content::Mapping { flow: false, members } => self.block_mapping(members, slots),
                Content::Mapping { flow: true, members } => self.flow_mapping(node, members, slots),
                _ => Err(Unsafe),
            },
            Draft::Sequence(Some(node), slots) => match &node.content {
                Content::Sequence { flow: false, items } => self.block_sequence(items, slots),
                Content::Sequence { flow: true, items } => self.flow_sequence(node, items, slots),
                _ => Err(Unsafe),
            },
            Draft::Mapping(None, _) | Draft::Sequence(None, _) => Err(Unsafe),
        }
    }

    /// Edits a draft in place, or says that it has to be written anew; then nothing has happened.
    fn try_draft(&mut self, draft: &Draft<'n>) -> bool {
        let before = self.edits.len();
        let done = !matches!(draft, Draft::New(_)) && self.draft(draft).is_ok();
        if !done {
            self.edits.truncate(before);
        }
        done
    }

    fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        let text = text.into();
        let text = if self.line_break == "\n" { text } else { text.replace('\n', self.line_break) };
        self.edits.push(Edit { range, text });
    }

    /// How to write flow text whose closing bracket belongs to the line of `at`.
    fn flow(&self, at: usize) -> Flow {
        let line = &self.text[self.line_start(at)..self.line_end(at)];
        Flow {
            json: self.json,
            spaced: !self.json || self.pretty || line.contains("\": "),
            lines: self.pretty.then(|| (self.indent(at), self.layout.step)),
        }
    }
}

//! Turns drafts into text edits.
//!
//! A node is edited in its own style if that is safe; otherwise (`NotEditable`) its parent replaces it.

mod block;
mod flow;
mod scalar;
mod text;

use std::ops::Range;

use super::data::Data;
use super::draft::{Draft, Expanded};
use super::emit::{Flow, Layout};
use super::node::{Content, Node};
use super::read::Reader;

/// A replacement of a part of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The replaced range.
    pub range: Range<usize>,
    pub text: String,
}

/// The edits of a document.
#[derive(Debug)]
pub struct Edits {
    /// In the order of the text.
    pub edits: Vec<Edit>,
    /// The ranges of aliases, and of text on several lines, that are rewritten.
    pub rewrites: Vec<Range<usize>>,
}

/// A node can't be edited in place.
#[derive(Debug)]
struct NotEditable;

/// Computes the edits that turn one document's text into its draft.
pub struct Editor<'t, 'n> {
    text: &'t str,
    reader: &'t Reader<'n>,
    layout: Layout,
    json: bool,
    /// Whether it is JSON on several lines.
    pretty: bool,
    /// `\n` or `\r\n`.
    line_break: &'static str,
    edits: Vec<Edit>,
    rewrites: Vec<Range<usize>>,
}

impl<'t, 'n> Editor<'t, 'n> {
    /// An editor for the document with this root in `text`.
    pub fn new(text: &'t str, root: &'n Node, reader: &'t Reader<'n>, json: bool) -> Self {
        let line_break = if text[root.span.clone()].contains("\r\n") { "\r\n" } else { "\n" };
        let pretty = json && text[root.span.clone()].contains('\n');
        let layout = text::layout(text, root);
        Self { text, reader, layout, json, pretty, line_break, edits: Vec::new(), rewrites: Vec::new() }
    }

    /// Edits the document in place if possible; otherwise replaces it.
    pub fn run(mut self, root: &'n Node, draft: &Draft<'n>) -> Edits {
        if self.draft(draft).is_err() || matches!(draft, Draft::New(_)) {
            let data = draft.data(self.reader);
            return self.replace_document(root, &data);
        }
        // A stable sort keeps the order of insertions at one offset.
        self.edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        self.fix_last_line_break();
        self.rewrites.sort_by_key(|range| range.start);
        Edits { edits: self.edits, rewrites: self.rewrites }
    }

    /// Replaces the whole document.
    pub fn replace_document(mut self, root: &Node, data: &Data) -> Edits {
        self.edits.clear();
        self.rewrites.clear();
        self.report(root);
        let text = if self.json {
            let mut out = String::new();
            self.flow(root.span.start).write(data, &mut out);
            out
        } else {
            let mut out = self.layout.document(data);
            if root.span.end < self.text.len() {
                // The following line break ends its last line.
                out.pop();
            }
            // The root follows `---` on the same line.
            if self.column(root.span.start) > 0 {
                out.insert(0, '\n');
            }
            out
        };
        self.replace(root.span.clone(), text);
        Edits { edits: self.edits, rewrites: self.rewrites }
    }

    fn draft(&mut self, draft: &Draft<'n>) -> Result<(), NotEditable> {
        match draft {
            Draft::Kept(_) | Draft::New(_) => Ok(()),
            Draft::Mapping(Some(node), slots) => match &node.content {
                Content::Mapping { flow: false, members } => self.block_mapping(members, slots),
                Content::Mapping { flow: true, members } => self.flow_mapping(node, members, slots),
                _ => Err(NotEditable),
            },
            Draft::Sequence(Some(node), slots) => match &node.content {
                Content::Sequence { flow: false, items } => self.block_sequence(items, slots),
                Content::Sequence { flow: true, items } => self.flow_sequence(node, items, slots),
                _ => Err(NotEditable),
            },
            Draft::Expanded(_) | Draft::Mapping(None, _) | Draft::Sequence(None, _) => Err(NotEditable),
        }
    }

    /// Edits a draft in place if possible; otherwise adds no edits and returns `false`.
    fn try_draft(&mut self, draft: &Draft<'n>) -> bool {
        let before = (self.edits.len(), self.rewrites.len());
        let done = !matches!(draft, Draft::New(_)) && self.draft(draft).is_ok();
        if !done {
            self.edits.truncate(before.0);
            self.rewrites.truncate(before.1);
        }
        done
    }

    fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        let text = text.into();
        let text = if self.line_break == "\n" { text } else { text.replace('\n', self.line_break) };
        self.edits.push(Edit { range, text });
    }

    /// Records that a node is rewritten, if it is an alias or has several lines.
    fn report(&mut self, node: &Node) {
        let text = self.text[node.span.clone()].trim_end();
        if matches!(node.content, Content::Alias(_)) || text.contains('\n') {
            self.rewrites.push(node.span.start..node.span.start + text.len());
        }
    }

    /// `&name ` where the written value gets the anchor of its alias.
    fn anchor(&self, draft: &Draft<'n>) -> String {
        match draft {
            Draft::Expanded(Expanded { alias, takes_anchor: true, .. }) => {
                format!("&{} ", self.text[alias.span.clone()].trim_start_matches('*'))
            }
            _ => String::new(),
        }
    }

    /// The style of flow text whose closing bracket is on the line of `at`.
    fn flow(&self, at: usize) -> Flow {
        let line = &self.text[self.line_start(at)..self.line_end(at)];
        Flow {
            json: self.json,
            spaced: !self.json || self.pretty || line.contains("\": "),
            lines: self.pretty.then(|| (self.indent(at), self.layout.step)),
        }
    }
}

//! Edits of a text.

use std::ops::Range;

/// Edits that don't overlap; those at one position keep their order.
#[derive(Default)]
pub(super) struct Edits(Vec<(Range<usize>, String)>);

impl Edits {
    /// Inserts `new` before the byte `at`.
    pub(super) fn insert(&mut self, at: usize, new: String) {
        self.0.push((at..at, new));
    }

    pub(super) fn replace(&mut self, span: Range<usize>, new: String) {
        self.0.push((span, new));
    }

    pub(super) fn apply(mut self, text: &str) -> String {
        self.0.sort_by_key(|(span, _)| span.start);
        let mut changed = String::with_capacity(text.len());
        let mut done = 0;
        for (span, new) in self.0 {
            changed.push_str(&text[done..span.start]);
            changed.push_str(&new);
            done = span.end;
        }
        changed.push_str(&text[done..]);
        changed
    }
}

//! Messages for people, on standard error.

use std::fmt::Display;

use swansong::manifest::objects::Object;
use swansong::manifest::rewrite::Rewrite;
use swansong::manifest::source::Document;

use super::input::Input;

/// Messages, one per line.
#[derive(Debug, Default)]
pub(crate) struct Messages(String);

impl Messages {
    pub(crate) fn add(&mut self, level: &str, object: &Object<'_>, message: impl Display) {
        self.add_line(&format!("{level}: {} {}: {message}", object.kind, object.place()));
    }

    /// Names the lines that are rewritten although only a part of them changes.
    pub(super) fn add_rewrites(&mut self, input: &Input, document: &Document, rewrites: &[Rewrite]) {
        for rewrite in rewrites {
            self.add_line(&format!("note: {}: document {}, {rewrite}", input.name, document.number));
        }
    }

    fn add_line(&mut self, line: &str) {
        self.0.push_str(&printable(line));
        self.0.push('\n');
    }

    pub(super) fn print(&self) {
        eprint!("{}", self.0);
    }
}

/// The text with control characters, line breaks, changes of text direction and characters without width escaped, because a
/// terminal would act on them or hide them.
pub(crate) fn printable(text: &str) -> String {
    let is_hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ad}' | '\u{e0000}'..='\u{e0fff}');
    let is_safe = |c: char| !c.is_control() && !is_hidden(c);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_safe(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    out
}

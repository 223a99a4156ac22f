//! Where kubectl reads a file differently from YAML 1.2: it splits the file by lines (`YAMLReader` of
//! k8s.io/apimachinery) and reads each part with a parser of YAML 1.1.

use std::ops::Range;

use super::error::Problem;
use super::node::{Content, Node, Style};

/// A part of a file.
#[derive(Debug, Default)]
pub struct Part<'t> {
    /// Its text. It has its separator only where the part before would be empty without it.
    pub content: Range<usize>,
    /// Whether a separator precedes it.
    pub explicit: bool,
    /// Text on the line of the separator that kubectl refuses.
    pub refused: Option<&'t str>,
}

/// Splits a file at the lines that begin with `---`.
pub fn parts(text: &str) -> Vec<Part<'_>> {
    let mut all = Vec::new();
    let mut part = Part::default();
    for line in text.split_inclusive('\n') {
        let end = part.content.end + line.len();
        let Some(rest) = line.strip_prefix("---").map(str::trim) else {
            part.content.end = end;
            continue;
        };
        if part.content.is_empty() {
            part.content.end = end;
        } else {
            all.push(std::mem::replace(&mut part, Part { content: end..end, ..Part::default() }));
        }
        part.explicit = true;
        part.refused = (!rest.is_empty() && !rest.starts_with('#')).then_some(rest);
    }
    all.push(part);
    all
}

/// The first character that is a line break in YAML 1.1 only.
pub fn find_line_break(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|(_, c)| matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}'))
}

/// A directive such as `%YAML 1.1`. The separator that has to follow it ends its part, so kubectl refuses it.
pub fn find_directive(text: &str) -> Option<(usize, &str)> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let content = line.trim_start_matches('\u{feff}').trim_end();
        match content.chars().next() {
            Some('%') => return Some((at, content)),
            None | Some('#') => at += line.len(),
            Some(_) => return None,
        }
    }
    None
}

/// The first value that kubectl reads differently, by its line and the difference.
pub fn find_difference(root: &Node, text: &str) -> Option<(usize, Problem)> {
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        let difference = match &node.content {
            Content::Scalar { tag: Some(_), .. } => tag_before_comma(node, text),
            Content::Sequence { flow: true, items } => {
                items.iter().find_map(|item| question_mark(item, text))
            }
            Content::Mapping { flow: true, members } => members.iter().find_map(|member| {
                let mark = || question_mark(&member.value, text);
                question_mark(&member.key, text)
                    .or_else(mark)
                    .or_else(|| key_without_blank(&member.key, text))
            }),
            _ => None,
        };
        if difference.is_some() {
            return difference;
        }
        pending.extend(node.children());
    }
    None
}

/// A tag without a value before a comma. YAML 1.1 takes the comma as part of the tag.
fn tag_before_comma(node: &Node, text: &str) -> Option<(usize, Problem)> {
    let differs = node.start == node.span.end && text[node.span.end..].starts_with(',');
    differs.then(|| (node.line, Problem::TagBeforeComma(text[node.span.clone()].to_owned())))
}

/// A plain scalar in a flow collection that begins with `?`. YAML 1.1 takes it as the mark of a key.
fn question_mark(node: &Node, text: &str) -> Option<(usize, Problem)> {
    match &node.content {
        Content::Scalar { text: value, style: Style::Plain, .. } if value.starts_with('?') => {
            Some((node.line, Problem::QuestionMark(text[node.span.clone()].to_owned())))
        }
        _ => None,
    }
}

/// A plain key of a flow mapping whose colon precedes `,`, `]` or `}`. YAML 1.1 takes the colon as part of the key.
fn key_without_blank(key: &Node, text: &str) -> Option<(usize, Problem)> {
    let is_plain = matches!(key.content, Content::Scalar { style: Style::Plain, .. });
    let after = &text[key.span.end..];
    let differs = is_plain && [":,", ":]", ":}"].iter().any(|it| after.starts_with(it));
    differs.then(|| (key.line, Problem::NoBlank(text[key.start..key.span.end].to_owned())))
}

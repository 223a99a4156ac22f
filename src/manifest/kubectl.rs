//! Where kubectl reads a file differently from YAML 1.2: it splits the file by lines (`YAMLReader` of
//! k8s.io/apimachinery) and reads each part with a parser of YAML 1.1.

use std::ops::Range;

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

/// A tag without a value before a comma. YAML 1.1 takes the comma as part of the tag.
pub fn find_tag_before_comma<'n>(root: &'n Node, text: &str) -> Option<&'n Node> {
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        let tagged = matches!(node.content, Content::Scalar { tag: Some(_), .. });
        if tagged && node.start == node.span.end && text[node.span.end..].starts_with(',') {
            return Some(node);
        }
        pending.extend(node.children());
    }
    None
}

/// A plain scalar in a flow collection that begins with `?`. YAML 1.1 takes it as the mark of a key.
pub fn find_question_mark(root: &Node) -> Option<&Node> {
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        if matches!(node.content, Content::Sequence { flow: true, .. } | Content::Mapping { flow: true, .. })
        {
            let marked = node.children().find(|child| match &child.content {
                Content::Scalar { text, style: Style::Plain, .. } => text.starts_with('?'),
                _ => false,
            });
            if marked.is_some() {
                return marked;
            }
        }
        pending.extend(node.children());
    }
    None
}

/// A plain key of a flow mapping whose colon precedes `,`, `]` or `}`. YAML 1.1 takes the colon as part of the key.
pub fn find_key_without_blank<'n>(root: &'n Node, text: &str) -> Option<&'n Node> {
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        if let Content::Mapping { flow: true, members } = &node.content {
            let differs = members.iter().find(|member| {
                let plain = matches!(member.key.content, Content::Scalar { style: Style::Plain, .. });
                let after = &text[member.key.span.end..];
                plain && [":,", ":]", ":}"].iter().any(|it| after.starts_with(it))
            });
            if let Some(member) = differs {
                return Some(&member.key);
            }
        }
        pending.extend(node.children());
    }
    None
}

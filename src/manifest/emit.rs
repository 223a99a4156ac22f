//! Writes data as block YAML or as flow text, which can be JSON.

use super::data::{Data, is_unprintable, write_json_string};
use super::node::Style;
use super::scalar;

/// In bytes; longer keys need `?`, because parsers limit the search for the `:` of a simple key.
const MAX_SIMPLE_KEY: usize = 1000;

/// The indentation of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Columns a mapping inside a mapping is indented by.
    pub step: usize,
    /// Columns the dashes of a sequence are indented by under their key; 0 as kubectl prints it.
    pub dash: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self { step: 2, dash: 0 }
    }
}

impl Layout {
    /// A document, ending with a line break.
    pub fn document(self, data: &Data) -> String {
        let mut out = String::new();
        if data.is_filled() {
            self.collection(data, 0, false, &mut out);
        } else {
            out.push_str(&scalar(data));
            out.push('\n');
        }
        out
    }

    /// The lines of a filled collection at column `indent`; the first line's blanks are left out when
    /// `inline`, to follow a dash.
    pub fn collection(self, data: &Data, indent: usize, inline: bool, out: &mut String) {
        let mut first = inline;
        let mut pad = |out: &mut String| {
            if !std::mem::take(&mut first) {
                out.extend(std::iter::repeat_n(' ', indent));
            }
        };
        match data {
            Data::Mapping(members) => {
                for (key, value) in members {
                    pad(out);
                    self.member(key, value, indent, out);
                }
            }
            Data::Sequence(items) => {
                for item in items {
                    pad(out);
                    self.item(item, indent, out);
                }
            }
            _ => {}
        }
    }

    /// `key: value` and a line break, of a mapping at column `indent`, whose blanks are written already.
    pub fn member(self, key: &str, value: &Data, indent: usize, out: &mut String) {
        let text = string(key, false);
        if text.len() > MAX_SIMPLE_KEY {
            out.push_str("? ");
            out.push_str(&text);
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
        } else {
            out.push_str(&text);
        }
        out.push(':');
        match value {
            Data::Sequence(items) if !items.is_empty() => {
                out.push('\n');
                self.collection(value, indent + self.dash, false, out);
            }
            Data::Mapping(members) if !members.is_empty() => {
                out.push('\n');
                self.collection(value, indent + self.step, false, out);
            }
            _ => Self::leaf(value, indent + self.step, out),
        }
    }

    /// `- item` and a line break, of a sequence whose dash, not written yet, is at column `indent`.
    pub fn item(self, item: &Data, indent: usize, out: &mut String) {
        out.push('-');
        if item.is_filled() {
            out.push(' ');
            self.collection(item, indent + 2, true, out);
        } else {
            Self::leaf(item, indent + 2, out);
        }
    }

    fn leaf(value: &Data, indent: usize, out: &mut String) {
        out.push(' ');
        match value {
            Data::String(text) if is_literal(text) => literal(text, indent, out),
            _ => {
                out.push_str(&scalar(value));
                out.push('\n');
            }
        }
    }
}

/// A scalar or empty collection on one line.
pub fn scalar(data: &Data) -> String {
    match data {
        Data::String(text) => string(text, false),
        _ => data.to_json(),
    }
}

/// A string in the style of the replaced scalar, if that style can represent it.
pub fn string_like(text: &str, style: Style, flow: bool) -> String {
    match style {
        Style::DoubleQuoted => double_quoted(text),
        Style::SingleQuoted if fits_single_quotes(text) => single_quoted(text),
        _ => string(text, flow),
    }
}

/// A string on one line, quoted if a parser could read it as another type.
pub fn string(text: &str, flow: bool) -> String {
    if is_plain(text, flow) {
        text.to_owned()
    } else if text.contains(['"', '\\']) && fits_single_quotes(text) {
        single_quoted(text)
    } else {
        double_quoted(text)
    }
}

fn double_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_json_string(text, &mut out);
    out
}

fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn fits_single_quotes(text: &str) -> bool {
    !text.chars().any(is_unprintable)
}

fn is_plain(text: &str, flow: bool) -> bool {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return false };
    let second = chars.next();
    let indicator = match first {
        '-' | '?' | ':' => second.is_none_or(|c| c.is_whitespace() || ",[]{}".contains(c)),
        _ => ",[]{}#&*!|>'\"%@`".contains(first),
    };
    !indicator
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with(char::is_whitespace)
        && !text.ends_with(':')
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.chars().any(|c| is_unprintable(c) || (c.is_whitespace() && c != ' '))
        // libyaml, which kubectl uses, reads `?` as an indicator anywhere in flow style.
        && !(flow && text.contains([',', '[', ']', '{', '}', ':', '#', '?']))
        && !scalar::is_ambiguous(text)
}

/// Whether a text has several lines and can be a literal block.
fn is_literal(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n')
        && !text.starts_with(['\n', ' ', '\t'])
        && !text.chars().any(|c| is_unprintable(c) && c != '\n' && c != '\t')
        // Blanks at the end of a line are lost on people, and a last line of blanks on readers.
        && !text.lines().any(|line| line.ends_with([' ', '\t']))
}

fn literal(text: &str, indent: usize, out: &mut String) {
    let body = text.trim_end_matches('\n');
    out.push_str(match text.len() - body.len() {
        0 => "|-\n",
        1 => "|\n",
        _ => "|+\n",
    });
    for line in body.split('\n') {
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(line);
        }
        out.push('\n');
    }
    out.extend(std::iter::repeat_n('\n', (text.len() - body.len()).saturating_sub(1)));
}

/// Format of flow style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Strict JSON: every string and key in double quotes.
    pub json: bool,
    /// A blank after `:` and `,`.
    pub spaced: bool,
    /// Column of the closing bracket and step, if on several lines.
    pub lines: Option<(usize, usize)>,
}

impl Flow {
    /// Writes a value.
    pub fn write(self, data: &Data, out: &mut String) {
        match data {
            Data::String(text) => out.push_str(&self.string(text)),
            Data::Sequence(items) if !items.is_empty() => {
                self.brackets('[', ']', items.iter(), out, Self::write);
            }
            Data::Mapping(members) if !members.is_empty() => {
                self.brackets('{', '}', members.iter(), out, |inner, (key, value), out| {
                    inner.member(key, value, out);
                });
            }
            _ => out.push_str(&data.to_json()),
        }
    }

    /// Writes `key: value`.
    pub fn member(self, key: &str, value: &Data, out: &mut String) {
        out.push_str(&self.string(key));
        // A plain key requires the blank.
        out.push_str(if self.spaced || !self.json { ": " } else { ":" });
        self.write(value, out);
    }

    fn string(self, text: &str) -> String {
        if self.json { double_quoted(text) } else { string(text, true) }
    }

    fn brackets<T>(
        self,
        open: char,
        close: char,
        elements: impl Iterator<Item = T>,
        out: &mut String,
        write: impl Fn(Self, T, &mut String),
    ) {
        let inner = Self { lines: self.lines.map(|(column, step)| (column + step, step)), ..self };
        out.push(open);
        for (index, element) in elements.enumerate() {
            if index > 0 {
                out.push_str(if self.spaced && self.lines.is_none() { ", " } else { "," });
            }
            inner.line_break(out);
            write(inner, element, out);
        }
        self.line_break(out);
        out.push(close);
    }

    fn line_break(self, out: &mut String) {
        if let Some((column, _)) = self.lines {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', column));
        }
    }
}

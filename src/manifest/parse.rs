//! Parses YAML text to nodes, from the events of granit-parser.

use std::ops::Range;

use granit_parser::{Event, Options, Parser, ScanError, Span, StructureStyle, Tag};

use super::error::{DocumentError, Problem};
use super::node::{Content, Member, Node, Style};

/// A document of a YAML stream.
#[derive(Debug)]
pub struct Parsed {
    /// From the end of the previous document to the end of this one, including comments, directives and `---`.
    pub region: Range<usize>,
    /// The root node; an empty scalar for an empty document.
    pub root: Node,
    /// Whether it begins with `---`.
    pub explicit: bool,
}

/// Position of a text in its file.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextOffset {
    /// Bytes before it.
    pub offset: usize,
    /// Lines before it.
    pub lines: usize,
    /// Documents before it.
    pub documents: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// A stream of YAML documents.
    Yaml,
    /// One JSON value.
    Json,
}

/// Parses a stream of YAML documents.
pub fn parse(text: &str, place: TextOffset, syntax: Syntax) -> Result<Vec<Parsed>, DocumentError> {
    let mut stream = Stream {
        text,
        place,
        parsed: Vec::new(),
        open: Vec::new(),
        region_start: 0,
        explicit: false,
        last_end: 0,
        ended: 0,
    };
    for event in Parser::new_from_str_with_options(text, options(syntax)) {
        match event {
            Ok((event, span)) => stream.take(event, &span),
            Err(error) => return Err(stream.syntax(&error)),
        }
    }
    if let Some(last) = stream.parsed.last_mut() {
        last.region.end = place.offset + text.len();
    }
    Ok(stream.parsed)
}

fn options(syntax: Syntax) -> Options {
    let mut options = granit_parser::options! {
        emit_comments: false,
        emit_anchor_events: true,
        // Like libyaml and kubectl.
        block_scalar_eof_without_line_feed: true,
    };
    if syntax == Syntax::Json {
        // JSON doesn't limit its keys.
        options.simple_key_max_lookahead = usize::MAX;
    }
    options
}

/// A collection before its end event.
struct OpenCollection {
    content: Content,
    /// A key before its value.
    key: Option<Node>,
    span: Range<usize>,
    start: usize,
    anchor: usize,
    line: usize,
    flow: bool,
}

struct Stream<'t> {
    text: &'t str,
    place: TextOffset,
    parsed: Vec<Parsed>,
    open: Vec<OpenCollection>,
    region_start: usize,
    explicit: bool,
    /// End of the last token, from which a block scalar's header is searched.
    last_end: usize,
    /// Number of ended documents.
    ended: usize,
}

impl Stream<'_> {
    fn take(&mut self, event: Event<'_>, span: &Span) {
        let range = span.byte_range().unwrap_or_default();
        let line = span.start.line() + self.place.lines;
        match event {
            Event::DocumentStart(explicit, _) => self.explicit = explicit,
            Event::DocumentEnd => {
                if let Some(parsed) = self.parsed.last_mut() {
                    parsed.region.end = self.place.offset + range.end;
                }
                self.region_start = range.end;
                self.ended += 1;
            }
            Event::Alias(anchor) => {
                let start = range.start;
                self.close(Node {
                    content: Content::Alias(anchor),
                    span: range.clone(),
                    start,
                    anchor: 0,
                    line,
                });
            }
            Event::Scalar(text, style, anchor, tag) => {
                let written = self.scalar_range(&range, style);
                let start = written.start;
                let span = with_tag(written, span);
                // The scalar has a tag but no text.
                let start = if range.is_empty() && !span.is_empty() { span.end } else { start };
                let content =
                    Content::Scalar { text: text.into_owned(), style, tag: tag.map(|tag| full(&tag)) };
                self.close(Node { content, span, start, anchor, line });
            }
            Event::SequenceStart(style, anchor, _) => {
                self.begin(Content::Sequence { flow: false, items: Vec::new() }, style, anchor, span);
            }
            Event::MappingStart(style, anchor, _) => {
                self.begin(Content::Mapping { flow: false, members: Vec::new() }, style, anchor, span);
            }
            Event::Anchor(_, _) => self.place_anchor(&range),
            Event::SequenceEnd | Event::MappingEnd => self.end(range.end),
            _ => {}
        }
        self.last_end = self.last_end.max(range.end);
    }

    fn begin(&mut self, content: Content, style: StructureStyle, anchor: usize, span: &Span) {
        let range = span.byte_range().unwrap_or_default();
        let flow = style == StructureStyle::Flow;
        let (start, line) = (range.start, span.start.line() + self.place.lines);
        let tag = span.tag_span().and_then(|tag| tag.byte_range());
        let first = tag.map_or(start, |tag| tag.start.min(start));
        self.open.push(OpenCollection { content, key: None, span: first..start, start, anchor, line, flow });
    }

    /// Adds an anchor to its node, whose event precedes that of the anchor.
    fn place_anchor(&mut self, at: &Range<usize>) {
        let offset = self.place.offset;
        let node = match self.open.last_mut() {
            Some(open) if open.is_empty() && open.anchor != 0 && open.span.start > at.start => {
                open.span.start = at.start;
                return;
            }
            Some(open) => open.last_mut(),
            None => self.parsed.last_mut().map(|parsed| &mut parsed.root),
        };
        if let Some(node) = node {
            if node.start == node.span.end {
                // The node has properties but no text.
                let start = if node.is_unwritten() { at.start + offset } else { node.span.start };
                node.span = start..node.span.end.max(at.end + offset);
                node.start = node.span.end;
            }
            node.span.start = node.span.start.min(at.start + offset);
        }
    }

    fn end(&mut self, at: usize) {
        let Some(OpenCollection { mut content, span, start, anchor, line, flow, .. }) = self.open.pop()
        else {
            return;
        };
        let end = match &mut content {
            Content::Sequence { flow: style, items } => {
                *style = flow;
                items.last().map(|item| item.span.end - self.place.offset)
            }
            Content::Mapping { flow: style, members } => {
                *style = flow;
                members.last().map(|member| member.end() - self.place.offset)
            }
            _ => None,
        };
        let end = if flow { at } else { end.unwrap_or(at) };
        self.close(Node { content, span: span.start..end, start, anchor, line });
    }

    /// Adds a finished node to its collection or document.
    fn close(&mut self, mut node: Node) {
        node.span = node.span.start + self.place.offset..node.span.end + self.place.offset;
        node.start += self.place.offset;
        match self.open.last_mut() {
            None => {
                let start = self.region_start + self.place.offset;
                let region = start..node.span.end;
                self.parsed.push(Parsed { region, root: node, explicit: self.explicit });
            }
            Some(OpenCollection { content: Content::Sequence { items, .. }, .. }) => items.push(node),
            Some(OpenCollection { content: Content::Mapping { members, .. }, key, .. }) => match key.take() {
                None => *key = Some(node),
                Some(key) => {
                    let from = key.span.end - self.place.offset;
                    // The parser places a missing value before the colon, which follows `? key` on the next line.
                    let missing = node.is_unwritten().then(|| node.start - self.place.offset);
                    let colon = colon_behind(self.text, from).or_else(|| colon_behind(self.text, missing?));
                    let colon = colon.map(|at| at + self.place.offset);
                    if node.is_unwritten()
                        && let Some(colon) = colon
                    {
                        node.span = colon..colon;
                        node.start = colon;
                    }
                    members.push(Member { key, value: node, colon });
                }
            },
            Some(_) => {}
        }
    }

    /// The range of a scalar. The parser's span of a block scalar has no header, but has the blank lines after it.
    fn scalar_range(&self, range: &Range<usize>, style: Style) -> Range<usize> {
        if !matches!(style, Style::Literal | Style::Folded) {
            return range.clone();
        }
        let indicator = if style == Style::Literal { '|' } else { '>' };
        let Some(header) = block_header(self.text, self.last_end..range.start, indicator) else {
            return range.clone();
        };
        let header_line = self.text[header..].split('\n').next().unwrap_or_default();
        let keeps = header_line.split('#').next().unwrap_or_default().contains('+');
        let body = &self.text[range.clone()];
        let trimmed = if keeps {
            body.trim_end_matches([' ', '\t']).trim_end_matches(['\n', '\r'])
        } else {
            body.trim_end()
        };
        let mut end = range.start + trimmed.len();
        if keeps {
            // The last significant blank line ends the node.
            let blank = &self.text[end..range.end];
            let lines = blank.rfind('\n').map_or(0, |last| blank[..last].trim_end_matches('\r').len());
            end += lines;
        }
        if trimmed.is_empty() && !keeps {
            end = header + header_line.trim_end().len();
        }
        header..end.max(header + 1)
    }

    fn syntax(&self, error: &ScanError) -> DocumentError {
        let document = self.place.documents + self.ended + 1;
        let line = self.place.lines + error.marker().line();
        DocumentError { document, line, problem: Problem::Syntax(error.info().clone()) }
    }
}

impl OpenCollection {
    fn is_empty(&self) -> bool {
        self.key.is_none()
            && match &self.content {
                Content::Sequence { items, .. } => items.is_empty(),
                Content::Mapping { members, .. } => members.is_empty(),
                _ => true,
            }
    }

    /// The last added node.
    fn last_mut(&mut self) -> Option<&mut Node> {
        match (&mut self.key, &mut self.content) {
            (Some(key), _) => Some(key),
            (None, Content::Sequence { items, .. }) => items.last_mut(),
            (None, Content::Mapping { members, .. }) => members.last_mut().map(|member| &mut member.value),
            _ => None,
        }
    }
}

fn full(tag: &Tag) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}

fn with_tag(content: Range<usize>, span: &Span) -> Range<usize> {
    match span.tag_span().and_then(|tag| tag.byte_range()) {
        Some(tag) if content.is_empty() => tag,
        Some(tag) => tag.start.min(content.start)..content.end,
        None => content,
    }
}

/// The offset after the `:` of a key that ends at `from`.
fn colon_behind(text: &str, from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    rest[blank..].starts_with(':').then_some(from + blank + 1)
}

/// The offset of a block scalar's `|` or `>` between the previous token and its first line.
fn block_header(text: &str, between: Range<usize>, indicator: char) -> Option<usize> {
    let mut at = between.start;
    let mut after_blank = false;
    while at < between.end {
        let c = text[at..].chars().next()?;
        if c == indicator {
            return Some(at);
        }
        if c == '#' && after_blank {
            at += text[at..between.end].find('\n')?;
            continue;
        }
        after_blank = c.is_whitespace();
        at += c.len_utf8();
    }
    None
}

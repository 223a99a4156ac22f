//! Errors of reading a document.

/// An error at a line of a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("document {document}, line {line}: {problem}")]
pub struct DocumentError {
    /// Counted from 1 in its file.
    pub document: usize,
    /// Counted from 1 in its file.
    pub line: usize,
    pub problem: Problem,
}

/// The kinds of errors of a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text isn't YAML.
    #[error("it isn't valid YAML: {0}")]
    Syntax(String),
    /// The text is a template of YAML.
    #[error(
        "it is a template and not YAML (`{mark}` on line {line}); render it first (`helm template`); read as YAML, {cause}"
    )]
    Template {
        /// How its expressions begin, as `{{`.
        mark: &'static str,
        /// Line of the first one.
        line: usize,
        /// What is wrong with the text as YAML.
        cause: Box<Self>,
    },
    /// A mapping has a key twice.
    #[error("key {key:?} is already on line {first}; remove one of the two")]
    DuplicateKey {
        key: String,
        /// Line of the first one.
        first: usize,
    },
    /// A key that JSON can't have.
    #[error("{0} can't be a key; write a string")]
    Key(&'static str),
    /// A number that JSON can't have.
    #[error("`{0}` is not a number that Kubernetes can store; quote it if you mean a string")]
    NotFinite(String),
    /// A tag that contradicts the text.
    #[error("`{text}` can't be read as {tag}; correct it or remove the tag")]
    Tag {
        /// The scalar's text.
        text: String,
        /// The tag, as `!!int`.
        tag: String,
    },
    /// An alias is inside the node to which it refers.
    #[error("the alias is inside the anchor to which it refers; write the value out")]
    Cycle,
    /// A merge key whose value isn't a mapping.
    #[error("the merge key `<<` takes a mapping or a list of mappings")]
    Merge,
    /// The aliases expand to too many values.
    #[error("its aliases expand to more than {0} values; write them out")]
    TooBig(usize),
    /// The aliases expand to too much text.
    #[error("its aliases expand to more than {0} bytes; write them out")]
    AliasesTooLarge(usize),
    /// A document follows `...` without `---`, so kubectl ignores it.
    #[error(
        "kubectl ignores this document, because only `...` separates it from the one before; write `---`"
    )]
    AfterEnd,
    /// A line begins with `---` and text.
    #[error("kubectl refuses text behind `---`, here `{0}`; write it on the next line")]
    Separator(String),
    /// A directive before a document.
    #[error("kubectl refuses the directive `{0}`; remove the line")]
    Directive(String),
    /// A character that only kubectl takes for a line break.
    #[error("kubectl takes the character {} for a line break; remove it, or write it as an escape in double quotes", .0.escape_unicode())]
    LineBreak(char),
    /// A key in `{…}` or `[…]` whose colon no blank follows.
    #[error("kubectl takes the colon behind `{0}` for a part of the key; write a blank after it")]
    NoBlank(String),
    /// A tag in `{…}` or `[…]` that a comma follows.
    #[error("kubectl takes the comma behind `{0}` for a part of the tag; write the value, or a blank")]
    TagBeforeComma(String),
    /// A scalar in `{…}` or `[…]` that begins with `?`.
    #[error("kubectl takes the question mark of `{0}` for the mark of a key; put the value in quotes")]
    QuestionMark(String),
    /// The document's nodes would take too much memory.
    #[error("it is larger than {} MiB; write its objects as separate documents", .0 >> 20)]
    TooLarge(usize),
    /// The nesting is too deep.
    #[error("it is nested deeper than {0} levels")]
    TooDeep(usize),
    /// The document isn't an object.
    #[error(
        "it is {0} and not a Kubernetes object, which is a mapping with apiVersion, kind and metadata; correct or remove it"
    )]
    NotAnObject(&'static str),
    /// A field that every kind has is of the wrong type.
    #[error("field `{field}` is {found}, but has to be {expected}; correct it")]
    Field {
        /// The field, as `items[2].kind`.
        field: String,
        /// The actual type.
        found: &'static str,
        /// The required type.
        expected: &'static str,
    },
}
